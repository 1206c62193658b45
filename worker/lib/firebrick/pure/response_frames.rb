# frozen_string_literal: true

require "firebrick/pure/frames"
require "firebrick/pure/route_names"

module Firebrick
  module Pure
    # The frames of a response that contain its head or its times. A part of Response; all methods are called under its
    # lock.
    module ResponseFrames
      # Bytes of the numbers at the start of a RESPONSE.
      RESPONSE_NUMBERS = 16
      CPU_CLOCK = (Process::CLOCK_THREAD_CPUTIME_ID if defined?(Process::CLOCK_THREAD_CPUTIME_ID))

      private

      def must_not_have_ended
        raise IOError, "the request has ended" if ended?
      end

      def send_whole(head, body)
        announce_route
        bytes = response(head, body, Wire::Flag::WHOLE)
        @stage = :ended
        return @link.put(bytes) unless @inbox.goes_on?

        @link.hold(bytes)
        @watchdog.look(@inbox)
      end

      def send_head(head, body, flags = 0, descriptor = nil)
        flags |= Wire::Flag::FD if descriptor
        announce_route
        bytes = response(head, body, flags)
        @stage = :begun
        @link.put(bytes, descriptor)
      end

      # Encodes RESPONSE. All numbers are packed at once.
      def response(head, body, flags)
        fields = head.fields
        numbers = [RESPONSE_NUMBERS + fields.bytesize + body.bytesize, Wire::Frame::RESPONSE, flags, @route,
                   @id, head.status, head.count, take_time, cpu_took_us, Wire::UNKNOWN_TIME]
        numbers.pack("VCCvVvvV3") << fields << body
      end

      def send_open
        send_head(@head, @waiting)
        @waiting = "".b
        nil
      end

      # Sends the name of the route, unless the front knows it. It may come twice, from two threads.
      def announce_route
        return if @route.zero? || @link.routes[@route]

        @link.put(Frames.routed(Frames.frame(Wire::Frame::ROUTE, 0, RouteNames.name(@route).b), @route))
        @link.routes[@route] = true
      end

      def send_end(failed)
        announce_route
        bytes = Frames.frame(Wire::Frame::FINISH, @id, times, failed ? Wire::Flag::FAILED : 0)
        @stage = :ended
        @link.put(Frames.routed(bytes, @route))
      end

      def times
        [take_time, cpu_took_us, Wire::UNKNOWN_TIME].pack("V3")
      end

      def take_time
        took = Response.now_us - @started_us
        @took_us = took < Wire::UNKNOWN_TIME ? took : Wire::UNKNOWN_TIME - 1
      end

      def cpu_took_us
        @cpu_from ? cpu_us - @cpu_from : Wire::UNKNOWN_TIME
      end

      def cpu_us
        Process.clock_gettime(CPU_CLOCK, :microsecond)
      end
    end
  end
end
