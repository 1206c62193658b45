# frozen_string_literal: true

module Firebrick
  # Lets a block read databases, but not write to them: for requests that are not those of a client.
  #
  # Contract: a statement that writes raises ActiveRecord::ReadOnlyError in the block, on each connection of Active
  # Record 6.0 and newer, also inside `connected_to(role: :writing)`. With Ruby 3.2 and newer, also in fibers and in
  # threads that the block starts; after the block those may write again. Nothing else is prevented: writes by other
  # libraries, files, mails, jobs, caches.
  #
  # Why not `while_preventing_writes`: a `connected_to` of the app inside it ends it.
  module ReadOnly
    # A block that runs. Threads that it has started may outlive it, so they look here.
    class Guard
      def initialize
        @runs = true
        @refused = false
      end

      def runs?
        @runs
      end

      # Returns whether a write was refused.
      def refused?
        @refused
      end

      def refuse
        @refused = true
      end

      def over
        @runs = false
      end
    end

    # In each adapter of Active Record.
    module Adapter
      def preventing_writes?
        !ReadOnly.guard.nil? || super
      end
    end

    # In ActiveRecord::ReadOnlyError. The app may rescue it.
    module Refusal
      def initialize(*)
        ReadOnly.guard&.refuse
        super
      end
    end

    KEY = :firebrick_read_only

    class << self
      # Yields the Guard, and returns the block's value.
      def run
        install
        before = own
        guard = Guard.new
        self.own = guard
        yield guard
      ensure
        guard&.over
        self.own = before
      end

      # The same for all threads and fibers of a process that serves no client.
      def run_everywhere
        install
        @everywhere = Guard.new
        yield @everywhere
      ensure
        @everywhere = nil
      end

      # Returns the Guard of the block that runs; nil outside of one.
      def guard
        guard = @everywhere || own
        guard if guard&.runs?
      end

      # Returns whether Active Record is loaded, and can be kept from writing.
      def available?
        return false unless defined?(::ActiveRecord::ConnectionAdapters::AbstractAdapter)

        ::ActiveRecord::ConnectionAdapters::AbstractAdapter.method_defined?(:preventing_writes?)
      end

      private

      # The storage of fibers is inherited by fibers and threads. Before Ruby 3.2 there is none.
      if Fiber.respond_to?(:[])
        def own
          Fiber[KEY]
        end

        def own=(guard)
          Fiber[KEY] = guard
        end
      else
        def own
          Thread.current[KEY]
        end

        def own=(guard)
          Thread.current[KEY] = guard
        end
      end

      # An app may load Active Record late.
      def install
        return if @installed || !available?

        ::ActiveRecord::ConnectionAdapters::AbstractAdapter.prepend(Adapter)
        ::ActiveRecord::ReadOnlyError.prepend(Refusal)
        @installed = true
      end
    end
  end
end
