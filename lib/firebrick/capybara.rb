# frozen_string_literal: true

require "capybara"
require "firebrick/server"

module Firebrick
  # `Capybara.server = :firebrick`. Where Puma cannot be loaded it is `:puma`, too, which is what Capybara and Rails use
  # unless they are told otherwise.
  module Capybara
    # As Capybara's own server, which no test should wait for.
    THREADS = "1:4"

    module_function

    # Serves until the process ends; Capybara calls it in a thread of its own. Requests run in threads of this process,
    # so they can share a transaction with the test.
    def serve(app, port, host, **options)
      Firebrick::Server.new(app, port: port, **settings(host, **options)).run
    end

    # Options of Capybara's and Rails' own servers, and those of Firebrick::Server.
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

    # Whether Puma could be loaded; it is not, because that takes time.
    def puma?
      return true if $LOAD_PATH.resolve_feature_path("puma/server")

      defined?(Gem::Specification) && !Gem::Specification.find_by_path("puma/server").nil?
    end
  end
end

Firebrick::Capybara.register
