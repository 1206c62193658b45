# frozen_string_literal: true

require "firebrick/errors"
require "firebrick/pure/frames"
require "firebrick/pure/link"
require "firebrick/pure/response_frames"

module Firebrick
  module Pure
    # The frames of one response: what has been sent, what waits, and how much the front takes.
    #
    # Contract: the stage changes together with what is sent, whatever interrupts the thread; who has read the response
    # finds that it has ended. The thread that serves the request calls it, besides #give and #leave (the link's reader)
    # and #flush_waiting (the watchdog); the body may be written by any thread, with the writer that #open has returned,
    # and raises IOError when that is not the response's any more. Few responses ever wait for the front: those of a
    # link share what they wait on.
    class Response
      include ResponseFrames

      # BODY frames carry at most this much.
      PIECE = 64 << 10
      # So much of a body whose end is near is held back, to be sent in one frame.
      GATHERED = 128 << 10

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
        @writer = nil
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

      # A body begins. Its writer, for #chunk; that of another one is worth nothing from now on.
      def open
        in_order { @writer = Object.new }
      end

      # The body has ended, whoever still has its writer.
      def close_writer
        in_order { @writer = nil }
        @link.news { nil }
      end

      # What a body has yielded, by any thread. +gathers+: it may wait for more.
      def chunk(writer, head, part, gathers)
        must_be(writer)
        return gather(head, part, writer) if gathers && part.bytesize < PIECE

        flush(writer)
        small = part.bytesize < PIECE
        begun = in_order do
          must_be(writer)
          next false unless unsent?

          send_head(head, small ? part.b : "")
          small
        end
        push(part, writer) unless begun
        check_client
      end

      # Bytes of the body, as the front takes them.
      # writer:: that of a body whose end may come before that of the bytes
      def push(bytes, writer = nil)
        at = 0
        while at < bytes.bytesize
          room = reserve([PIECE, bytes.bytesize - at].min, writer)
          part = bytes.byteslice(at, room)
          in_order do
            must_be(writer)
            send_frame(Frames::BODY, part.b)
          end
          at += room
        end
      end

      # Bytes of a body that will soon end: they wait for more, though not for long.
      def gather(head, bytes, writer)
        in_order do
          must_be(writer)
          @head = head
          @waiting << bytes.b
          @watchdog.gathered(self) unless @watched
          @watched = true
        end
        flush(writer) if @waiting.bytesize > GATHERED
      end

      # Sends what waits.
      def flush(writer = nil)
        rest = in_order do
          must_be(writer)
          next send_open if unsent? && !@waiting.empty?

          @waiting.tap { @waiting = "".b }
        end
        push(rest, writer) if rest
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

      # A part of a file.
      def file(descriptor, from, length)
        in_order { send_frame(Frames::FILE, [from, length].pack("Q<Q<"), Frames::DESCRIPTOR, descriptor) }
      end

      # The connection is the app's from now on.
      # Yields for the socket to send. Whether it has not been before.
      def hijack
        in_order do
          next false if @stage == :hijacked

          must_not_have_ended
          raise IOError, "rack.hijack was called after the response had begun" unless unsent?

          send_frame(Frames::HIJACK, "", Frames::DESCRIPTOR, yield)
          @stage = :hijacked
        end
      end

      def interim(head)
        in_order do
          must_not_have_ended
          send_frame(Frames::INTERIM, head.pack) if unsent?
        end
      end

      def extend_timeout(milliseconds)
        in_order do
          must_not_have_ended
          send_frame(Frames::EXTEND, [milliseconds].pack("Q<")) if unsent?
        end
      end

      # The end of a body, of which something may wait.
      def finish(head)
        close_writer if @writer
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
          @writer = nil
          @waiting.clear
          unsent?
        end
      end

      private

      def must_be(writer)
        return if writer.nil? || writer.equal?(@writer)

        raise IOError, "the response has ended: nothing can be written to its body"
      end

      # Neither another thread nor an interrupt comes between.
      def in_order(&block)
        Thread.handle_interrupt(Link::NEVER) { @order.synchronize(&block) }
      end

      def send_frame(kind, payload, flags = 0, descriptor = nil)
        @link.put(Frames.frame(kind, @id, payload, flags), descriptor)
      end

      # Waits until the front takes something; how many bytes.
      def reserve(most, writer)
        @link.when(-> { @window.positive? || @gone || (writer && !writer.equal?(@writer)) }) do
          must_be(writer)
          check_client
          take_room(most)
        end
      end

      def take_room(most)
        [most, @window].min.tap { |bytes| @window -= bytes }
      end
    end
  end
end
