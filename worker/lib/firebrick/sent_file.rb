# frozen_string_literal: true

require "rack/files"
require "rack/request"

module Firebrick
  # X-Sendfile: the app names a file, and the server sends it instead of the body. The worker opens it, with its own
  # rights; the front sends it without passing it through Ruby. Ranges and If-Modified-Since are supported, as web
  # servers do for such files.
  class SentFile
    # Fields of the app's response that describe the body, which is not sent, in lower case.
    REPLACED = %w[x-sendfile content-length transfer-encoding].freeze

    # A whole file.
    Whole = Struct.new(:to_path) do
      def each
        yield File.binread(to_path)
      end
    end

    # The names of +headers+ are in lower case.
    def initialize(env, status, headers)
      @env = env
      @status = status
      @headers = headers
    end

    # Returns status, headers and body.
    def response
      path = Array(@headers["x-sendfile"]).first.to_s
      fault = fault(path)
      raise BadResponse, "X-Sendfile: #{fault}" if fault

      status, fields, body = @status == 200 ? answer(path) : [@status, {}, Whole.new(path)]
      [status, merged(fields.transform_keys(&:downcase)), body]
    end

    private

    # Returns the response: all of the file, ranges, or 304.
    def answer(path)
      env = outdated?(path) ? @env.reject { |key, _| key == "HTTP_RANGE" } : @env
      Rack::Files.new(nil, {}, nil).serving(Rack::Request.new(env), path)
    end

    # Returns whether the client has parts of another version of the file (RFC 9110 section 13.1.5).
    def outdated?(path)
      validator = @env["HTTP_IF_RANGE"]
      !validator.nil? && ![@headers["etag"], @headers["last-modified"] || File.mtime(path).httpdate].include?(validator)
    end

    # Merges the fields. The app's take precedence, except those that depend on the sent bytes.
    def merged(fields)
      parts = fields["content-type"].to_s.start_with?("multipart/byteranges")
      dropped = parts ? [*REPLACED, "content-type"] : REPLACED
      fields.merge(@headers.reject { |name, _| dropped.include?(name) })
    end

    # Returns the reason why a file cannot be sent; nil if it can.
    def fault(path)
      return "no path" if path.empty?
      return "#{path} is no regular file" if File.exist?(path) && !File.file?(path)

      File.open(path, &:close)
      nil
    rescue SystemCallError, ArgumentError => e
      e.message.include?(path) ? e.message : "#{path}: #{e.message}"
    end
  end
end
