# frozen_string_literal: true

module Firebrick
  class Template
    # Checks that this is CRuby. Other Rubies cannot fork, so they cannot be a template.
    module Engine
      module_function

      # The front asks for the kind of Ruby only when the setting names one, so it is checked here, too.
      def check
        return if RUBY_ENGINE == "ruby"

        abort "firebrick: this ruby is #{RUBY_ENGINE} #{RUBY_ENGINE_VERSION}, which cannot fork. Name it in " \
              "firebrick.toml (ruby = \"#{RUBY_ENGINE}\"), and each worker is started by itself"
      end

      # Says that workers are slower than they could be.
      def explain
        return unless NATIVE_MISSING

        warn "firebrick: #{NATIVE_MISSING}. The worker in plain Ruby serves instead, which takes about five times " \
             "the processor time for a small request; #{NATIVE_ADVICE}"
      end
    end
  end
end
