# frozen_string_literal: true

require "firebrick/pure/collection"
require "firebrick/pure/env"
require "firebrick/pure/exchange"
require "firebrick/pure/inbox"
require "firebrick/pure/link"
require "firebrick/pure/scoreboard"
require "firebrick/pure/threads"
require "firebrick/pure/upload"
require "firebrick/pure/watchdog"

module Firebrick
  # The worker in plain Ruby: docs/internals/wire.md without native code. `link.rb` is a socket and its reader,
  # `inbox.rb` the waiting requests, `exchange.rb` one request, `response.rb` its frames.
  module Pure
    # The options of a worker, shared by its threads.
    #
    # Options:: threads_min, threads_max, max_head, rack3
    Options = Struct.new(:threads_min, :threads_max, :max_head, :rack3)

    # A worker: links, threads, and the orders of the front.
    class Worker
      attr_reader :app, :env, :watchdog, :inbox
      # The socket of the template that this worker leaves behind when it has finished: a number.
      attr_accessor :promotion

      def initialize(app, base, options, transports, scoreboard)
        @app = app
        @options = options
        @env = Env.new(base, options.rack3)
        @links = transports.each_with_index.map { |transport, number| Link.new(number, transport) }
        @scoreboard = scoreboard
        @watchdog = Watchdog.new(@links)
        @events = Queue.new
        @inbox = Inbox.new(scoreboard, @watchdog) { @events << nil }
        @threads = Threads.new(options.threads_min, options.threads_max, scoreboard,
                               @inbox.method(:finished?)) do |number|
          serve_in_thread(number)
        end
        # The Exchange of each thread. Allocated at full length, because in JRuby several threads must not write an
        # Array that grows.
        @serving = Array.new(options.threads_max)
        @collection = Collection.new(nil, @links.first)
        @abandoned = false
      end

      def max_head
        @options.max_head
      end

      def start
        @watchdog.start
        @threads.start
        @links.each { |link| link.start(self) }
        tell(Frames.frame(Wire::Frame::READY, 0, [Process.pid, @options.threads_max].pack("VV")))
      end

      # Runs full collections between requests, when +collector+ says that they are due.
      def collect_with(collector)
        @collection = Collection.new(collector, @links.first)
      end

      # Returns when the worker has finished.
      def serve
        begin
          while (frame = @events.pop)
            tell(frame)
          end
        rescue Exception => e # rubocop:disable Lint/RescueException
          Firebrick::Exchange.interrupted(e)
          retry
        end
        @threads.join
      end

      # Sends a frame that concerns the whole worker, soon. The caller may be in a signal handler.
      def tell_later(frame)
        @events << frame
      end

      # Answers an order to take a profile.
      def refuse_profile
        order = @scoreboard.ordered_profile
        tell_later(Frames.no_profile(order)) unless order.zero?
      end

      # Lists the requests whose response has not ended: for each its thread, the number of its link, its id there.
      def serving
        unfinished = @serving.compact.reject { |exchange| exchange.response.ended? }
        unfinished.map { |exchange| [exchange.thread, exchange.job.link.number, exchange.job.id] }
      end

      # Closes the links in a child that the app has forked. The links belong to the parent.
      def abandon
        @abandoned = true
        @links.each(&:close)
      end

      def abandoned?
        @abandoned
      end

      # Handles a frame, on the reader thread of its link.
      def receive(link, kind, id, payload, descriptor)
        case kind
        when Wire::Frame::REQUEST then request(link, id, payload, descriptor)
        when Wire::Frame::INPUT then input(link, payload)
        when Wire::Frame::WINDOW then response(link, id) { |response| response.give(payload.unpack1("V").to_i) }
        when Wire::Frame::ABORT then abort(link, id)
        when Wire::Frame::RESUME then @inbox.resume(link)
        # This worker makes no offers.
        when Wire::Frame::LEND then IO.for_fd(descriptor).close if descriptor
        else receive_order(kind, descriptor)
        end
      end

      def front_gone
        exit!(0) unless @inbox.over?
      end

      def protocol_error(error)
        warn "firebrick: worker #{Process.pid}: #{error.message}; ending the process"
        exit!(70)
      end

      private

      def tell(frame)
        @links.first.send_frame(frame)
      end

      def request(link, id, payload, descriptor)
        job = Job.new(link, id, payload, descriptor)
        length = Request.announced(payload)
        return put(job) unless length

        link.upload = Upload.new(job, length)
        input(link, "") if length.zero?
      end

      # Adds to the body of the request that came last on this link.
      def input(link, bytes)
        upload = link.upload || raise(Malformed, "INPUT without a request")
        return unless upload.add(bytes)

        link.upload = nil
        put(upload.job)
      end

      def put(job)
        @threads.grow if @inbox.put(job)
      end

      def receive_order(kind, descriptor)
        case kind
        when Wire::Frame::DRAIN then @inbox.drain
        when Wire::Frame::COLLECT then @inbox.collect
        when Wire::Frame::HEAP then refuse_heap(descriptor || raise(Malformed, "HEAP without a descriptor"))
        when Wire::Frame::PROMOTE then @promotion = descriptor || raise(Malformed, "PROMOTE without a descriptor")
        end
      end

      def refuse_heap(pipe)
        why = "workers without the native part (FIREBRICK_PURE) write no heap dumps"
        IO.open(pipe, "w") { |io| io.write(%({"error":"#{why}"}\n)) }
      rescue SystemCallError
        # The front no longer reads.
        nil
      end

      def abort(link, id)
        response(link, id, &:leave) unless @inbox.abort(link, id)
      end

      def response(link, id)
        exchange = @serving.find { |one| one && one.job.id == id && one.job.link.equal?(link) }
        yield exchange.response if exchange
      end

      def serve_in_thread(number)
        hook(:thread_started)
        bell = @inbox.enter
        while (job = take(bell))
          work(number, job)
          @collection.check
        end
      ensure
        @inbox.leave(bell) if bell
        hook(:thread_ended)
      end

      # The app may kill the thread inside.
      def work(number, job)
        job == :collect ? @collection.run : run(number, job)
      ensure
        exchange = @serving[number]
        @serving[number] = nil
        @inbox.done(exchange)
      end

      # Outside of requests, exceptions do not belong to the app.
      def take(bell)
        @inbox.take(bell) { @links.each(&:flush) }
      rescue Exception => e # rubocop:disable Lint/RescueException
        Firebrick::Exchange.interrupted(e)
        retry
      end

      def run(number, job)
        started_us = Response.now_us
        exchange = Exchange.new(self, job, started_us)
        @serving[number] = exchange
        @scoreboard.begin(number, job.link.number, job.id, started_us)
        exchange.run
      rescue Malformed => e
        protocol_error(e)
      ensure
        @scoreboard.idle(number)
      end

      def hook(moment)
        Firebrick::Exchange.public_send(moment)
      rescue Exception => e # rubocop:disable Lint/RescueException
        Firebrick::Exchange.interrupted(e)
      end
    end
  end
end
