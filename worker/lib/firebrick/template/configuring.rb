# frozen_string_literal: true

module Firebrick
  class Template
    # The step before the app is loaded: evaluates a puma.rb, if there is one.
    module Configuring
      private

      # Returns the message `boot`, after handling any message before it.
      def first_message
        message = @control.wait.first
        message.first == Wire::Order::CONFIGURE ? configure(message[1]) : message
      end

      # Evaluates a puma.rb and returns the next message.
      def configure(arguments)
        require "firebrick/puma_file"
        words = PumaFile.evaluate(*arguments) do
          Template.set_up_bundler
          # `rails server` has loaded Rails, so the file may check for it.
          PumaFile.current.load_rails if ENV["FIREBRICK_RAILS_SERVER"]
        end
        @control.send_message(*words)
        exit!(1) unless words.first == Wire::Report::CONFIGURED
        @control.wait.first
      end
    end
  end
end
