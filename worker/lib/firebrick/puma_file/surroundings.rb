# frozen_string_literal: true

module Firebrick
  class PumaFile
    # The surroundings of an evaluation that a file may query: the environment, and the Rails app.
    module Surroundings
      # Returns the environment given by a flag, a variable or the file.
      def environment
        said = [@environment, @options[:environment]].map(&:to_s)
        said.find { |name| !name.empty? }
      end

      # Loads the Rails app's own settings, once. Returns whether there are any. In a server started by Rails they are
      # loaded before Puma evaluates its file.
      def load_rails
        return defined?(::Rails) if @rails_is_loaded

        @rails_is_loaded = true
        application = File.expand_path("config/application.rb")
        return unless File.file?(application)

        # Rails caches the environment.
        ENV["RACK_ENV"] = environment if environment && ENV.fetch("RACK_ENV", "").empty?
        require File.realpath(application)
        defined?(::Rails)
      end
    end
  end
end
