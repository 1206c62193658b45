# frozen_string_literal: true

module Firebrick
  module Pure
    # Field names that travel as one byte, in the order of crates/wire/src/names.rs: the code of a name is its position
    # plus one.
    NAMES = %w[
      host user-agent accept accept-language accept-encoding accept-charset connection cookie content-type
      content-length cache-control pragma referer origin upgrade upgrade-insecure-requests authorization
      proxy-authorization if-none-match if-modified-since if-match if-unmodified-since if-range range date dnt te
      trailer transfer-encoding expect from via forwarded x-forwarded-for x-forwarded-proto x-forwarded-host
      x-forwarded-port x-forwarded-ssl x-real-ip x-request-id x-request-start x-queue-start x-requested-with
      x-csrf-token x-http-method-override sec-ch-ua sec-ch-ua-mobile sec-ch-ua-platform sec-fetch-dest
      sec-fetch-mode sec-fetch-site sec-fetch-user sec-gpc sec-websocket-key sec-websocket-version
      sec-websocket-protocol sec-websocket-extensions priority purpose sec-purpose save-data keep-alive turbo-frame
      traceparent tracestate cdn-loop cf-connecting-ip cf-ray last-event-id content-encoding
    ].freeze

    # The env keys, by code.
    KEYS = ["", *NAMES].map do |name|
      key = name.upcase.tr("-", "_")
      (%w[CONTENT_TYPE CONTENT_LENGTH].include?(key) ? key : "HTTP_#{key}").freeze
    end.freeze
  end
end
