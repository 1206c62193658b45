# frozen_string_literal: true

require "digest"
require "open3"
require_relative "failure"

module Bench
  # Checks that a server sends the one correct body, in the protocol that the load will use.
  class Check
    # scheme: the URL's; curl: flags for the protocol; bytes and sha256: of the correct body; upload: bytes of a POST, or 0.
    def initialize(path:, bytes:, sha256:, scheme: "http", curl: [], upload: 0)
      @path = path
      @bytes = bytes
      @sha256 = sha256
      @scheme = scheme
      @curl = curl
      @upload = upload
    end

    # Makes the check of a scenario or of a case of bench/protocols; `curl`: other flags than the case's.
    def self.of(scenario, curl: nil)
      if scenario.respond_to?(:scheme)
        return new(path: scenario.path, bytes: scenario.body.bytesize, sha256: Digest::SHA256.hexdigest(scenario.body),
                   scheme: scenario.scheme, curl: curl || scenario.curl)
      end

      new(path: scenario.path, bytes: scenario.bytes, sha256: scenario.sha256, upload: scenario.upload)
    end

    def url(port) = "#{@scheme}://127.0.0.1:#{port}#{@path}"

    # Returns true when it does, false while nothing listens; a wrong body is a Failure, not a reason to wait.
    def call(port)
      body, status = Open3.capture2("curl", "-sk", "--max-time", "10", *@curl, *post, url(port), stdin_data: "x" * @upload, binmode: true)
      # 7: cannot connect; 56 and 35: the connection ended, as a server that is starting does. 22: with -f an error status, as of a proxy whose app is
      # starting.
      return false if [7, 22, 35, 56].include?(status.exitstatus)
      raise Failure, "curl #{url(port)} failed with exit code #{status.exitstatus}" unless status.success?
      return true if body.bytesize == @bytes && Digest::SHA256.hexdigest(body) == @sha256

      raise Failure, "wrong response: #{body.bytesize} bytes, SHA-256 #{Digest::SHA256.hexdigest(body)}; expected #{@bytes} bytes, #{@sha256}"
    end

    private

    def post
      @upload.zero? ? [] : ["-H", "Content-Type: application/octet-stream", "--data-binary", "@-"]
    end
  end
end
