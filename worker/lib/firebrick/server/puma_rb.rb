# frozen_string_literal: true

require "firebrick/puma_file"

module Firebrick
  class Server
    # The folder's puma.rb, in a process that has loaded its app already and is the worker itself. It is evaluated once
    # per process, however often a server is started. As in Puma's single mode, blocks for the workers of a cluster do
    # not run. Plugins do not run either, because they run in services, and nothing is forked here.
    class PumaRb
      # Plugins whose work the server does itself.
      BUILT_IN = %w[tmp_restart].freeze

      # Evaluates the file. Returns it, nil if it was refused, and the `configured` or `unconfigured` message for the
      # front.
      def self.evaluate(path, workers, environment = "")
        current = PumaFile.current
        return [new(current), PumaFile.words(current)] if current&.path == path

        words = PumaFile.evaluate(path, workers, environment)
        return [nil, words] unless words.first == "configured"

        [new(PumaFile.current).tap(&:install), words]
      end

      def initialize(file)
        @file = file
        @events = Compat::Events.new
      end

      def install
        @file.redirect_output
        @file.install_hooks
        left_out = @file.background.plugins - BUILT_IN
        left_out.each do |name|
          Report.log("firebrick: #{@file.path}: plugin :#{name} does not run in a server that is a part of this " \
                     "process; type `firebrick` for a server that runs it")
        end
      end

      # Wraps the app to apply the file's settings about requests.
      def wrap(app)
        @file.wrap(app)
      end

      # Runs the blocks for a server that listens.
      def booted
        @file.background.subscribe(@events)
        fire(:after_booted)
      end

      # Runs the blocks for a server that has ended.
      def stopped
        fire(:after_stopped)
      end

      private

      def fire(name)
        @events.fire(name)
      rescue StandardError => e
        Report.log("firebrick: #{Exchange.name}: #{name} of puma.rb: #{Report.text(e)}")
      end
    end
  end
end
