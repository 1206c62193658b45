# frozen_string_literal: true

# Stands in for the gem when it is not in the bundle: the classes from which plugins are made.
module Puma
  class UnknownPlugin < RuntimeError; end

  # The machine, for configuration files that branch on it.
  IS_JRUBY = RUBY_ENGINE == "jruby"
  IS_MRI = RUBY_ENGINE == "ruby"
  IS_OSX = RUBY_PLATFORM.include?("darwin")
  IS_LINUX = RUBY_PLATFORM.include?("linux")
  IS_ARM = RUBY_PLATFORM.match?(/arm|aarch/)
  IS_WINDOWS = Gem.win_platform?
  HAS_FORK = Process.respond_to?(:fork)
  HAS_SSL = HAS_UNIX_SOCKET = true

  # Puma's version constants, for plugins that check them.
  module Const
    VERSION = Firebrick::Compat::VERSION
    PUMA_VERSION = VERSION
  end

  # The loaded plugins and their background blocks.
  class PluginRegistry
    def initialize
      @plugins = {}
      @background = []
    end

    def register(name, plugin)
      @plugins[name] = plugin
    end

    # Returns the plugin of this name; loads its file from a gem if necessary.
    def find(name)
      name = name.to_s
      @plugins[name] || begin
        require "puma/plugin/#{name}"
        @plugins[name] || raise(UnknownPlugin, "puma/plugin/#{name}.rb does not register a plugin of this name")
      end
    rescue LoadError => e
      raise unless e.path == "puma/plugin/#{name}"

      raise UnknownPlugin, "there is no plugin #{name}: no gem in the bundle has a file puma/plugin/#{name}.rb"
    end

    def add_background(block)
      @background << block
    end

    def fire_background
      @background.each_with_index do |block, index|
        Thread.new do
          Thread.current.name = "plugin #{index}"
          block.call
        end
      end
    end
  end

  Plugins = PluginRegistry.new

  # The base class of plugins, which are created with `Puma::Plugin.create { }` in a file called puma/plugin/NAME.rb.
  class Plugin
    def self.create(&block)
      path = caller_locations(1, 1).first.path
      name = path[%r{puma/plugin/([^/]+)\.rb\z}, 1] || File.basename(path, ".rb")
      Plugins.register(name, Class.new(self, &block))
    end

    def in_background(&block)
      Plugins.add_background(block)
    end
  end
end
