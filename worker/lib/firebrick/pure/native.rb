# frozen_string_literal: true

require "firebrick/pure/serve"

module Firebrick
  # The native part's functions in plain Ruby: for Rubies without native extensions, and with `FIREBRICK_PURE=1`.
  # Such a worker serves with threads only, and Firebrick::Server is not available.
  module Native
    # The app's reference to a request.
    class Handle
      def initialize(exchange)
        @exchange = exchange
      end

      # Returns the Exchange. A method of the class, because it is not for the app.
      def self.exchange(handle)
        handle.instance_variable_get(:@exchange) || raise(IOError, "the request has ended")
      end
    end

    # The same for early hints.
    class Hints < Handle; end

    class << self
      # Returns the version of docs/internals/wire.md that this library implements.
      def wire
        Wire::VERSION
      end

      # Sets the state that all workers share; called in the template.
      def prepare(app, base, options)
        @app = app
        @base = base
        Pure::RouteNames.look_for_frameworks
        raise Error, "fibers need CRuby with the native part: set fibers to \"off\"" if options[:fibers].positive?

        @options = options.slice(:max_head, :rack3)
      end

      # Takes over the links, starts the threads and sends READY, after the fork.
      # links:: numbers of descriptors, or the objects that Pure::Descriptors has made of connections
      # shape:: the fewest and the most threads, and the number of fibers, which is 0
      def start(index, links, scoreboard, slot_len, shape)
        file = scoreboard.is_a?(Integer) ? IO.for_fd(scoreboard, "r+b", autoclose: false) : scoreboard
        board = Pure::Scoreboard.new(file, index, slot_len, links.length)
        transports = links.map { |link| link.is_a?(Integer) ? transport(link) : link }
        options = Pure::Options.new(*shape.first(2), *@options.values_at(:max_head, :rack3))
        (@worker = Pure::Worker.new(@app, @base, options, transports, board)).start
      end

      def serve
        @worker.serve
      end

      def stopping
        @worker&.tell_later(Pure::Frames.frame(Wire::Frame::STOPPING))
      end

      def serving
        @worker ? @worker.serving : []
      end

      def traces(list)
        @worker&.tell_later(Pure::Frames.traces(list))
      end

      # Answers the front's order to take a profile: this worker cannot.
      def profile
        @worker&.refuse_profile
      end

      # Traps signals that request backtraces. A trap runs on the main thread, which serves nothing here.
      def take_signals(signals)
        @signals = came = Thread::Queue.new
        # By name: JRuby 9.3 knows not all numbers.
        signals.each { |signal| trap(Signal.list.key(signal)) { came << (1 << signal) } }
      end

      # Waits for a signal. Returns a number with the bit of that signal.
      def signals
        @signals.pop
      end

      def collect_with(collector)
        @worker.collect_with(collector)
      end

      # Closes the parent's links in a child that the app has forked.
      def abandon
        @worker&.abandon
      end

      # Returns the socket of the template to be forked, or nil, when serving is over.
      def promotion
        @worker.promotion
      end

      # Drops the worker, in the child that becomes a template.
      def retire
        @worker = nil
      end

      def hijack(handle)
        exchange = Handle.exchange(handle)
        stream = nil
        return unless exchange.response.hijack { (stream = exchange.response.stream).sent }

        stream.release
        stream.own.autoclose = false
        [stream.own.fileno, exchange.env]
      end

      def early_hints(handle, headers)
        Handle.exchange(handle).response.interim(Pure::Head.new(103, headers, @options[:max_head]))
        nil
      end

      def extend_timeout(handle, milliseconds)
        exchange = Handle.exchange(handle)
        raise IOError, "the request has ended" if exchange.response.ended?
        unless exchange.thread.equal?(Thread.current)
          raise "firebrick.timeout can only be extended on the thread that serves the request"
        end

        exchange.response.extend_timeout(milliseconds)
        nil
      end

      # Reads the control socket. Returns bytes and descriptors; nil at its end.
      def receive(descriptor)
        socket = UNIXSocket.for_fd(descriptor)
        socket.autoclose = false
        transport = Pure::Descriptors::WithFrames.new(socket)
        bytes = transport.read
        bytes && [bytes, transport.take_all]
      rescue Errno::ECONNRESET
        nil
      end

      # Returns nil while the child runs; "exit" or "signal", code, peak KiB, which Ruby does not report; false when
      # this process has no such child.
      def reap(pid)
        _, status = Process.wait2(pid, Process::WNOHANG)
        return if status.nil?

        status.signaled? ? ["signal", status.termsig, 0] : ["exit", status.exitstatus, 0]
      rescue Errno::ECHILD
        false
      end

      # These need kernel calls that only native code can make.
      def parent_death_signal(_signal); end

      def settle_heap; end

      def release_gaps; end

      private

      def transport(descriptor)
        Pure::Descriptors::WithFrames.new(UNIXSocket.for_fd(descriptor))
      end
    end
  end
end
