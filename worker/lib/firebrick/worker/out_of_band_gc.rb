# frozen_string_literal: true

module Firebrick
  class Worker
    # Full garbage collections between requests (`rack.out_of_band_gc`): decides when one is due, and runs it. The
    # native worker calls it after each collection, full or not.
    #
    # Since 3.4 Ruby can leave full collections to the program, and reports when it would have run one. With older
    # Rubies one is due when Ruby is near the limits at which it runs one. So most run here, and the others during
    # requests.
    class OutOfBandGc
      # Seconds that a due collection waits for its turn. After that Ruby may run it during a request, so that memory
      # does not grow without limit.
      PATIENCE = 30
      # The share of the limits at which one is due, before Ruby 3.4.
      NEAR = 0.8
      LIMITS = { old_objects: :old_objects_limit, oldmalloc_increase_bytes: :oldmalloc_increase_bytes_limit }.freeze

      # before:: called before a collection; it may run the collection itself
      def initialize(ruby = GC, before: -> {}, clock: -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) })
        @ruby = ruby
        @before = before
        @clock = clock
        @holds_back = ruby.respond_to?(:config) && ruby.config.key?(:rgengc_allow_full_mark)
        settle
      end

      # Returns whether a full collection is due.
      def due?
        # Ruby has run one.
        settle if @ruby.stat(:major_gc_count) != @made
        return false unless near?

        @since ||= @clock.call
        allow(true) if @clock.call - @since >= PATIENCE
        true
      end

      # Runs the collection, unless it is no longer due. Returns whether it did.
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
