# frozen_string_literal: true

require_relative "cache"

module Kubernetes
  # Programs that run beside a test, each with a log in a folder. One that ends by itself is a failure.
  class Children
    LINES = 20

    # The first program that has ended unexpectedly; nil if none has.
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

    # Fails if a program has ended.
    def check = (raise @failure if @failure)

    # Kills the programs; their files are not needed.
    def stop
      @stopping = true
      @pids.each_value { |pid| kill(pid) }
    end

    # Returns the last output of a program.
    def last_lines(name) = File.exist?(log(name)) ? File.readlines(log(name)).last(LINES).join : ""

    # Returns the last output of all programs.
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
