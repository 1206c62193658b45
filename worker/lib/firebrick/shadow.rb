# frozen_string_literal: true

require "firebrick/log_tag"
require "firebrick/read_only"

module Firebrick
  # Serves copies of clients' requests, by which a reload compares new code with old (docs/reload.md, "Shadow").
  #
  # Contract: the app is called as for a client, and its body is read to the end and closed, all of it in a ReadOnly
  # block and with the mark in the log of Rails. Streams are not run. A field of the response says if the response is
  # not the one that a client would get; the response goes to no client.
  module Shadow
    # The key of the env; its value is "old" or "new".
    KEY = "firebrick.shadow"
    # The field of the response: "writes" or "stream".
    SAYS = "firebrick-shadow"
    # The bytes of a body after which the rest is not read.
    LONGEST = 1 << 20

    class << self
      # Returns the response of the app.
      def call(app, env)
        %w[rack.hijack rack.early_hints].each { |key| env.delete(key) }
        env["rack.hijack?"] = false
        guarded(env) do |guard|
          response = read(app.call(env))
          guard.refused? ? said("writes") : response
        rescue StandardError
          raise unless guard.refused?

          said("writes")
        end
      end

      # Runs what follows the response, for each request. A copy's must not write either.
      def around(env, &block)
        env.is_a?(Hash) && env.key?(KEY) ? guarded(env) { block.call } : yield
      end

      private

      def guarded(env, &block)
        LogTag.run("firebrick shadow #{env[KEY]}") { ReadOnly.run(&block) }
      end

      def said(word)
        [500, { SAYS => word }, []]
      end

      # Reads the body, because it may query the database.
      def read(response)
        triple = Array.try_convert(response)
        return response unless triple&.length == 3

        status, headers, body = triple
        return [status, headers, body] if body.respond_to?(:to_path) || body.is_a?(Array)

        stream?(headers, body) ? skip(body) : [status, headers, parts(body)]
      end

      def stream?(headers, body)
        !body.respond_to?(:each) || headers.any? do |name, value|
          name = name.to_s.downcase
          name == "rack.hijack" || (name == "content-type" && value.to_s.start_with?("text/event-stream"))
        end
      end

      def skip(body)
        body.close if body.respond_to?(:close)
        said("stream")
      end

      def parts(body)
        bytes = 0
        parts = []
        body.each do |part|
          bytes += part.bytesize
          parts << part.dup
          break if bytes > LONGEST
        end
        parts
      ensure
        body.close if body.respond_to?(:close)
      end
    end
  end
end
