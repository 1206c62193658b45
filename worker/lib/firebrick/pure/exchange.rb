# frozen_string_literal: true

require "firebrick/pure/body"
require "firebrick/pure/head"
require "firebrick/pure/request"
require "firebrick/pure/response"

module Firebrick
  module Pure
    # Serves one request, from its frame to its END.
    #
    # Contract: whatever the app does, exactly one response is sent, the body is closed exactly once, and the thread
    # goes on, unless the app kills it.
    class Exchange
      FALLBACK = { "content-type" => "text/plain" }.freeze

      # The env, once it exists; the Response; the serving thread; the request.
      attr_reader :env, :response, :thread, :job

      # worker:: the Worker
      def initialize(worker, job, started_us)
        @worker = worker
        @job = job
        @thread = Thread.current
        @started_us = started_us
        @response = Response.new(worker, job, started_us, Request.measures?(job.payload))
        @failed = false
      end

      # Returns whether the app has failed.
      def failed?
        @failed
      end

      # Serves the request.
      def run
        return give_up if @job.gone

        @request = Request.new(@job.payload, @job.descriptor)
        in_app { serve }
      end

      private

      # Ends a request whose client disconnected before the request was started.
      def give_up
        @job.discard
        @response.stop(true)
      end

      def in_app
        finished = false
        yield
        finished = true
      ensure
        # The app has forked, or kills this thread: only this block still runs.
        exit!(1) if @worker.abandoned?
        killed unless finished
      end

      def serve
        attempt { respond(call_app, true) }
        failure(@error) if @error
        finish
      end

      # Runs a part of the app and keeps its exception.
      def attempt
        yield
        exit!(0) if @worker.abandoned?
      rescue Exception => e # rubocop:disable Lint/RescueException
        exit!(1) if @worker.abandoned?
        @error = e
      end

      def call_app
        @env = @worker.env.build(@request, @started_us)
        # The app's middleware may replace it, and Rack::Lint refuses `close`.
        @input = @env["rack.input"]
        put_handles
        raise @job.error if @job.error

        answer = @env.key?(Shadow::KEY) ? Shadow.call(@worker.app, @env) : @worker.app.call(@env)
        answer.tap do
          exit!(0) if @worker.abandoned?
          name_route
        end
      end

      def name_route
        @response.route = RouteNames.number(@env) if @env
      end

      # Adds the objects through which the app reaches its request. They refer to this request wherever they are called.
      def put_handles
        handle = Native::Handle.new(self)
        @env["firebrick.timeout"] = handle
        @env["rack.hijack"] = handle if @env.key?("rack.hijack")
        @env["rack.early_hints"] = Native::Hints.new(self) if @env["rack.early_hints"]
      end

      # Takes apart and sends status, headers and body.
      def respond(answer, from_app)
        answer = Array.try_convert(answer)
        # Hijacked: the response is not sent, but its body must be closed.
        return @body = answer && answer[2] unless @response.unsent?
        raise BadResponse, "the app did not return [status, headers, body]" unless answer && answer.length == 3

        status, headers, body = answer
        @body = body if from_app
        @headers = headers
        head = Head.new(status, headers, @worker.max_head)
        @status = head.status
        other = replacement(head, headers, body) if from_app
        other ? respond(other, false) : Body.new(@response, head, @env).send(body)
      end

      # Returns the response that replaces the app's; nil if that is sent unchanged: without such headers, without a
      # rule for the file's path, or with a status that does not switch.
      def replacement(head, headers, body)
        if head.names_file?
          Firebrick::Exchange.send_file(@env, @status, headers)
        elsif head.protocol?
          Firebrick::Protocols.switched(@env, @status, headers, body)
        end
      end

      # Sends an error page for an exception of the app, if the response has not begun.
      def failure(error)
        unsent = @response.take_back
        return @response.stop(true) if Firebrick::Exchange.client_gone?(error)

        @failed = true
        name_route
        page(error, unsent)
        @response.unsent? ? fall_back : @response.stop(true)
      end

      def page(error, unsent)
        page = Firebrick::Exchange.failed(error, @env)
        respond(page, false) if unsent
      rescue Exception # rubocop:disable Lint/RescueException
        @response.take_back
      end

      def fall_back
        head = Head.new(500, FALLBACK, Head::LARGEST)
        @response.whole(head, @request.verb == "HEAD" ? "" : "Internal Server Error\n")
      end

      # Runs the steps that follow the response.
      def finish
        @response.stop(@failed)
        afterwards { @body.close if closes? }
        afterwards { run_callbacks } if @env
      end

      def closes?
        !@body.nil? && !@body.instance_of?(Array) && !@body.is_a?(String) && @body.respond_to?(:close)
      end

      # Runs a step and logs its exception.
      def afterwards
        yield
      rescue Exception => e # rubocop:disable Lint/RescueException
        exit!(1) if @worker.abandoned?
        @error = e
        return if Firebrick::Exchange.client_gone?(e)

        @failed = true
        Firebrick::Exchange.failed(e, @env)
      end

      def run_callbacks
        @input.close if @request.body
        finished = @env["rack.response_finished"]
        Firebrick::Exchange.finished(@env, @status.to_i, @headers, @error) if finished.is_a?(Array) && finished.any?
        after = @env["rack.after_reply"]
        Firebrick::Exchange.reply_sent(after, @env) if after.is_a?(Array) && after.any?
      end

      # Completes the request of a thread that is being killed.
      def killed
        failure(nil) unless @response.ended?
        finish
      end
    end
  end
end
