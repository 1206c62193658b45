# frozen_string_literal: true

module Firebrick
  class Template
    # What comes before the app is loaded: a puma.rb, if there is one, is evaluated.
    module Configuring
      private

      # The message `boot`, whatever comes before it.
      def first_message
        message = @control.wait.first
        message.first == "configure" ? configure(message[1]) : message
      end

      # Evaluates a puma.rb and returns the next message.
      def configure(arguments)
        require "firebrick/puma_file"
        words = PumaFile.evaluate(*arguments) do
          Template.set_up_bundler
          # `rails server` has loaded it, so the file may ask whether it is there.
          PumaFile.current.load_rails if ENV["FIREBRICK_RAILS_SERVER"]
        end
        @control.send_message(*words)
        exit!(1) unless words.first == "configured"
        @control.wait.first
      end
    end
  end
end
