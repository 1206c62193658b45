# frozen_string_literal: true

require "firebrick/public_files/inner"

module Firebrick
  module PublicFiles
    # Middleware that the front can stand in for: it adds fields to responses, or refuses requests. Each effect is
    # described by a line. A request that the front cannot judge goes to the app.
    module Effects
      ASSUME = "ActionDispatch::AssumeSSL"
      SESSIONS = %w[Rack::Session::Cookie Rack::Session::Pool Rack::Session::Memcache Rack::Session::Dalli
                    ActionDispatch::Session::CookieStore ActionDispatch::Session::CacheStore].freeze
      # With these options each response sets a cookie.
      ALWAYS = %i[max_age renew drop defer expire_after].freeze

      METHODS = {
        ASSUME => :nothing,
        "ActionDispatch::SSL" => :ssl,
        "ActionDispatch::HostAuthorization" => :hosts_of_rails,
        "Rack::ETag" => :etag,
        "Rack::Protection::HostAuthorization" => :hosts_of_rack,
        "Rack::Protection::FrameOptions" => :frame_options,
        "Rack::Protection::XSSHeader" => :xss_header,
        "Rack::Protection::IPSpoofing" => :ip_spoofing,
        "Rack::Protection::JsonCsrf" => :json_csrf,
        "Rack::Protection::StrictTransport" => :strict_transport,
        "Rack::Protection::ReferrerPolicy" => :referrer_policy
      }.merge(SESSIONS.to_h { |name| [name, :session] }).freeze

      class << self
        # Returns the lines; nil when the effect is not known.
        def of(app, name)
          method = METHODS[name]
          method && send(method, app)
        end

        private

        def nothing(_)
          []
        end

        # The middleware may redirect requests without TLS.
        def ssl(app)
          value = Inner.variable(app, :@hsts_header)
          [["https"], *([["default", "all", "Strict-Transport-Security", value]] if value)]
        end

        def hosts_of_rails(app)
          permissions = Inner.variable(app, :@permissions)
          return [] if permissions.respond_to?(:empty?) && permissions.empty?

          hosts(::Rails.application.config.hosts)
        end

        def hosts_of_rack(app)
          permitted = Array(app.options[:permitted_hosts])
          permitted.empty? ? [] : hosts(permitted)
        end

        # Returns the permitted hosts. The front does not serve a name that only Ruby can match.
        def hosts(permitted)
          known = Array(permitted).map { |host| host.is_a?(String) ? host : any_address(host) }.compact
          return if known.empty?

          [%w[unless X-Forwarded-Host], %w[unless Forwarded], *known.map { |host| ["host", host] }]
        end

        # A network of all addresses is the only one that needs no arithmetic.
        def any_address(network)
          "any-address" if defined?(::IPAddr) && network.is_a?(::IPAddr) && network.prefix.zero?
        end

        # If configured so, the middleware adds a field to responses without a digest.
        def etag(app)
          [] if Inner.variable(app, :@no_cache_control).nil?
        end

        def session(app)
          options = Inner.variable(app, :@default_options)
          [] if options.respond_to?(:values_at) && options.values_at(*ALWAYS).none?
        end

        def frame_options(app)
          [["default", "markup", "X-Frame-Options", app.frame_options]]
        end

        def xss_header(app)
          lines = [["default", "markup", "X-XSS-Protection", "1; mode=#{app.options[:xss_mode]}"]]
          lines << %w[default all X-Content-Type-Options nosniff] if app.options[:nosniff]
          lines
        end

        # The middleware compares two fields with a third.
        def ip_spoofing(_)
          [["spoofing"]]
        end

        def json_csrf(_)
          [%w[unless Referer application/json]]
        end

        def strict_transport(app)
          [["default", "all", "Strict-Transport-Security", app.strict_transport]]
        end

        def referrer_policy(app)
          [["default", "all", "Referrer-Policy", app.options[:referrer_policy]]]
        end
      end
    end
  end
end
