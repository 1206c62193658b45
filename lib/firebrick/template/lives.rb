# frozen_string_literal: true

module Firebrick
  class Template
    # What a process is, one after the other: a template, a worker that it has forked, the template that this leaves
    # behind (docs/processes.md). Each life begins at the bottom of the stack, which so does not grow with the
    # generations.
    module Lives
      # Thrown with the next life.
      NEXT = Object.new.freeze

      private

      def live(&life)
        life = catch(NEXT) { life.call } while life
      end

      def fork_worker(index, descriptors)
        @children.fork_worker(index, descriptors) { throw NEXT, -> { work(index, descriptors) } }
      end

      def fork_service(words, descriptors)
        guard = GuardProcess.new(words, descriptors)
        guard.attempt do
          service = Firebrick.services.fetch(guard.name)
          @children.fork_guard do
            guard.run(service.prefix) { |*child| throw NEXT, -> { serve_service(service, *child) } }
          end
        end
      end

      # A worker. When it has been promoted, it leaves a child that becomes a template.
      def work(index, descriptors)
        control = Worker.run(index, descriptors, @boot)
        throw NEXT, -> { succeed(control) } if control
      end

      # A service of the app. What follows is the end of the process, as of any Ruby program.
      def serve_service(service, guard, streams)
        ServiceProcess.new(service, guard, streams, @boot).run
        nil
      end

      # The child of a worker that has finished: it has that worker's memory, and no thread but this one.
      def succeed(control)
        @control = Control.new(control, @control.links)
        ForkGuard.hold(@control)
        @control.send_message("pid", Process.pid)
        Native.retire
        ignore_signals(*IGNORED, "TERM")
        Worker::SIGNALS.each { |name| trap(name, "DEFAULT") }
        tell_where_when_asked
        prepare_again
        serve_commands
      end

      def prepare_again
        # What the template before has started is not started by this one.
        @facts = @facts.reject { |name,| name == "job" } + @boot.run_again
        ready
      rescue Exception => e # rubocop:disable Lint/RescueException
        @control.send_message("failed", Boot.explain(e))
        exit!(1)
      end
    end
  end
end
