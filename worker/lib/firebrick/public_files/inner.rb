# frozen_string_literal: true

module Firebrick
  module PublicFiles
    # Finds the apps inside a Rack app: the next one, or several.
    module Inner
      # Wrappers that do not affect requests.
      SHELLS = %w[
        ActionDispatch::MiddlewareStack::InstrumentationProxy NewRelic::Agent::Instrumentation::MiddlewareProxy
        Sinatra::Wrapper
      ].freeze

      USUAL = %i[@app @middleware @stack @target].freeze

      module_function

      # Returns the name of a middleware's class; of an app that is a class itself, its own name.
      def name(app)
        kind = app.is_a?(Module) ? app : app.class
        Module.instance_method(:name).bind(kind).call || "an anonymous class"
      end

      def variable(object, name)
        Kernel.instance_method(:instance_variable_get).bind(object).call(name)
      end

      # Returns whether an object behaves as its class does by default: the class is a library's, no module is
      # prepended to it, the app has replaced none of its methods, and the object has no methods of its own.
      def unchanged?(app)
        call = Kernel.instance_method(:method).bind(app).call(:call)
        Kernel.instance_method(:singleton_methods).bind(app).call.empty? &&
          [app.class, call.owner].all? { |kind| kind.ancestors.first.equal?(kind) && of_a_library?(kind) }
      rescue NameError
        false
      end

      def of_a_library?(kind)
        names = kind.instance_methods(false) + kind.private_instance_methods(false)
        names.none? { |name| of_the_app?(kind.instance_method(name).source_location&.first) }
      end

      # Gems may be in the app's folder, too.
      def of_the_app?(file)
        return false unless file

        here = "#{Dir.pwd}/"
        path = File.realpath(file)
        path.start_with?(here) && !path.delete_prefix(here).match?(%r{(\A|/)gems/})
      rescue SystemCallError
        # Evaluated text.
        false
      end

      # Returns whether the object only wraps the next one.
      def shell?(app)
        return true if app.is_a?(Class)

        SHELLS.include?(name(app)) || name(app).start_with?("Firebrick::") || rails?(app)
      end

      def rails?(app)
        defined?(::Rails::Engine) ? app.is_a?(::Rails::Engine) : false
      end

      # Returns the next app; nil at the end.
      def of(app)
        case app
        when Proc, Method then nil
        when Class then of_class(app)
        else rails?(app) ? app.app : of_object(app)
        end
      end

      # Sinatra and Roda apps are classes that build their app once.
      def of_class(app)
        return app.prototype if sinatra?(app)

        app.app if app.ancestors.any? { |one| name(one) == "Roda" } && app.respond_to?(:app)
      end

      def sinatra?(app)
        defined?(::Sinatra::Base) ? app <= ::Sinatra::Base : false
      end

      # Uses the usual names of the variable, else any variable with a callable value.
      def of_object(app)
        names = Kernel.instance_method(:instance_variables).bind(app).call
        named = USUAL.find { |name| names.include?(name) }
        candidates = named ? [variable(app, named)] : names.map { |name| variable(app, name) }
        candidates << app.to_a.first if app.is_a?(Struct)
        candidates.find { |one| app?(one) }
      end

      def app?(object)
        Kernel.instance_method(:respond_to?).bind(object).call(:call) && !object.is_a?(Proc) && !object.is_a?(Method)
      rescue StandardError
        false
      end

      def branches?(app)
        %w[Rack::URLMap Rack::Cascade].include?(name(app)) && !app.is_a?(Module)
      end

      def cascade(app)
        Array(variable(app, :@apps))
      end

      # Returns pairs of a path and an app. Mappings for a host are left to the app.
      def mounts(app)
        Array(variable(app, :@mapping)).map do |host, location, _, inner|
          return [] if host

          [location.to_s, inner]
        end
      end
    end
  end
end
