# frozen_string_literal: true

require "firebrick/hub/listener_connection"

module Firebrick
  module Hub
    # Listens to streams, for WebSockets that this process holds itself.
    #
    # Contract: each message comes once and in order, on a thread of the listener. If the connection ends, because the
    # server is replaced or stops, the listener connects again and gets what it has missed; if that is no longer
    # kept, the log says so. A process that was forked begins without streams.
    class Listener
      PAUSE = 0.05
      # Commands without an answer while all streams begin again: more might fill the buffers of both directions.
      UNANSWERED = 50

      # A stream, the place up to which it has been read, blocks that wait for its beginning, and the connection that
      # has asked for it.
      Stream = Struct.new(:name, :epoch, :offset, :ready, :connection)

      # deliver:: is called with the name of the stream and the message, which is JSON
      def initialize(path, logger, &deliver)
        @path = path
        @logger = logger
        @deliver = deliver
        @lock = Mutex.new
        begin_anew
      end

      # Begins to listen. The block is called when all later messages will come.
      def add(name, &ready)
        stream = @lock.synchronize do
          begin_anew unless @pid == Process.pid
          @thread ||= Thread.new { run }
          known = @streams[name] ||= Stream.new(name, nil, nil, [])
          known.ready << ready if ready
          known
        end
        stream.epoch ? announce(stream) : ask_for(stream, @connection)
      end

      # Ends listening to a stream.
      def remove(name)
        return unless @pid == Process.pid

        stream = @lock.synchronize { @streams.delete(name) }
        @connection&.unlisten(name) if stream
      end

      def close
        @closed = true
        @connection&.close
      end

      private

      def begin_anew
        @pid = Process.pid
        @streams = {}
        @connection = @thread = nil
        @closed = false
      end

      def run
        until @closed
          follow
          sleep PAUSE unless @closed
        end
      end

      # Takes messages until the connection ends, or a line cannot be read.
      def follow
        connect
        loop { take(@connection.read) }
      rescue SystemCallError, IOError, ArgumentError, TypeError
        @connection&.close
        @connection = nil
      end

      def connect
        connection = ListenerConnection.new(@path)
        streams = @lock.synchronize do
          @connection = connection
          @streams.values
        end
        streams.each do |stream|
          ask_for(stream, connection)
          take(connection.read) while connection.unanswered > UNANSWERED
        end
      end

      # Asks once for a stream that is still wanted.
      def ask_for(stream, connection)
        asks = connection && @lock.synchronize do
          next if stream.connection.equal?(connection) || !@streams[stream.name].equal?(stream)

          stream.connection = connection
        end
        connection.listen(stream) if asks
      end

      def take((kind, *values))
        send(kind, *values)
      end

      def message(name, payload, epoch, offset)
        stream = @lock.synchronize { @streams[name] } or return
        stream.epoch = epoch
        stream.offset = offset
        guarded(stream) { @deliver.call(name, payload) }
      end

      # An error of the app concerns one message.
      def guarded(stream)
        yield
      rescue StandardError => e
        @logger.error "Firebrick's hub: #{stream.name}: #{e.class}: #{e.message}"
      end

      def begun(stream, epoch, offset, lost)
        @logger.warn "Firebrick's hub: messages of #{stream.name} are missing: they are no longer kept" if lost
        stream.offset = offset
        @lock.synchronize { stream.epoch = epoch }
        announce(stream)
      end

      def announce(stream)
        ready = @lock.synchronize { stream.ready.slice!(0..) }
        ready.each { |block| guarded(stream, &block) }
      end

      def refused(why)
        @logger.error "Firebrick's hub: cannot listen: #{why}"
      end
    end
  end
end
