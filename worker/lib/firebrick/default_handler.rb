# frozen_string_literal: true

module Firebrick
  # Makes Firebrick a default server. Commands that start a server without a name (`bin/rails server`, `rackup`,
  # Sinatra) use a list kept by Rack, which does not contain Firebrick. With the gem in the bundle, it is added: after
  # the other servers meant for this purpose, and before WEBrick, which is often installed for other reasons.
  module DefaultHandler
    # Picks a server. A list made for this app is left unchanged.
    def pick(server_names)
      names = Array(server_names).map(&:to_s)
      return super unless names.include?("puma")

      super(names.dup.insert(names.index("webrick") || -1, "firebrick"))
    end

    # Installs this into each of Rack's modules that is loaded.
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
