# frozen_string_literal: true

require "fileutils"
require "shellwords"
require_relative "failure"
require_relative "machine"
require_relative "process_tree"

module Bench
  # One run of one server: started from its command template, checked, stopped.
  #
  # 1. It runs in the directory of the app or site, as leader of its own session, with its output in a log file.
  # 2. `start` returns once the app's response is correct. Otherwise it stops the server, and raises Failure with the end of the log.
  # 3. `stop` sends TERM, waits, then kills the rest of the tree; no other process is affected.
  class Server
    BOOT_SECONDS = 30
    STOP_SECONDS = 10
    # Environment variables that servers read and that would change the comparison.
    UNSET = %w[PORT WEB_CONCURRENCY RAILS_ENV RAILS_MAX_THREADS RAILS_MIN_THREADS
               MIN_THREADS MAX_THREADS PUMA_MIN_THREADS PUMA_MAX_THREADS THREADS WORKERS].freeze

    attr_reader :port, :tree

    # template: command line with placeholders; log: path of the log file; config: files to write into the directory `home`
    # first (name => text with placeholders); values: additional placeholders.
    def initialize(template, log:, cpu: nil, env: {}, config: {}, home: nil, values: {})
      @template = template
      @config = config
      @values = home ? values.merge("home" => home) : values
      @log = log
      @cpu = cpu
      @env = UNSET.to_h { |name| [name, nil] }.merge("RACK_ENV" => "production", **env)
    end

    # shape: [workers, threads]; within: seconds for the first response; the block gets the port and returns whether the app's
    # response is correct.
    def start(dir, shape, within: BOOT_SECONDS)
      @port = Machine.free_port
      values = self.class.values(port: @port, dir: dir, shape: shape).merge(@values)
      write_config(values)
      words = self.class.words(@template, values)
      @pid = spawn_leader(Machine.pinned(@cpu, words), dir)
      @tree = ProcessTree.new(@pid)
      wait_until_ready(within) { yield @port }
      self
    rescue StandardError, Interrupt
      # The caller does not have it yet, so it is stopped here.
      stop
      raise
    end

    # Returns the number of processes that had to be killed.
    def stop(timeout: STOP_SECONDS)
      return 0 unless @pid

      Process.kill(:TERM, @pid) unless exited?
      wait(timeout) { exited? && @tree.living.empty? }
      killed = @tree.kill
      wait(STOP_SECONDS) { exited? && @tree.living.empty? }
      @pid = nil
      killed
    end

    # The words of the command: the template split like a shell does, then filled in.
    def self.command(template, port:, dir:, shape:)
      words(template, values(port: port, dir: dir, shape: shape))
    end

    def self.words(template, values)
      template.shellsplit.map { |word| fill(word, values, template) }.reject(&:empty?)
    end

    # The placeholders of every server.
    def self.values(port:, dir:, shape:)
      workers, threads = shape
      { "port" => port, "dir" => dir, "workers" => workers, "threads" => threads,
        "cluster" => workers == 1 ? 0 : workers, "preload" => workers == 1 ? "" : "--preload" }
    end

    def self.fill(text, values, template)
      text.gsub(/\{(\w+)\}/) { values.fetch(::Regexp.last_match(1)) { raise Failure, unknown(template, ::Regexp.last_match(1), values) }.to_s }
    end

    def self.unknown(template, name, values)
      "unknown placeholder {#{name}} in `#{template}`: known are #{values.keys.map { |key| "{#{key}}" }.join(' ')}"
    end

    private

    def write_config(values)
      FileUtils.mkdir_p(values["home"]) if values["home"]
      @config.each { |name, text| File.write(File.join(values["home"], name), self.class.fill(text, values, name)) }
    end

    # Spawned by another program, not forked from this process: a fork that was stopped before it had become the server would run the rest of
    # this program.
    def spawn_leader(words, dir)
      Process.spawn(@env, "setsid", *words, chdir: dir, close_others: true, in: File::NULL, %i[out err] => [@log, "a"])
    end

    def wait_until_ready(seconds)
      ready = wait(seconds) do
        raise Failure, "the server exited before it responded: #{tail}" if exited?

        begin
          yield
        rescue Errno::ECONNREFUSED, Errno::ECONNRESET, EOFError
          false
        end
      end
      raise Failure, "no response within #{seconds} s: #{tail}" unless ready
    end

    def wait(seconds)
      deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + seconds
      until (result = yield)
        return false if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

        sleep 0.02
      end
      result
    end

    def exited?
      @exited ||= !Process.wait(@pid, Process::WNOHANG).nil?
    end

    def tail
      File.readlines(@log, chomp: true).last(15).join("\n  ").prepend("its log ends with\n  ")
    rescue Errno::ENOENT
      "it logged nothing"
    end
  end
end
