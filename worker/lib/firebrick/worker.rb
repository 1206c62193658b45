# frozen_string_literal: true

require "firebrick/fork_guard"
require "firebrick/heap"
require "firebrick/worker/app_lines"
require "firebrick/worker/out_of_band_gc"
require "firebrick/worker/pool"

module Firebrick
  # A forked process that serves requests. The serving itself is native (worker/native).
  class Worker
    # The signal that makes it send the front the backtraces of its serving threads.
    TRACE = "URG"
    # The signal that makes it log the backtraces of all threads.
    DUMP = Template::DUMP
    # The signals that have another meaning for a template.
    SIGNALS = [TRACE, DUMP].freeze
    # The signals that make it finish. QUIT is the graceful one of other servers, and often reaches the whole process
    # group.
    STOP = (RUBY_ENGINE == "jruby" ? %w[TERM] : %w[TERM QUIT]).freeze

    # Serves until the worker has finished. Returns nil; in a child that is to become a template, its control socket.
    def self.run(index, links, boot, pool)
      new(index, boot, pool).run(links)
    end

    def initialize(index, boot, pool)
      @index = index
      @boot = boot
      @pool = pool
      @stopping = false
      boot.serve_in(pool)
      Exchange.app_lines = AppLines.new(Dir.pwd, boot.dir)
    end

    def run(links)
      name_process
      listen_to_signals
      hooks(:after_fork)
      Native.start(@index, links, @boot.scoreboard, @boot.slot_len, @pool.shape)
      # The native part closes them from now on.
      ForkGuard.release(*links)
      answer_signals
      serve
      control = Native.promotion
      return control if control && leave_child(control)

      hooks(:before_worker_exit)
    end

    private

    def serve
      before = -> { Firebrick.run_hooks(:out_of_band) }
      collector = (OutOfBandGc.new(before: before) if @boot.out_of_band_gc?)
      Native.collect_with(collector)
      Native.stopping if @stopping
      Native.serve
      collector&.stop
      # The process may become a template.
      Heap::Tracing.for(0)
    end

    # Forks when no thread serves any more. Returns true in the child.
    def leave_child(control)
      pid = ForkGuard.ours { fork }
      if pid
        IO.for_fd(control).close
      else
        Native.abandon
      end
      pid.nil?
    rescue SystemCallError, NoMemoryError => e
      Report.log("firebrick: #{Exchange.name}: no template can be forked: #{e.message}")
      false
    end

    def name_process
      Exchange.name = "worker #{@index} (pid #{Process.pid})"
      words = ["firebrick: worker #{@index}", @pool.label, ("[#{@boot.tag}]" unless @boot.tag.empty?)]
      Process.setproctitle(words.compact.join(" "))
    end

    def listen_to_signals
      STOP.each do |name|
        trap(name) do
          @stopping = true
          Native.stopping
        end
      rescue ArgumentError
        # Virtual machines reserve QUIT.
        next
      end
      # Until the thread below handles the signal, because a hook may hang.
      trap(DUMP) { Report.log(backtraces(Thread.list), level: "info") }
    end

    # Runs on a separate thread: a trap would run on the main thread, and end waits of the request that it serves.
    def answer_signals
      Native.take_signals(SIGNALS.map { |name| Signal.list[name] })
      Thread.new { loop { answer(Native.signals) } }.name = "firebrick: backtraces"
    end

    # asked:: has the bits of the signals that have come, bit 0 for a heap dump, and bit 32 for samples of a profile
    def answer(asked)
      Native.sample if asked[32] == 1
      Heap.answer if asked[0] == 1
      send_traces if asked[Signal.list[TRACE]] == 1
      dump if asked[Signal.list[DUMP]] == 1
    end

    def hooks(name)
      Firebrick.run_hooks(name, @index)
      nil
    rescue StandardError, ScriptError => e
      Report.log("firebrick: #{Exchange.name}: #{name} hook: #{Report.text(e)}")
      exit 1
    end

    # Takes up the order of a profile, if there is one, and sends the front the backtraces of the serving threads.
    def send_traces
      Native.profile
      Native.traces(Native.serving.map { |thread, link, id| [link, id, Exchange.app_lines.of(thread.backtrace.to_a)] })
    rescue StandardError, SystemStackError
      nil
    end

    def dump
      Report.log(backtraces(Thread.list | Native.serving.map(&:first)), level: "info")
    rescue StandardError
      nil
    end

    # Returns the backtraces of threads, and of the fibers that serve.
    def backtraces(them)
      prefix = "firebrick: #{Exchange.name}:"
      them.flat_map do |one|
        ["#{prefix} #{one.inspect}", *one.backtrace.to_a.map { |line| "#{prefix}     #{line}" }]
      end.join("\n")
    end
  end
end
