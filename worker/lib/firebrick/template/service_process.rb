# frozen_string_literal: true

module Firebrick
  class Template
    # A process that runs the block of a service. It has the template's memory, but neither its sockets nor its signal
    # handlers.
    class ServiceProcess
      # service:: a Firebrick::Service
      # guard:: the process id of its parent
      # streams:: pipes for standard output and standard error; empty to keep them
      # boot:: the template's Boot
      def initialize(service, guard, streams, boot)
        @service = service
        @guard = guard
        @streams = streams
        @boot = boot
      end

      # Returns when the block does. An exception is reported; then the exit code is 1.
      def run
        leave_template
        name_process
        @service.run
        nil
      rescue StandardError, ScriptError, NoMemoryError, SystemStackError => e
        Report.log(Report.text(e))
        exit 1
      end

      private

      def leave_template
        Process.setpgid(0, 0)
        Native.parent_death_signal(Signal.list["KILL"])
        # The guard has exited before the signal was requested.
        exit!(1) unless Process.ppid == @guard
        IO.for_fd(@boot.scoreboard).close
        redirect
        [*IGNORED, "TERM", *Worker::SIGNALS].uniq.each { |name| trap(name, "DEFAULT") }
      end

      def redirect
        $stdin.reopen(File::NULL)
        [$stdout, $stderr].zip(@streams) { |stream, pipe| stream.reopen(pipe) if pipe }
        @streams.each(&:close)
        [$stdout, $stderr].each { |stream| stream.sync = true }
      end

      def name_process
        Exchange.name = "service #{@service.name} (pid #{Process.pid})"
        title = ["firebrick: service #{@service.name}", ("[#{@boot.tag}]" unless @boot.tag.empty?)]
        Process.setproctitle(title.compact.join(" "))
      end
    end
  end
end
