# frozen_string_literal: true

module Firebrick
  class Template
    # A process that a template forks for a service of the app. It forks the service in turn, and becomes its guard by
    # exec (docs/internals/processes.md). So the service is the guard's child, as a command would be, but with the
    # template's memory.
    class GuardProcess
      # Its exit code when it cannot become a guard.
      FAILED = 127

      attr_reader :name

      # words:: name, path of the guard's program (empty: use its descriptor), and the guard's arguments
      # descriptors:: the guard's standard input, and its program
      def initialize(words, descriptors)
        @name, @path, *@arguments = words
        @socket, @program = descriptors.zip(%w[r+b rb]).map { |descriptor, mode| IO.for_fd(descriptor, mode) }
      end

      # Runs the block in the template. Reports an exception to the front, as a guard would.
      def attempt
        yield
      rescue SystemCallError, NoMemoryError, KeyError => e
        refuse e
      ensure
        [@socket, @program].each(&:close)
      end

      # Yields in the service, which must not return, with the guard's process id and the pipes for its output.
      def run(prefix, &block)
        Process.setpgid(0, 0)
        pipes = prefix ? [IO.pipe, IO.pipe] : []
        service = fork_service(pipes, &block)
        pipes.each { |_, writer| writer.close }
        become_guard([*@arguments, service.to_s], pipes.map(&:first))
      rescue SystemCallError, NoMemoryError => e
        Process.kill("KILL", service) if service
        refuse e
        exit!(FAILED)
      end

      private

      def refuse(error)
        @socket.write("#{Wire::Guard::FAILED} #{error.message.tr("\n", ' ')}\n")
      rescue SystemCallError
        # The front no longer needs the report.
        nil
      end

      def fork_service(pipes)
        guard = Process.pid
        pid = fork
        return pid if pid

        [@socket, @program, *pipes.map(&:first)].each(&:close)
        yield guard, pipes.map(&:last)
      end

      def become_guard(arguments, readers)
        path = @path.empty? ? "/proc/self/fd/#{@program.fileno}" : @path
        arguments.concat(readers.map { |reader| reader.fileno.to_s })
        exec([path, "firebrick"], *arguments, in: @socket, **readers.to_h { |one| [one, one] }, close_others: true)
      end
    end
  end
end
