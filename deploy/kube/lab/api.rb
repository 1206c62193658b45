# frozen_string_literal: true

require "json"
require "net/http"
require "openssl"
require "uri"

module Kubernetes
  # A client of an API server: one kept connection per thread.
  class Api
    # A response other than success; `status` is its number.
    class Refused < StandardError
      attr_reader :status

      def initialize(status, text)
        @status = status
        super(text)
      end
    end

    # address: https://127.0.0.1:PORT; authority: file of the authority that signed its certificate.
    def initialize(address, token:, authority:)
      @uri = URI(address)
      @token = token
      @authority = authority
      @key = :"kubernetes_api_#{object_id}"
    end

    def get(path) = ask(Net::HTTP::Get.new(path))

    def post(path, object) = ask(Net::HTTP::Post.new(path, "Content-Type" => "application/json"), object)

    def patch(path, object) = ask(Net::HTTP::Patch.new(path, "Content-Type" => "application/merge-patch+json"), object)

    # Deletes an object at once. A missing object is not an error.
    def delete_now(path)
      ask(Net::HTTP::Delete.new(path, "Content-Type" => "application/json"), "kind" => "DeleteOptions", "apiVersion" => "v1", "gracePeriodSeconds" => 0)
    rescue Refused => e
      raise unless e.status == 404
    end

    private

    def ask(request, object = nil)
      request["Authorization"] = "Bearer #{@token}"
      request["Accept"] = "application/json"
      request.body = JSON.generate(object) if object
      response = connection.request(request)
      return response.body.start_with?("{") ? JSON.parse(response.body) : response.body if response.is_a?(Net::HTTPSuccess)

      raise Refused.new(response.code.to_i, "#{request.method} #{request.path}: #{response.code} #{response.body[0, 500]}")
    rescue IOError, SystemCallError, Timeout::Error
      Thread.current[@key] = nil
      raise
    end

    def connection
      Thread.current[@key] ||= Net::HTTP.new(@uri.host, @uri.port).tap do |http|
        http.use_ssl = true
        http.ca_file = @authority
        http.open_timeout = http.read_timeout = 10
        http.keep_alive_timeout = 30
        http.start
      end
    end
  end
end
