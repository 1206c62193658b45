# frozen_string_literal: true

require "firebrick/errors"
require "firebrick/pure/frames"
require "firebrick/pure/link"

module Firebrick
  module Pure
    # The frames of one response: what has been sent, what waits, and how much the front takes.
    #
    # Contract: the stage changes together with what is sent, whatever interrupts the thread; who has read the response
    # finds that it has ended. Only the thread that
    # serves the request calls it, but for #give and #leave (the link's reader) and #flush_waiting (the watchdog). Few
    # responses ever wait for the front: those of a link share what they wait on.
    class Response
      # BODY frames carry at most this much.
      PIECE = 64 << 10
      # So much of a body whose end is near is held back, to be sent in one frame.
      GATHERED = 128 << 10
      UNKNOWN = 0xffffffff
      # Bytes of the numbers that a RESPONSE begins with.
      RESPONSE_NUMBERS = 16
      CPU_CLOCK = (Process::CLOCK_THREAD_CPUTIME_ID if defined?(Process::CLOCK_THREAD_CPUTIME_ID))

      def self.now_us
        Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
      end

      # How long it took, when it has ended.
      attr_reader :took_us

      # worker:: its watchdog, and its inbox, which says whether another response follows at once
      # measures:: whether the processor's time is wanted
      def initialize(worker, job, started_us, measures)
        @link = job.link
        @id = job.id
        @started_us = started_us
        @watchdog = worker.watchdog
        @inbox = worker.inbox
        @cpu_from = cpu_us if measures && CPU_CLOCK
        @stage = :unsent
        @order = Mutex.new
        @waiting = "".b
        @watched = false
        @window = Frames::WINDOW
        @gone = false
      end

      # Nothing of it has been sent.
      def unsent?
        @stage == :unsent
      end

      # All of it has been sent.
      def ended?
        @stage == :ended
      end

      # The client has gone.
      def gone?
        @gone
      end

      # The front takes so many bytes more.
      def give(bytes)
        @link.news { @window += bytes }
      end

      # The client goes.
      def leave
        @link.news { @gone = true }
      end

      def check_client
        raise ClientGone, "the client has gone" if @gone && !ended?
      end

      # The whole response in one frame.
      def whole(head, body = "")
        in_order { send_whole(head, body) }
      end

      # The head of a response that goes on; with STREAM its body comes out of the descriptor.
      def start(head, flags = 0, descriptor = nil)
        in_order { send_head(head, "", flags, descriptor) }
      end

      # The head, and the first bytes of the body with it.
      def start_with(head, body)
        in_order { send_head(head, body.b) }
      end

      # Bytes of the body, as the front takes them.
      def push(bytes)
        at = 0
        while at < bytes.bytesize
          room = reserve([PIECE, bytes.bytesize - at].min)
          part = bytes.byteslice(at, room)
          in_order { send_frame(Frames::BODY, part.b) }
          at += room
        end
      end

      # Bytes of a body that will soon end: they wait for more, though not for long.
      def gather(head, bytes)
        in_order do
          @head = head
          @waiting << bytes.b
          @watchdog.gathered(self) unless @watched
          @watched = true
        end
        flush if @waiting.bytesize > GATHERED
      end

      # Sends what waits.
      def flush
        rest = in_order do
          next send_open if unsent? && !@waiting.empty?

          @waiting.tap { @waiting = "".b }
        end
        push(rest) if rest
      end

      # The watchdog sends what has waited long enough, as far as the front takes it.
      def flush_waiting
        in_order do
          @watched = false
          next if @waiting.empty? || ended?
          next send_open if unsent?

          room = @link.when(-> { true }) { take_room(@waiting.bytesize) }
          send_frame(Frames::BODY, @waiting.slice!(0, room)) if room.positive?
        end
      end

      # Whether files can be sent as such.
      def descriptors?
        @link.descriptors?
      end

      # A socket for the app, and what is sent for it.
      def stream
        @link.stream
      end

      # A part of a file, all of it.
      def file(descriptor, length)
        in_order { send_frame(Frames::FILE, [0, length].pack("Q<Q<"), Frames::DESCRIPTOR, descriptor) }
      end

      # The connection is the app's from now on.
      def hijack(descriptor)
        in_order do
          send_frame(Frames::HIJACK, "", Frames::DESCRIPTOR, descriptor)
          @stage = :hijacked
        end
      end

      def interim(head)
        in_order { send_frame(Frames::INTERIM, head.pack) if unsent? }
      end

      def extend_timeout(milliseconds)
        in_order { send_frame(Frames::EXTEND, [milliseconds].pack("Q<")) if unsent? }
      end

      # The end of a body, of which something may wait.
      def finish(head)
        in_order { send_whole(head, @waiting) if unsent? }
        return if ended?

        flush
        stop(false)
      end

      # END, if it has not been sent.
      def stop(failed)
        in_order do
          next if ended?

          bytes = times
          @stage = :ended
          send_frame(Frames::FINISH, bytes, failed ? Frames::FAILED : 0)
        end
      end

      # What waits is not sent. Whether the response can still be another one.
      def take_back
        in_order do
          @waiting.clear
          unsent?
        end
      end

      private

      # Neither another thread nor an interrupt comes between.
      def in_order(&block)
        Thread.handle_interrupt(Link::NEVER) { @order.synchronize(&block) }
      end

      def send_frame(kind, payload, flags = 0, descriptor = nil)
        @link.put(Frames.frame(kind, @id, payload, flags), descriptor)
      end

      def send_whole(head, body)
        bytes = response(head, body, Frames::WHOLE)
        @stage = :ended
        return @link.put(bytes) unless @inbox.goes_on?

        @link.hold(bytes)
        @watchdog.look(@inbox)
      end

      def send_head(head, body, flags = 0, descriptor = nil)
        flags |= Frames::DESCRIPTOR if descriptor
        bytes = response(head, body, flags)
        @stage = :begun
        @link.put(bytes, descriptor)
      end

      # RESPONSE, all numbers packed at once.
      def response(head, body, flags)
        fields = head.fields
        numbers = [RESPONSE_NUMBERS + fields.bytesize + body.bytesize, Frames::RESPONSE, flags, 0, @id,
                   head.status, head.count, take_time, cpu_took_us, UNKNOWN]
        numbers.pack("VCCvVvvV3") << fields << body
      end

      def send_open
        send_head(@head, @waiting)
        @waiting = "".b
        nil
      end

      # Waits until the front takes something; how many bytes.
      def reserve(most)
        @link.when(-> { @window.positive? || @gone }) do
          check_client
          take_room(most)
        end
      end

      def take_room(most)
        [most, @window].min.tap { |bytes| @window -= bytes }
      end

      def times
        [take_time, cpu_took_us, UNKNOWN].pack("V3")
      end

      def take_time
        took = Response.now_us - @started_us
        @took_us = took < UNKNOWN ? took : UNKNOWN - 1
      end

      def cpu_took_us
        @cpu_from ? cpu_us - @cpu_from : UNKNOWN
      end

      def cpu_us
        Process.clock_gettime(CPU_CLOCK, :microsecond)
      end
    end
  end
end
