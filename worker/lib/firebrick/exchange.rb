# frozen_string_literal: true

require "set"
require "stringio"
require "firebrick/error_page"
require "firebrick/fibers"
require "firebrick/header_fields"
require "firebrick/errors"
require "firebrick/peer_certificates"
require "firebrick/protocols"
require "firebrick/report"
require "firebrick/routes"
require "firebrick/shadow"
require "firebrick/spooled_input"
require "firebrick/statement_timeout"
require "firebrick/stream"

module Firebrick
  # The rare parts of serving a request, in Ruby. The worker calls them while it serves the request, and treats
  # their exceptions as exceptions of the app.
  #
  # Contract: a request loads no file of this library, apart from what needs the gem rack in an app without it.
  # Workers are forked with all of them. Otherwise the first such request of each worker would parse them, and no other
  # thread of the worker runs meanwhile.
  module Exchange
    extend HeaderFields

    PEER_CERTIFICATES = PeerCertificates.new

    class << self
      # Whether error responses show the exception.
      attr_accessor :detailed_errors
      # The process's name in the error log.
      attr_accessor :name
      # In a worker: finds the app's lines in a backtrace.
      attr_accessor :app_lines

      # Returns the `rack.input` of a request with a body, given its bytes or the number of a descriptor.
      def input(body)
        return StringIO.new(body) if body.is_a?(String)

        File.for_fd(body, "rb").binmode.extend(SpooledInput)
      end

      # Returns `puma.peercert`, given the certificate in PEM.
      def peer_certificate(pem)
        PEER_CERTIFICATES.of(pem)
      end

      # Logs an exception of the app and returns the error response. `error` is nil when the thread was killed.
      def failed(error, env)
        Report.log("firebrick: #{name}: #{error ? Report.text(error, env) : 'the serving thread was killed'}", env)
        custom_response(error, env) || ErrorPage.response(error, env, detailed: detailed?(env))
      end

      # Names an exception of the app and the app's line for the flight recorder: this one, or the one of which Rails
      # has made an error page. Its message may be private.
      def fault(error, env)
        error ||= env["action_dispatch.exception"] if env.is_a?(Hash)
        return unless error.is_a?(Exception)

        line = app_lines&.place(error.backtrace.to_a)
        line ? "#{error.class} at #{line}" : error.class.to_s
      rescue StandardError, SystemStackError
        nil
      end

      # Returns the response with the file that X-Sendfile or X-Accel-Redirect names; nil if the fields are meant for
      # another server.
      def send_file(env, status, headers)
        require "firebrick/sent_file"
        require "firebrick/accel_redirect"
        headers = headers.to_h.transform_keys { |name| name.to_s.downcase }
        return SentFile.new(env, status, headers).response if headers.key?("x-sendfile")

        env["firebrick.sendfile"]&.then { |rules| AccelRedirect.new(env, headers, rules).response }
      end

      # Logs an exception raised in a serving thread outside of requests.
      def interrupted(error)
        return unless error

        Report.log("firebrick: #{name}: between requests: #{Report.text(error)}")
      end

      # Runs in each serving thread before its first request.
      def thread_started
        Firebrick.run_hooks(:before_thread_start)
      end

      # Runs in each serving thread after its last request.
      def thread_ended
        Firebrick.run_hooks(:before_thread_exit)
      end

      # Passes a connection to the app: to the body that responds to `call`, or to the `rack.hijack` of the headers.
      def stream(callable, descriptor, env, upgraded)
        stream = open_stream(descriptor, env, upgraded)
        callable.call(stream)
        returned = true
      ensure
        # The thread may also have been killed.
        stream&.abort unless returned
      end

      # `rack.hijack` of the request with this +handle+. Yields the socket and returns it.
      def hijack(handle)
        descriptor, env = Native.hijack(handle)
        raise IOError, "rack.hijack is being called by another thread" unless descriptor

        HijackedSocket.for_fd(descriptor).tap do |socket|
          socket.env = env
          env["rack.hijack_io"] = socket
          yield socket
        end
      end

      # Returns whether an exception reports a disconnected client, or was caused by one that does.
      def client_gone?(error)
        causes = Set.new.compare_by_identity
        while error && causes.add?(error)
          return true if error.is_a?(Disconnected)

          error = error.cause
        end
        false
      end

      # Calls `rack.response_finished`, in reverse order. When one raises, the others still run.
      def finished(env, status, headers, error)
        Shadow.around(env) do
          env["rack.response_finished"].reverse_each { |one| contain(env) { one.call(env, status, headers, error) } }
        end
      end

      # Calls `rack.after_reply`.
      def reply_sent(callables, env)
        Shadow.around(env) { callables.each { |callable| contain(env) { callable.call } } }
      end

      private

      # Returns whether errors are shown. When a process has several servers, each has its own environment.
      def detailed?(env)
        own = env && env["firebrick.detailed_errors"]
        own.nil? ? detailed_errors : own
      end

      # Returns the response of `Firebrick.on_error`, if there is one and it is valid.
      def custom_response(error, env)
        response = Firebrick.error_handler&.call(error, env)
        return response if response.is_a?(Array) && response.length == 3 && response[0].to_i.between?(100, 599)

        Report.log("firebrick: #{name}: on_error did not return [status, headers, body]") if response
      rescue StandardError, ScriptError, SystemExit => e
        Report.log("firebrick: #{name}: on_error: #{Report.text(e, env)}", env)
        nil
      end

      def contain(env)
        yield
      rescue StandardError, ScriptError => e
        Report.log("firebrick: #{name}: after the response: #{Report.text(e, env)}", env)
      end

      def open_stream(descriptor, env, upgraded)
        socket = (upgraded ? UpgradedSocket : StreamSocket).for_fd(descriptor)
        socket.env = env
        input = env["rack.input"]
        input.nil? || input.is_a?(NullInput) ? socket : Stream.new(socket, input)
      end
    end
  end
end
