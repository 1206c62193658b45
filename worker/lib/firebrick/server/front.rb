# frozen_string_literal: true

module Firebrick
  class Server
    # The front as a child of this process.
    class Front
      # Variables that a service manager passes to the process that it has started, not to that process's children.
      NOT_INHERITED = %w[LISTEN_FDS LISTEN_PID LISTEN_FDNAMES NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID]
                      .to_h { |name| [name, nil] }.freeze

      # Matches the program's format of system errors.
      SYSTEM_ERROR = /: [^:]* \(os error (\d+)\)/.freeze

      # Seconds that the front has for ending.
      GRACE = 7.0

      attr_reader :pid

      # Converts the error message of a front to an exception.
      def self.error(text)
        number = text[SYSTEM_ERROR, 1]
        number ? SystemCallError.new(text.sub(SYSTEM_ERROR, ""), Integer(number)) : Error.new(text)
      end

      # Checks the version of the protocol. A mismatch would show only as failing requests.
      def self.check_wire(wanted)
        ours = Native.wire.to_s
        return if ours == wanted

        raise Error, "the program speaks version #{wanted} of its wire, the library in #{__dir__} version #{ours}: " \
                     "they are of different builds. Build both (`make build`), or install the gem again"
      end

      def initialize(arguments)
        @arguments = arguments
      end

      # Returns the path of a file in the front's folder, which this process may not be in.
      def path(name)
        dir = @arguments.dir
        File.identical?(dir, ".") ? name : File.expand_path(name, dir)
      end

      # Starts the process. Returns the socket to it.
      def start
        ours, theirs = UNIXSocket.pair
        spawn_with(theirs)
        ours.autoclose = false
        Template::Control.new(ours.fileno)
      rescue SystemCallError => e
        ours&.close
        raise Error, "the program cannot be started: #{e.message}"
      ensure
        theirs&.close
      end

      # Waits until the process has ended, which it does when its socket closes; kills it if that takes too long.
      # Returns its status; nil when other code has waited for it.
      def wait(grace = GRACE)
        return unless @pid

        limit = now + grace
        until (found = Process.wait2(@pid, Process::WNOHANG))
          Process.kill("KILL", @pid) if now > limit
          sleep 0.005
        end
        found.last
      rescue Errno::ECHILD, Errno::ESRCH
        nil
      end

      # Describes how it has ended, for log messages.
      def describe(status)
        how = status.signaled? ? "by signal #{status.termsig}" : "with exit code #{status.exitstatus}"
        "its front (pid #{@pid}) has ended #{how}"
      end

      private

      # Spawns the process. It is not a fork, so no Ruby code of this process runs there.
      def spawn_with(socket)
        program = [Binary.find, "firebrick"]
        @pid = Process.spawn(NOT_INHERITED, program, *@arguments.to_a, in: socket, chdir: @arguments.dir)
      end

      def now
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
