# frozen_string_literal: true

require "capybara"
require "firebrick/server"

module Firebrick
  # `Capybara.server = :firebrick`. Where Puma cannot be loaded, it also registers as `:puma`, the default of Capybara
  # and Rails.
  module Capybara
    # As in Capybara's own server, except that one thread always runs, so that no test waits for it.
    THREADS = "1:4"

    module_function

    # Serves until the process ends. Capybara calls it in its own thread. Requests run in threads of this process,
    # so they can share a transaction with the test.
    def serve(app, port, host, **options)
      Firebrick::Server.new(app, port: port, **settings(host, **options)).run
    end

    # Converts options for Capybara's and Rails' own servers, and adds those of Firebrick::Server.
    def settings(host, **options)
      theirs, own = options.partition { |name, _| name.match?(/\A[A-Z]/) }.map(&:to_h)
      {
        host: theirs[:Host] || host, quiet: theirs.fetch(:Silent, true), environment: "test",
        threads: theirs.fetch(:Threads, THREADS).to_s.sub(/\A0:/, "1:"), **own
      }
    end

    def register
      serve = method(:serve)
      ::Capybara.register_server(:firebrick, &serve)
      ::Capybara.register_server(:puma, &serve) unless puma?
    end

    # Returns whether Puma can be loaded. It is not loaded, because that takes time.
    def puma?
      return true if $LOAD_PATH.resolve_feature_path("puma/server")

      defined?(Gem::Specification) && !Gem::Specification.find_by_path("puma/server").nil?
    end
  end
end

Firebrick::Capybara.register
