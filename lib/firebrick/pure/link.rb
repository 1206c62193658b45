# frozen_string_literal: true

require "firebrick/pure/descriptors"
require "firebrick/pure/frames"

module Firebrick
  module Pure
    # A received request. +descriptor+ is the number of that of its body.
    Job = Struct.new(:link, :id, :payload, :descriptor, :gone) do
      # Nobody will serve it.
      def discard
        IO.for_fd(descriptor).close if descriptor
      end
    end

    # One socket to a front thread: a thread that reads it and cuts frames, a lock around writes.
    #
    # Contract: `passed`, `closed` and `exchanges` are changed under the worker's lock only.
    class Link
      # Not even when the app kills the thread.
      NEVER = { Object => :never }.freeze

      attr_reader :number, :exchanges
      # How many requests have been taken up or discarded; whether RETURNED has been sent and RESUME not come.
      attr_accessor :passed, :closed

      def initialize(number, transport)
        @number = number
        @transport = transport
        @lock = Mutex.new
        @news_lock = Mutex.new
        @news = ConditionVariable.new
        @exchanges = {}
        @passed = 0
        @closed = false
      end

      # Gives each frame to +worker+, in order.
      def start(worker)
        Thread.new { read_all(worker) }
      end

      # Sends a frame, with the descriptor if there is one. Not interrupted: half a frame would be the end of the link.
      def send_frame(bytes, descriptor = nil)
        Thread.handle_interrupt(NEVER) do
          @lock.synchronize { @transport.write(bytes, descriptor) }
        end
      rescue SystemCallError, IOError
        # The front has gone, which the reader sees, too.
        nil
      end

      # Changes what a response of this link may wait for.
      def news
        @news_lock.synchronize do
          yield
          @news.broadcast
        end
      end

      # Waits until the condition holds, and does something with it.
      def when(condition)
        @news_lock.synchronize do
          @news.wait(@news_lock) until condition.call
          yield
        end
      end

      # In a child that the app has forked.
      def close
        @transport.close
      rescue IOError
        nil
      end

      private

      def read_all(worker)
        bytes = "".b
        while (more = @transport.read)
          bytes << more
          cut(bytes, worker)
        end
        worker.front_gone
      rescue Malformed => e
        worker.protocol_error(e)
      rescue SystemCallError, IOError
        worker.front_gone
      end

      def cut(bytes, worker)
        at = 0
        while bytes.bytesize - at >= Frames::HEADER
          kind, flags, id, length = Frames.header(bytes.byteslice(at, Frames::HEADER))
          break if bytes.bytesize - at < Frames::HEADER + length

          payload = bytes.byteslice(at + Frames::HEADER, length)
          at += Frames::HEADER + length
          worker.receive(self, kind, id, payload, descriptor(flags))
        end
        at == bytes.bytesize ? bytes.clear : bytes.replace(bytes.byteslice(at..-1))
      end

      def descriptor(flags)
        return if (flags & Frames::DESCRIPTOR).zero?

        @transport.take || raise(Malformed, "flag FD without a descriptor")
      end
    end
  end
end
