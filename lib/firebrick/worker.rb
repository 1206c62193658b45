# frozen_string_literal: true

require "firebrick/worker/fork_guard"

module Firebrick
  # A forked process that serves requests. The serving is native (ext/worker); this is its frame.
  class Worker
    # Backtraces name this library's files so.
    OWN = "#{__dir__}/".freeze

    def self.run(index, links, boot)
      new(index, boot).run(links)
    end

    def initialize(index, boot)
      @index = index
      @boot = boot
      @stopping = false
      @prefixes = [Dir.pwd, boot.dir].uniq.map { |dir| "#{dir.chomp('/')}/" }
    end

    def run(links)
      introduce
      listen_to_signals
      hooks(:after_fork)
      Process.singleton_class.prepend(ForkGuard)
      Native.start(@index, links, @boot.scoreboard, @boot.slot_len)
      Native.stopping if @stopping
      Native.serve
      hooks(:before_worker_exit)
    end

    private

    def introduce
      Exchange.name = "worker #{@index} (pid #{Process.pid})"
      Process.setproctitle(["firebrick: worker #{@index}", *("[#{@boot.tag}]" unless @boot.tag.empty?)].join(" "))
    end

    def listen_to_signals
      trap("TERM") do
        @stopping = true
        Native.stopping
      end
      trap("URG") { tell_traces }
      trap(Signal.list.key?("PWR") ? "PWR" : "INFO") { Report.log(backtraces) }
    end

    def hooks(name)
      Firebrick.run_hooks(name, @index)
    rescue StandardError, ScriptError => e
      Report.log("firebrick: #{Exchange.name}: #{name} hook: #{Report.text(e)}")
      exit 1
    end

    # Where the threads are that serve requests, for the front. Runs in whatever the main thread is at, so nothing may
    # come out of it.
    def tell_traces
      Native.traces(Native.serving.map { |thread, link, id| [link, id, app_lines(thread.backtrace.to_a)] })
    rescue StandardError, SystemStackError
      nil
    end

    # What is the app's: neither this handler, at the inner end, nor what has called the app. Paths begin at the
    # app's folder.
    def app_lines(lines)
      own = ->(line) { line.start_with?(OWN) }
      lines.drop_while(&own).take_while { |line| !own[line] }.map do |line|
        prefix = @prefixes.find { |dir| line.start_with?(dir) }
        prefix ? line.delete_prefix(prefix) : line
      end
    end

    def backtraces
      prefix = "firebrick: #{Exchange.name}:"
      Thread.list.flat_map do |thread|
        ["#{prefix} #{thread.inspect}", *thread.backtrace.to_a.map { |line| "#{prefix}     #{line}" }]
      end.join("\n")
    end
  end
end
