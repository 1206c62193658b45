# frozen_string_literal: true

require "stringio"
require "firebrick/error_page"
require "firebrick/report"

module Firebrick
  # The parts of serving a request that are rare enough to be written in Ruby. Called by the native worker, from the
  # thread that serves the request; what they raise is treated like an exception of the app.
  module Exchange
    class << self
      # Whether clients see exceptions.
      attr_accessor :detailed_errors
      # Which process speaks in the error log.
      attr_accessor :name

      # `rack.input` of a request with a body: its bytes, or the number of a descriptor.
      def input(body)
        return StringIO.new(body) if body.is_a?(String)

        File.for_fd(body, "rb").binmode
      end

      # The app raised: reports it and returns what to answer. `error` is nil when the thread was killed.
      def failed(error, env)
        Report.log("firebrick: #{name}: #{error ? Report.text(error, env) : 'the app killed the serving thread'}")
        own_answer(error, env) || ErrorPage.response(error, env, detailed: detailed_errors)
      end

      # Something was raised in a serving thread, but not by a request.
      def interrupted(error)
        return unless error

        Report.log("firebrick: #{name}: between requests: #{Report.text(error)}")
      end

      # Hands a connection to the app: the body that responds to `call`, or the `rack.hijack` of the headers.
      def stream(callable, descriptor, env)
        stream = open_stream(descriptor, env["rack.input"])
        callable.call(stream)
      rescue Exception # rubocop:disable Lint/RescueException
        stream&.close
        raise
      end

      # `rack.hijack`.
      def hijack
        descriptor, env = Native.hijack
        io = socket(descriptor)
        env["rack.hijack_io"] = io
        io
      end

      # `rack.response_finished`, in reverse order. One that raises does not keep the others from running.
      def finished(env, status, headers, error)
        env["rack.response_finished"].reverse_each do |callable|
          contain(env) { callable.call(env, status, headers, error) }
        end
      end

      # `rack.after_reply`.
      def reply_sent(callables, env)
        callables.each { |callable| contain(env) { callable.call } }
      end

      private

      def own_answer(error, env)
        answer = Firebrick.error_handler&.call(error, env)
        return answer if answer.is_a?(Array) && answer.length == 3 && answer[0].to_i.between?(100, 599)

        Report.log("firebrick: #{name}: on_error did not answer [status, headers, body]") if answer
      rescue StandardError, ScriptError, SystemExit => e
        Report.log("firebrick: #{name}: on_error: #{Report.text(e, env)}")
        nil
      end

      def contain(env)
        yield
      rescue StandardError, ScriptError => e
        Report.log("firebrick: #{name}: after the response: #{Report.text(e, env)}")
      end

      def open_stream(descriptor, input)
        return socket(descriptor) if input.nil? || input.is_a?(NullInput)

        require "firebrick/stream"
        Stream.new(socket(descriptor), input)
      end

      def socket(descriptor)
        require "socket"
        UNIXSocket.for_fd(descriptor)
      end
    end
  end
end
