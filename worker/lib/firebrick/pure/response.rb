# frozen_string_literal: true

require "firebrick/errors"
require "firebrick/pure/frames"
require "firebrick/pure/link"
require "firebrick/pure/response_frames"

module Firebrick
  module Pure
    # The frames of one response: those sent, those that wait, and the window of the front.
    #
    # Contract: the stage changes together with the sent frames, even if the thread is interrupted; once the client has
    # read the response, the response has ended here, too. The thread that serves the request calls these methods,
    # except #give and #leave (the link's reader) and #flush_waiting (the watchdog). Any thread may write the body, with
    # the writer that #open has returned; it raises IOError when that writer is no longer the response's. Few responses
    # ever wait for the front, so the responses of a link share one condition variable.
    class Response
      include ResponseFrames

      # The largest payload of a BODY frame.
      PIECE = 64 << 10
      # A body whose end is near is held back up to this size, to be sent in one frame.
      GATHERED = 128 << 10

      def self.now_us
        Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
      end

      # The number of the request's route; 0: none is known.
      attr_accessor :route
      # Its duration, when it has ended.
      attr_reader :took_us

      # worker:: its watchdog, and its inbox, which knows whether another response follows at once
      # measures:: whether to measure processor time
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
        @window = Wire::INITIAL_WINDOW
        @gone = false
        @writer = nil
        @route = 0
      end

      # Returns whether nothing of it has been sent.
      def unsent?
        @stage == :unsent
      end

      # Returns whether all of it has been sent.
      def ended?
        @stage == :ended
      end

      # Returns whether the client has disconnected.
      def gone?
        @gone
      end

      # Adds bytes to the window.
      def give(bytes)
        @link.news { @window += bytes }
      end

      # Records that the client has disconnected.
      def leave
        @link.news { @gone = true }
      end

      def check_client
        raise ClientGone, "the client has gone" if @gone && !ended?
      end

      # Sends the whole response in one frame.
      def whole(head, body = "")
        in_order { send_whole(head, body) }
      end

      # Sends the head of a response that goes on. With STREAM its body comes out of the descriptor.
      def start(head, flags = 0, descriptor = nil)
        in_order { send_head(head, "", flags, descriptor) }
      end

      # Begins a body. Returns its writer, for #chunk; writers of earlier bodies become invalid.
      def open
        in_order { @writer = Object.new }
      end

      # Ends the body: its writer becomes invalid.
      def close_writer
        in_order { @writer = nil }
        @link.news { nil }
      end

      # Sends a chunk that a body has yielded, on any thread. +gathers+: the chunk may wait for more.
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

      # Sends bytes of the body, as the window allows.
      # writer:: that of a body that may end before all bytes are sent
      def push(bytes, writer = nil)
        at = 0
        while at < bytes.bytesize
          room = reserve([PIECE, bytes.bytesize - at].min, writer)
          part = bytes.byteslice(at, room)
          in_order do
            must_be(writer)
            send_frame(Wire::Frame::BODY, part.b)
          end
          at += room
        end
      end

      # Adds bytes of a body that will end soon: they wait for more, but not for long.
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

      # Sends the waiting bytes.
      def flush(writer = nil)
        rest = in_order do
          must_be(writer)
          next send_open if unsent? && !@waiting.empty?

          @waiting.tap { @waiting = "".b }
        end
        push(rest, writer) if rest
      end

      # Sends bytes that have waited long enough, as far as the window allows. Called by the watchdog.
      def flush_waiting
        in_order do
          @watched = false
          next if @waiting.empty? || ended?
          next send_open if unsent?

          room = @link.when(-> { true }) { take_room(@waiting.bytesize) }
          send_frame(Wire::Frame::BODY, @waiting.slice!(0, room)) if room.positive?
        end
      end

      # Returns whether files can be sent as descriptors.
      def descriptors?
        @link.descriptors?
      end

      # Makes a socket for the app, and the end to send for it.
      def stream
        @link.stream
      end

      # Sends a part of a file.
      def file(descriptor, from, length)
        in_order { send_frame(Wire::Frame::FILE, [from, length].pack("Q<Q<"), Wire::Flag::FD, descriptor) }
      end

      # Hands the connection to the app. Yields for the socket to send. Returns false if it was handed over before.
      def hijack
        in_order do
          next false if @stage == :hijacked

          must_not_have_ended
          raise IOError, "rack.hijack was called after the response had begun" unless unsent?

          send_frame(Wire::Frame::HIJACK, "", Wire::Flag::FD, yield)
          @stage = :hijacked
        end
      end

      def interim(head)
        in_order do
          must_not_have_ended
          send_frame(Wire::Frame::INTERIM, head.pack) if unsent?
        end
      end

      def extend_timeout(milliseconds)
        in_order do
          must_not_have_ended
          send_frame(Wire::Frame::EXTEND, [milliseconds].pack("Q<")) if unsent?
        end
      end

      # Ends a body, of which some bytes may be waiting.
      def finish(head)
        close_writer if @writer
        in_order { send_whole(head, @waiting) if unsent? }
        return if ended?

        flush
        stop(false)
      end

      # Sends END, if it has not been sent.
      def stop(failed)
        in_order do
          send_end(failed) unless ended?
        end
      end

      # Drops the waiting bytes. Returns whether another response can still be sent.
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

      # Runs the block without interference by other threads or interrupts.
      def in_order(&block)
        Thread.handle_interrupt(Link::NEVER) { @order.synchronize(&block) }
      end

      def send_frame(kind, payload, flags = 0, descriptor = nil)
        @link.put(Frames.frame(kind, @id, payload, flags), descriptor)
      end

      # Waits for the window. Returns the number of bytes that may be sent.
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
