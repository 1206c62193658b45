# frozen_string_literal: true

module Firebrick
  class Worker
    # Full garbage collections between requests (`rack.out_of_band_gc`): says when one is due, and does it. The native
    # worker asks after each collection, full or not.
    #
    # Since 3.4 Ruby can be told to make no full collection by itself and to say when it would have made one. Before
    # that one is due when Ruby is near the limits at which it makes it, so most are made here, and the others during
    # requests.
    class OutOfBandGc
      # Seconds that a due collection waits for its turn. Then Ruby may make it during a request, so that memory does
      # not grow without limit.
      PATIENCE = 30
      # How near the limits of Ruby before 3.4.
      NEAR = 0.8
      LIMITS = { old_objects: :old_objects_limit, oldmalloc_increase_bytes: :oldmalloc_increase_bytes_limit }.freeze

      # before:: called before a collection; it may make it
      def initialize(ruby = GC, before: -> {}, clock: -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) })
        @ruby = ruby
        @before = before
        @clock = clock
        @holds_back = ruby.respond_to?(:config) && ruby.config.key?(:rgengc_allow_full_mark)
        settle
      end

      # Whether a full collection is due.
      def due?
        # Ruby has made one.
        settle if @ruby.stat(:major_gc_count) != @made
        return false unless near?

        @since ||= @clock.call
        allow(true) if @clock.call - @since >= PATIENCE
        true
      end

      # Makes it, unless it is not due any more. Returns whether it did.
      def collect
        return false unless due?

        allow(true)
        @before.call
        @ruby.start if @ruby.stat(:major_gc_count) == @made
        settle
        true
      end

      # Leaves collections to Ruby again.
      def stop
        allow(true)
      end

      private

      def near?
        return !@ruby.latest_gc_info(:need_major_by).nil? if @holds_back

        LIMITS.any? { |figure, limit| @ruby.stat(figure) >= @ruby.stat(limit) * NEAR }
      end

      def settle
        @made = @ruby.stat(:major_gc_count)
        @since = nil
        allow(false)
      end

      def allow(full)
        return if !@holds_back || @allowed == full

        @allowed = full
        @ruby.config(rgengc_allow_full_mark: full)
      end
    end
  end
end
