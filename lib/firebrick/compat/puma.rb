# frozen_string_literal: true

require "firebrick/compat/events"
require "firebrick/compat/launcher"
require "firebrick/compat/log_writer"
require "firebrick/compat/puma_stats"

module Firebrick
  # The parts of Puma that a puma.rb, plugins and apps use: `Puma::Plugin`, `Puma::Events`, `Puma::LogWriter`,
  # `Puma.stats_hash`. Those of the gem itself where it is in the bundle; ours where it is not. There is no
  # `Puma::Server`: libraries ask for it to know whether Puma runs.
  module Compat
    # The newest version whose plugins are understood.
    VERSION = "8.0.2"
    # In the place of the gem's files, for `require "puma/plugin"`.
    FILES = File.join(__dir__, "puma_gem")

    class << self
      # Before a puma.rb is evaluated.
      def offer
        gem? ? lend : stand_in
        # Plugins add methods to it.
        ::Puma.const_set(:DSL, PumaFile::DSL) unless ::Puma.const_defined?(:DSL, false)
        ::Puma.instance_variable_set(:@get_stats, PumaStats.new)
      end

      private

      # Whether Puma can be required, once Bundler has chosen what can.
      def gem?
        defined?(::Puma::Const) || $LOAD_PATH.any? { |dir| File.file?(File.join(dir.to_s, "puma/plugin.rb")) }
      end

      # The gem's own files, when they are needed.
      def lend
        Object.const_set(:Puma, Module.new) unless defined?(::Puma)
        { Const: "puma/const", Plugin: "puma/plugin", Plugins: "puma/plugin" }.each do |name, file|
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
        # Those of the gem count before these.
        ::Puma.extend(PumaStats::Methods)
      end
    end
  end
end
