# frozen_string_literal: true

require "set"
require "stringio"
require "firebrick/error_page"
require "firebrick/fibers"
require "firebrick/header_fields"
require "firebrick/errors"
require "firebrick/peer_certificates"
require "firebrick/report"
require "firebrick/spooled_input"

module Firebrick
  # The rare parts of serving a request, in Ruby. The worker calls them where the request is served, and treats what
  # they raise as an exception of the app.
  module Exchange
    extend HeaderFields

    PEER_CERTIFICATES = PeerCertificates.new

    class << self
      # Whether responses show exceptions.
      attr_accessor :detailed_errors
      # The process's name in the error log.
      attr_accessor :name
      # What makes the lines of the app out of a backtrace: in a worker.
      attr_accessor :app_lines

      # `rack.input` of a request with a body, given its bytes or the number of a descriptor.
      def input(body)
        return StringIO.new(body) if body.is_a?(String)

        File.for_fd(body, "rb").binmode.extend(SpooledInput)
      end

      # `puma.peercert`, given the certificate in PEM.
      def peer_certificate(pem)
        PEER_CERTIFICATES.of(pem)
      end

      # The app has raised: logs it and returns the response. `error` is nil when the thread was killed.
      def failed(error, env)
        Report.log("firebrick: #{name}: #{error ? Report.text(error, env) : 'the serving thread was killed'}", env)
        custom_response(error, env) || ErrorPage.response(error, env, detailed: detailed?(env))
      end

      # The app has set X-Sendfile or X-Accel-Redirect: the response with the file that it names; nil if the fields are
      # for somebody else.
      def send_file(env, status, headers)
        require "firebrick/sent_file"
        require "firebrick/accel_redirect"
        headers = headers.to_h.transform_keys { |name| name.to_s.downcase }
        return SentFile.new(env, status, headers).response if headers.key?("x-sendfile")

        env["firebrick.sendfile"]&.then { |rules| AccelRedirect.new(env, headers, rules).response }
      end

      # Logs what was raised in a serving thread while it served no request.
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

      # Hands a connection to the app: the body that responds to `call`, or the `rack.hijack` of the headers.
      def stream(callable, descriptor, env, upgraded)
        stream = open_stream(descriptor, env, upgraded)
        callable.call(stream)
        returned = true
      ensure
        # The thread may also be killed.
        stream&.abort unless returned
      end

      # `rack.hijack` of the request that +handle+ stands for. Yields the socket and returns it.
      def hijack(handle)
        descriptor, env = Native.hijack(handle)
        raise IOError, "rack.hijack is being called by another thread" unless descriptor

        require "firebrick/client_socket"
        HijackedSocket.for_fd(descriptor).tap do |socket|
          socket.env = env
          env["rack.hijack_io"] = socket
          yield socket
        end
      end

      # Whether an exception says that the client has gone, or has been raised because of one that does.
      def client_gone?(error)
        causes = Set.new.compare_by_identity
        while error && causes.add?(error)
          return true if error.is_a?(Disconnected)

          error = error.cause
        end
        false
      end

      # `rack.response_finished`, in reverse order. The others run also when one raises.
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

      # A server of several in this process has an environment of its own.
      def detailed?(env)
        own = env && env["firebrick.detailed_errors"]
        own.nil? ? detailed_errors : own
      end

      # The response of `Firebrick.on_error`, if there is one and it is valid.
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
        require "firebrick/stream"
        socket = (upgraded ? UpgradedSocket : StreamSocket).for_fd(descriptor)
        socket.env = env
        input = env["rack.input"]
        input.nil? || input.is_a?(NullInput) ? socket : Stream.new(socket, input)
      end
    end
  end
end
