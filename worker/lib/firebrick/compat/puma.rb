# frozen_string_literal: true

require "firebrick/compat/events"
require "firebrick/compat/launcher"
require "firebrick/compat/log_writer"
require "firebrick/compat/puma_stats"

module Firebrick
  # The parts of Puma that a puma.rb, plugins and apps use: `Puma::Plugin`, `Puma::Events`, `Puma::LogWriter`,
  # `Puma.stats_hash`. They come from the gem if it is in the bundle, otherwise from here. There is no
  # `Puma::Server`, because libraries check for it to detect that Puma runs.
  module Compat
    # The newest version of Puma whose plugins are supported.
    VERSION = "8.0.2"
    # Stand-ins for the gem's files, for `require "puma/plugin"`.
    FILES = File.join(__dir__, "puma_gem")

    class << self
      # Makes the constants available. Call it before a puma.rb is evaluated.
      def offer
        gem? ? lend : stand_in
        # Plugins add methods to the DSL.
        ::Puma.const_set(:DSL, PumaFile::DSL) unless ::Puma.const_defined?(:DSL, false)
        ::Puma.instance_variable_set(:@get_stats, PumaStats.new)
      end

      private

      # Returns whether Puma can be required, after Bundler has set the load path.
      def gem?
        defined?(::Puma::Const) || $LOAD_PATH.any? { |dir| File.file?(File.join(dir.to_s, "puma/plugin.rb")) }
      end

      # Loads the gem's own files on first use.
      def lend
        Object.const_set(:Puma, Module.new) unless defined?(::Puma)
        machine = %i[IS_JRUBY IS_MRI IS_OSX IS_LINUX IS_ARM IS_WINDOWS HAS_FORK].to_h { |name| [name, "puma/detect"] }
        { Const: "puma/const", Plugin: "puma/plugin", Plugins: "puma/plugin", **machine }.each do |name, file|
          ::Puma.autoload(name, file) unless ::Puma.const_defined?(name, false)
        end
        fill
      end

      def stand_in
        $LOAD_PATH << FILES
        require "firebrick/compat/puma_module"
        fill
      end

      def fill
        { Events: Events, LogWriter: LogWriter }.each do |name, ours|
          ::Puma.const_set(name, ours) unless ::Puma.const_defined?(name, false)
        end
        # The gem's own methods take precedence over these.
        ::Puma.extend(PumaStats::Methods)
      end
    end
  end
end
