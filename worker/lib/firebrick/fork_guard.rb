# frozen_string_literal: true

module Firebrick
  # Closes the descriptors that connect a template or worker with the front in each process that the app forks from it.
  # Otherwise the front would wait for a process that is gone, and two processes would send responses. Programs that the
  # app starts by exec do not inherit them anyway.
  module ForkGuard
    @held = []
    @ours = nil

    class << self
      # Adds descriptors, as numbers or objects that respond to close. Makes a new Array each time: a fork may come at
      # any moment.
      def hold(*descriptors)
        Process.singleton_class.prepend(self)
        @held += descriptors.compact
      end

      # Removes descriptors that are closed, or managed elsewhere.
      def release(*descriptors)
        @held -= descriptors
      end

      def release_all
        @held = []
      end

      # Runs the block. Processes that this thread forks in it are Firebrick's own and keep all descriptors.
      def ours
        @ours = Thread.current
        yield
      ensure
        @ours = nil
      end

      # Runs in every forked child.
      def forked
        return if @ours.equal?(Thread.current)

        Native.abandon
        Heap::Tracing.forked if defined?(Heap::Tracing)
        held = @held
        # Their numbers may be reused for other descriptors.
        @held = []
        held.each { |descriptor| give_up(descriptor) }
      end

      private

      def give_up(descriptor)
        (descriptor.is_a?(Integer) ? IO.for_fd(descriptor) : descriptor).close
      rescue SystemCallError, IOError
        # The descriptor was closed before.
        nil
      end
    end

    def _fork
      super.tap { |pid| ForkGuard.forked if pid.zero? }
    end
  end
end
