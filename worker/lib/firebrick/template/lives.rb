# frozen_string_literal: true

module Firebrick
  class Template
    # The successive roles of a process: a template, a worker forked by it, the template that the worker leaves
    # behind (docs/internals/processes.md). Each role begins at the bottom of the stack, so the stack does not grow
    # with the generations.
    module Lives
      # Thrown with the next role.
      NEXT = Object.new.freeze

      private

      def live(&life)
        life = catch(NEXT) { life.call } while life
      end

      def fork_worker(index, pool, descriptors)
        @children.fork_worker(index, descriptors) { throw NEXT, -> { work(index, pool, descriptors) } }
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

      # Serves as a worker. A promoted worker leaves a child that becomes a template.
      def work(index, pool, descriptors)
        control = Worker.run(index, descriptors, @boot, pool)
        throw NEXT, -> { succeed(control) } if control
      end

      # Runs a service of the app. Afterwards the process ends like any Ruby program.
      def serve_service(service, guard, streams)
        ServiceProcess.new(service, guard, streams, @boot).run
        nil
      end

      # Becomes a template, as the child of a finished worker, with that worker's memory and only this thread.
      def succeed(control)
        @control = Control.new(control, @control.links)
        ForkGuard.hold(@control)
        @control.send_message(Wire::Report::PID, Process.pid)
        Native.retire
        ignore_signals(*IGNORED, "TERM")
        Worker::SIGNALS.each { |name| trap(name, "DEFAULT") }
        tell_where_when_asked
        prepare_again
        serve_commands
      end

      def prepare_again
        # Processes started by the previous template are not this one's.
        @facts = @facts.reject { |name,| name == Wire::Booted::JOB } + @boot.run_again
        ready
      rescue Exception => e # rubocop:disable Lint/RescueException
        @control.send_message(Wire::Report::FAILED, Boot.explain(e))
        exit!(1)
      end
    end
  end
end
