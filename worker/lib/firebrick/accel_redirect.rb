# frozen_string_literal: true

require "firebrick/sent_file"

module Firebrick
  # X-Accel-Redirect with a rule of the `[sendfile]` table: the response is the file, as nginx would send it, with only
  # some of the app's fields. Without a rule for the path, the response is passed on unchanged.
  class AccelRedirect
    # Fields that describe the app's own body, or are addressed to nginx.
    DROPPED = %w[x-accel-redirect x-accel-buffering x-accel-charset x-accel-expires x-accel-limit-rate
                 content-length transfer-encoding content-encoding content-range content-md5 digest repr-digest
                 content-digest etag last-modified location refresh].freeze
    # Fields that describe the file; an error response does not have them.
    OF_THE_FILE = %w[content-disposition cache-control expires accept-ranges].freeze
    ERRORS = { 403 => "Forbidden", 404 => "Not Found" }.freeze

    # Raised when the file cannot be sent; the message says why.
    class Refused < StandardError; end

    # The names of +headers+ are in lower case.
    def initialize(env, headers, rules)
      @env = env
      @headers = headers
      @rules = rules
    end

    # Returns status, headers and body; nil if there is no rule for the path.
    def response
      value = Array(@headers["x-accel-redirect"]).first.to_s
      place = @rules.find(value)
      place && send_file(place)
    rescue Errno::EACCES, Errno::EPERM => e
      error(403, value, e.message)
    rescue Refused, SystemCallError, ArgumentError => e
      error(404, value, e.message)
    end

    private

    def send_file(place)
      path = path_of(place)
      fields = validators(File.open(path, &:stat))
      return [304, without(kept, ["content-type"]).merge(fields), []] if unchanged?(fields)

      SentFile.new(request, 200, kept.merge(fields, "x-sendfile" => path)).response
    end

    # Returns the path of the file. After following links it must still be in the folder.
    def path_of(place)
      raise Refused, "the path leads out of its folder" if place == :unsafe

      folder = File.realpath(place.folder).b
      path = File.realpath(File.join(folder, place.path)).b
      raise Refused, "#{path} is outside of #{folder}" unless inside?(path, folder)
      raise Refused, "#{path} is no regular file" unless regular?(path, place)

      path
    end

    def regular?(path, place)
      File.file?(path) && !place.path.end_with?("/")
    end

    def inside?(path, folder)
      path == folder || path.start_with?(folder == "/" ? folder : "#{folder}/")
    end

    # Returns ETag and Last-Modified in nginx's format.
    def validators(stat)
      { "etag" => %("#{stat.mtime.to_i.to_s(16)}-#{stat.size.to_s(16)}"), "last-modified" => stat.mtime.httpdate }
    end

    # Returns the env for the file's request: the method becomes GET (or stays HEAD), and checked conditions are
    # removed.
    def request
      method = @env["REQUEST_METHOD"] == "HEAD" ? "HEAD" : "GET"
      answered = ["HTTP_IF_MODIFIED_SINCE", ("HTTP_RANGE" if @headers["accept-ranges"] == "none")]
      without(@env, answered).merge("REQUEST_METHOD" => method)
    end

    # Checks If-None-Match, or else If-Modified-Since (RFC 9110 section 13.2.2).
    def unchanged?(fields)
      tags = @env["HTTP_IF_NONE_MATCH"] or return @env["HTTP_IF_MODIFIED_SINCE"] == fields["last-modified"]

      tags.strip == "*" || tags.scan(/"[^"]*"/).include?(fields["etag"])
    end

    # Returns the app's remaining fields, with the charset of X-Accel-Charset.
    def kept
      charset = Array(@headers["x-accel-charset"]).first.to_s
      fields = without(@headers, DROPPED)
      type = Array(fields["content-type"]).first
      return fields if type.nil? || charset.empty? || charset == "off" || type.match?(/;\s*charset=/i)

      fields.merge("content-type" => "#{type}; charset=#{charset}")
    end

    # `Hash#except`, which JRuby 9.3 does not have.
    def without(hash, keys)
      hash.reject { |key, _| keys.include?(key) }
    end

    def error(status, value, reason)
      Report.log("firebrick: #{Exchange.name}: X-Accel-Redirect: #{value.inspect}: #{reason}")
      fields = without(kept, OF_THE_FILE).merge("content-type" => "text/plain")
      [status, fields, ["#{status} #{ERRORS[status]}\n"]]
    end
  end
end
