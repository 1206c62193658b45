# frozen_string_literal: true

module Firebrick
  class Template
    # The env of GET requests that the template makes itself.
    module OwnEnv
      # The app can take no connection over: there is none.
      NO_CONNECTION = %w[rack.hijack rack.early_hints].freeze

      # base:: the env of all requests; target:: path and query; others:: the rest of the env
      def self.of(base, target, others)
        path, query = target.split("?", 2)
        base.merge(
          { "REQUEST_METHOD" => "GET", "PATH_INFO" => path, "REQUEST_PATH" => path, "REQUEST_URI" => target,
            "QUERY_STRING" => query.to_s, "REMOTE_ADDR" => "127.0.0.1",
            "rack.hijack?" => false, "rack.after_reply" => [], "rack.response_finished" => [] }, others
        ).tap { |env| NO_CONNECTION.each { |key| env.delete(key) } }
      end
    end
  end
end
