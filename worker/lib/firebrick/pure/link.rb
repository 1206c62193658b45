# frozen_string_literal: true

require "firebrick/pure/descriptors"
require "firebrick/pure/frames"

module Firebrick
  module Pure
    # A received request.
    class Job
      attr_reader :link, :id, :payload
      # The number of the body's descriptor, which may come later.
      attr_accessor :descriptor
      # Whether its client disconnected before it was taken up; why its body could not be stored.
      attr_accessor :gone, :error

      def initialize(link, id, payload, descriptor)
        @link = link
        @id = id
        @payload = payload
        @descriptor = descriptor
        @gone = false
      end

      # Drops a request that will not be served.
      def discard
        IO.for_fd(descriptor).close if descriptor
      end
    end

    # One socket to a front thread, with a thread that reads it and cuts frames, and its unsent frames.
    #
    # Contract: `passed` and `closed` are changed only under the inbox's lock. Frames are written in the order in which
    # they were given. While one thread writes, other threads leave their frames to it: a write wakes the front, which
    # may take over this thread's processor, and no other thread should wait for that.
    class Link
      # Defers even the kill of a thread.
      NEVER = { Object => :never }.freeze

      attr_reader :number
      # The number of requests taken up or discarded; whether RETURNED has been sent and RESUME has not come.
      attr_accessor :passed, :closed
      # Whether the front knows the name of a route, by the route's number. Of full length, because in JRuby several
      # threads must not write an Array that grows.
      attr_reader :routes
      # The Upload in progress.
      attr_accessor :upload

      def initialize(number, transport)
        @number = number
        @transport = transport
        @lock = Mutex.new
        @turn = ConditionVariable.new
        @waiting = []
        @writing = false
        @news_lock = Mutex.new
        @news = ConditionVariable.new
        @passed = 0
        @closed = false
        @routes = Array.new(Wire::Route::MOST + 1)
      end

      # Returns whether descriptors can be sent and received.
      def descriptors?
        @transport.descriptors?
      end

      # Makes a socket for the app, and the end to send for it.
      def stream
        @transport.stream
      end

      # Starts the reader, which passes each frame to +worker+, in order.
      def start(worker)
        Thread.new { read_all(worker) }
      end

      # Sends a frame, with its descriptor if there is one. Cannot be interrupted: half a frame would break the link.
      def send_frame(bytes, descriptor = nil)
        Thread.handle_interrupt(NEVER) { put(bytes, descriptor) }
      end

      # Does the same for callers that cannot be interrupted. When this returns, a descriptor has been sent.
      def put(bytes, descriptor = nil)
        return put_with(bytes, descriptor) if descriptor

        write_all if @lock.synchronize { first_to_wait?(bytes) }
      end

      # Adds a frame that may wait: until #flush, or until another frame is written.
      def hold(bytes)
        @lock.synchronize { @waiting << bytes }
      end

      # Writes the held frames.
      def flush
        return unless waiting?

        Thread.handle_interrupt(NEVER) do
          write_all if @lock.synchronize { !@writing && !@waiting.empty? && (@writing = true) }
        end
      end

      # Returns whether frames are held. A thread always sees the frames that it has held.
      def waiting?
        !@waiting.empty?
      end

      # Changes state that a response of this link may wait for.
      def news
        @news_lock.synchronize do
          yield
          @news.broadcast
        end
      end

      # Waits until the condition holds, and calls the block with it still true.
      def when(condition)
        @news_lock.synchronize do
          @news.wait(@news_lock) until condition.call
          yield
        end
      end

      # Closes the link in a child that the app has forked.
      def close
        @transport.close
      rescue IOError
        nil
      end

      private

      # Adds a frame. Returns whether the caller has to write.
      def first_to_wait?(bytes)
        @waiting << bytes
        mine = !@writing
        @writing = true
        mine
      end

      def put_with(bytes, descriptor)
        @lock.synchronize do
          @turn.wait(@lock) while @writing
          @writing = true
        end
        write(bytes, descriptor)
        write_all
      end

      # Writes until there are no more frames.
      def write_all
        while (frames = @lock.synchronize { take_waiting })
          write(frames.length == 1 ? frames.first : frames.join, nil)
        end
      end

      def write(bytes, descriptor)
        @transport.write(bytes, descriptor)
      rescue SystemCallError, IOError
        # The front is gone. The reader finds out, too.
        nil
      end

      def take_waiting
        if @waiting.empty?
          @writing = false
          @turn.signal
          nil
        else
          @waiting.tap { @waiting = [] }
        end
      end

      def read_all(worker)
        rest = nil
        while (more = @transport.read)
          rest = cut(rest ? rest << more : more, worker)
        end
        worker.front_gone
      rescue Malformed => e
        worker.protocol_error(e)
      rescue SystemCallError, IOError
        worker.front_gone
      end

      # Passes the frames in +bytes+ to the worker. Returns the rest: the beginning of a frame, or nil.
      def cut(bytes, worker)
        at = 0
        while bytes.bytesize - at >= Wire::HEADER
          length = Frames.length(bytes, at)
          break if bytes.bytesize - at < Wire::HEADER + length

          receive(bytes, at, length, worker)
          at += Wire::HEADER + length
        end
        bytes.byteslice(at, bytes.bytesize - at) if at < bytes.bytesize
      end

      def receive(bytes, at, length, worker)
        flags = bytes.getbyte(at + 5)
        payload = bytes.byteslice(at + Wire::HEADER, length)
        worker.receive(self, bytes.getbyte(at + 4), Frames.number(bytes, at + 8), payload, descriptor(flags))
      end

      def descriptor(flags)
        return if (flags & Wire::Flag::FD).zero?

        @transport.take || raise(Malformed, "flag FD without a descriptor")
      end
    end
  end
end
