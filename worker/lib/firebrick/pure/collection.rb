# frozen_string_literal: true

require "firebrick/pure/frames"

module Firebrick
  module Pure
    # Full garbage collections between requests: reports when one is due, and runs it on order.
    class Collection
      # collector:: decides (Worker::OutOfBandGc); nil: collections are left to Ruby
      # link:: the first link
      def initialize(collector, link)
        @collector = collector
        @link = link
        @seen = 0
        @told = false
      end

      # Reports once, after a request, that a collection is due.
      def check
        return if @collector.nil? || @seen == GC.count

        @seen = GC.count
        return if @told || !@collector.due?

        @told = true
        @link.send_frame(Frames.frame(Wire::Frame::DUE))
      end

      def run
        @told = false
        started_us = Response.now_us
        collected = begin
          @collector&.collect
        rescue StandardError => e
          Firebrick::Exchange.interrupted(e)
        end
        took_us = collected ? [Response.now_us - started_us, 1].max : 0
        @link.send_frame(Frames.frame(Wire::Frame::COLLECTED, 0, [took_us].pack("Q<")))
      end
    end
  end
end
