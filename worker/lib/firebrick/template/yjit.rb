# frozen_string_literal: true

require "rbconfig"

module Firebrick
  class Template
    # Ruby's compiler (`rack.yjit`). Since Ruby 3.3 it can be switched on at any time, which is done when the app is
    # loaded: code that runs only once is not worth compiling. Before, it can only be switched on when Ruby starts.
    module Yjit
      class << self
        # Restarts this program with YJIT, in the same process, if it is wanted and has to be switched on now.
        def choose(wanted, *arguments)
          return unless wanted == "on" && built? && !switchable? && !enabled?

          exec(RbConfig.ruby, "--yjit", *arguments)
        end

        # Switches YJIT on if the setting says so. Returns facts for `booted`: the Ruby, whether it compiles, and
        # why not if that is configured.
        def apply(wanted)
          RubyVM::YJIT.enable if wants?(wanted) && switchable? && !enabled?
          note = "YJIT is off, although rack.yjit is \"on\": #{reason}" if wanted == "on" && !enabled?
          { Wire::Booted::RUBY => "#{RUBY_ENGINE} #{RUBY_VERSION}#{' +YJIT' if enabled?}",
            Wire::Booted::NOTE => note }.compact
        end

        def enabled?
          built? && RubyVM::YJIT.enabled?
        end

        private

        def wants?(wanted)
          wanted == "on" || (wanted == "auto" && !decided_by_rails?)
        end

        def built?
          defined?(RubyVM::YJIT) ? true : false
        end

        def switchable?
          built? && RubyVM::YJIT.respond_to?(:enable)
        end

        # Since 7.2 Rails has its own setting, which it has applied when the app is loaded.
        def decided_by_rails?
          defined?(::Rails.application) && ::Rails.application&.config.respond_to?(:yjit)
        end

        def reason
          return "this Ruby (#{RUBY_ENGINE} #{RUBY_VERSION}) was built without it" unless built?
          return "Ruby #{RUBY_VERSION} has not switched it on" if switchable?

          "Ruby #{RUBY_VERSION} can only do it when it starts; set RUBYOPT=--yjit"
        end
      end
    end
  end
end
