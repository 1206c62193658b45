# frozen_string_literal: true

require_relative "cache"

module Kubernetes
  # Programs that are needed for as long as something runs, each with a log in a folder. One that ends by itself is a failure.
  class Children
    LINES = 20

    # What has ended that should not have; nil as long as nothing has.
    attr_reader :failure

    def initialize(folder, environment = {})
      @folder = folder
      @environment = environment
      @pids = {}
    end

    def launch(name, program, *flags)
      @pids[name] = pid = Process.spawn(@environment, program, *flags, in: File::NULL, %i[out err] => log(name), chdir: @folder)
      Thread.new do
        Process.wait(pid)
        @failure = Failure.new("#{name} has ended:\n#{last_lines(name)}") unless @stopping
      end
    end

    # Fails if one has ended.
    def check = (raise @failure if @failure)

    # By KILL: what they leave is thrown away.
    def stop
      @stopping = true
      @pids.each_value { |pid| kill(pid) }
    end

    # What a program has printed last.
    def last_lines(name) = File.exist?(log(name)) ? File.readlines(log(name)).last(LINES).join : ""

    # The same of all.
    def report = @pids.keys.map { |name| "#{name}:\n#{last_lines(name)}" }.join

    private

    def log(name) = File.join(@folder, "#{name}.log")

    def kill(pid)
      Process.kill(:KILL, pid)
    rescue Errno::ESRCH
      nil
    end
  end
end
