# frozen_string_literal: true

module Firebrick
  class Heap
    # Writes the heap of the worker, in a child that was forked for this.
    #
    # Contract: it answers nothing. It gives up the links, its sockets and files become /dev/null, no code of the app
    # runs in it (`_fork` hooks, finalizers, `at_exit`), and signals have their default meanings.
    class Writer
      # The kernel takes the child first when memory runs out.
      OOM_SCORE = "1000"
      SIGNALS = %w[TERM QUIT INT HUP USR1 USR2 URG TTIN TTOU].freeze

      # worker:: its process id
      def initialize(pipe, lines, worker)
        @pipe = pipe
        @lines = lines
        @worker = worker
      end

      # Does not return. stopped:: the duration of the fork, in seconds
      def run(stopped)
        prepare
        @lines.tell("stopped_us", (stopped * 1e6).round)
        dump
        exit!(0)
      rescue Exception => e # rubocop:disable Lint/RescueException
        @lines.tell("error", "the dump failed: #{e.class}: #{e.message}")
      ensure
        exit!(1)
      end

      private

      def prepare
        Native.parent_death_signal(Signal.list["KILL"])
        # The worker has ended before the signal was requested.
        exit!(1) unless Process.ppid == @worker
        Native.abandon
        SIGNALS.each { |name| trap(name, "DEFAULT") }
        Native.shed_descriptors(@pipe.fileno)
        Process.setproctitle("firebrick: heap dump of #{Exchange.name}")
        give_way
      end

      def give_way
        File.write("/proc/self/oom_score_adj", OOM_SCORE)
        Process.setpriority(Process::PRIO_PROCESS, 0, 10)
      rescue SystemCallError, NotImplementedError
        nil
      end

      def dump
        @lines.tell_figures("before")
        forget_finalizers
        GC.start
        @lines.tell_figures("after")
        Tracing.on? ? dump_with_routes : ObjectSpace.dump_all(output: @pipe)
        @lines.tell("done", true)
      end

      # The native part copies the dump, and adds the route of each object to its line.
      def dump_with_routes
        output = IO.for_fd(Native.add_routes(@pipe.fileno), "wb")
        output.sync = true
        ObjectSpace.dump_all(output: output)
        output.close
        Native.routes_added
      end

      # The collection that follows must not run them: the worker's own objects have the same.
      def forget_finalizers
        frozen = Kernel.instance_method(:frozen?)
        ObjectSpace.each_object(BasicObject) do |one|
          ObjectSpace.undefine_finalizer(one) unless frozen.bind_call(one)
        end
      end
    end
  end
end
