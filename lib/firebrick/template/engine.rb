# frozen_string_literal: true

module Firebrick
  class Template
    # Only CRuby can be a template.
    module Engine
      module_function

      # The front has not asked which Ruby this is: it does so when the setting names one.
      def check
        return if RUBY_ENGINE == "ruby"

        abort "firebrick: this ruby is #{RUBY_ENGINE} #{RUBY_ENGINE_VERSION}, which cannot fork. Name it in " \
              "firebrick.toml (ruby = \"#{RUBY_ENGINE}\"), and each worker is started by itself"
      end
    end
  end
end
