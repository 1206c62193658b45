# frozen_string_literal: true

module Firebrick
  # A process that the app forks from a template or a worker must keep none of the descriptors by which those and the
  # front know each other: the front would wait for answers of a process that is gone, and two processes would send
  # responses. What the app starts by exec keeps none anyway.
  module ForkGuard
    @held = []
    @ours = nil

    class << self
      # Descriptors, as numbers or objects that respond to close. A new Array each time: a fork may come at any moment.
      def hold(*descriptors)
        Process.singleton_class.prepend(self)
        @held += descriptors.compact
      end

      # They are closed, or others look after them.
      def release(*descriptors)
        @held -= descriptors
      end

      def release_all
        @held = []
      end

      # What this thread forks in the block is a process of ours, which keeps all.
      def ours
        @ours = Thread.current
        yield
      ensure
        @ours = nil
      end

      # In a child, whoever has forked it.
      def forked
        return if @ours.equal?(Thread.current)

        Native.abandon
        held = @held
        # Their numbers may be given to other descriptors.
        @held = []
        held.each { |descriptor| give_up(descriptor) }
      end

      private

      def give_up(descriptor)
        (descriptor.is_a?(Integer) ? IO.for_fd(descriptor) : descriptor).close
      rescue SystemCallError, IOError
        # It was closed before.
        nil
      end
    end

    def _fork
      super.tap { |pid| ForkGuard.forked if pid.zero? }
    end
  end
end
