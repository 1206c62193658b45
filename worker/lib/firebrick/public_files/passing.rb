# frozen_string_literal: true

require "firebrick/public_files/effects"
require "firebrick/public_files/inner"

module Firebrick
  module PublicFiles
    # Tracks the middleware that a request for a file passes before it reaches the one that sends files.
    class Passing
      # Middleware, by name, that makes no difference for an existing file, or whose work the front does itself.
      NEUTRAL = %w[
        ActionDispatch::ActionableExceptions ActionDispatch::Callbacks ActionDispatch::DebugExceptions
        ActionDispatch::DebugLocks ActionDispatch::Executor ActionDispatch::Reloader ActionDispatch::RemoteIp
        ActionDispatch::RequestId ActionDispatch::ServerTiming ActionDispatch::ShowExceptions
        ActiveSupport::Cache::Strategy::LocalCache::Middleware Rails::Rack::Logger Rails::Rack::SilenceRequest
        Propshaft::QuietAssets Sprockets::Rails::QuietAssets
        Rack::Chunked Rack::CommonLogger Rack::ConditionalGet Rack::ContentLength Rack::ContentType Rack::Deflater
        Rack::Head Rack::Lint Rack::Lock Rack::Logger Rack::MethodOverride Rack::NullLogger Rack::Reloader
        Rack::RewindableInput::Middleware Rack::Runtime Rack::Sendfile Rack::ShowExceptions Rack::ShowStatus
        Rack::TempfileReaper Rack::Timeout RequestStore::Middleware
        Sinatra::CommonLogger Sinatra::ExtendedRack Sinatra::Middleware::Logger Sinatra::ShowExceptions
        Rack::Protection::AuthenticityToken Rack::Protection::FormToken Rack::Protection::HttpOrigin
        Rack::Protection::PathTraversal Rack::Protection::RemoteReferrer Rack::Protection::RemoteToken
        Airbrake::Rack::Middleware Appsignal::Rack::EventMiddleware Appsignal::Rack::SinatraInstrumentation
        Datadog::Contrib::Rack::TraceMiddleware Datadog::Tracing::Contrib::Rack::TraceMiddleware ElasticAPM::Middleware
        Honeybadger::Rack::ErrorNotifier NewRelic::Rack::AgentHooks
        OpenTelemetry::Instrumentation::Rack::Middlewares::TracerMiddleware
        OpenTelemetry::Instrumentation::Rack::Middlewares::Stable::TracerMiddleware
        OpenTelemetry::Instrumentation::Rack::Middlewares::Old::TracerMiddleware
        Prometheus::Middleware::Collector PrometheusExporter::Middleware Raven::Rack
        Sentry::Rack::CaptureExceptions Sentry::Rails::CaptureExceptions Skylight::Middleware
      ].to_h { |name| [name, true] }.freeze

      # The lines that a rule needs besides its own.
      attr_reader :lines
      # The first middleware that may refuse or change the responses behind it.
      attr_reader :obstacle

      def initialize
        @lines = []
      end

      def initialize_copy(other)
        super
        @lines = other.lines.dup
      end

      # Records that the request passes a middleware.
      def pass(app)
        return if @obstacle || Inner.shell?(app)

        name = Inner.name(app)
        return @obstacle = name unless Inner.unchanged?(app)

        # Behind AssumeSSL, Rails treats every request as one over TLS.
        @assumed ||= name == Effects::ASSUME
        effect = NEUTRAL[name] ? [] : Effects.of(app, name)
        effect ? add(effect) : @obstacle = name
      end

      private

      def add(effect)
        @lines.concat(@assumed ? effect.reject { |verb,| verb == "https" } : effect)
      end
    end
  end
end
