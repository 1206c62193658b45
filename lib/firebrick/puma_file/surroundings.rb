# frozen_string_literal: true

module Firebrick
  class PumaFile
    # What a file may ask about where it is evaluated: the environment, and the Rails app.
    module Surroundings
      # The environment, if a flag, a variable or the file says it.
      def environment
        said = [@environment, @options[:environment]].map(&:to_s)
        said.find { |name| !name.empty? }
      end

      # Loads the Rails app's own settings, once: whether there are any. In a server that Rails starts they are loaded
      # before Puma evaluates its file.
      def load_rails
        return defined?(::Rails) if @rails_is_loaded

        @rails_is_loaded = true
        application = File.expand_path("config/application.rb")
        return unless File.file?(application)

        # Rails keeps the answer.
        ENV["RACK_ENV"] = environment if environment && ENV.fetch("RACK_ENV", "").empty?
        require File.realpath(application)
        defined?(::Rails)
      end
    end
  end
end
