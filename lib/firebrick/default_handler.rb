# frozen_string_literal: true

module Firebrick
  # Who starts a server without naming one (`bin/rails server`, `rackup`, Sinatra) gets one of a list that Rack keeps,
  # in which this one is not. With the gem in the bundle it is: behind those that were put there for the same purpose,
  # before WEBrick, which is often there for another one.
  module DefaultHandler
    # A list that somebody has made for this very app is left as it is.
    def pick(server_names)
      names = Array(server_names).map(&:to_s)
      return super unless names.include?("puma")

      super(names.dup.insert(names.index("webrick") || -1, "firebrick"))
    end

    # For each of Rack's modules that is there.
    def self.install
      handlers.each { |handler| handler.singleton_class.prepend(self) unless handler.singleton_class.include?(self) }
    end

    def self.handlers
      require "rackup/handler" if Gem.loaded_specs.key?("rackup")
      rack2 = defined?(::Rack) && (::Rack.autoload?(:Handler) || ::Rack.const_defined?(:Handler, false))
      [(::Rackup::Handler if defined?(::Rackup::Handler)), (::Rack::Handler if rack2)].compact.uniq
    rescue LoadError
      []
    end
  end
end
