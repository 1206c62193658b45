# frozen_string_literal: true

# An instance of Redmine under a server: Firebrick, started in Redmine's folder as after installing both, or
# Puma.

require "socket"
require "support/quick_rails"
require "support/redmine/instance"
require "support/server"

module Redmine
  module Served
    attr_reader :instance

    def initialize(instance)
      super(directory: instance.dir, env: Instance::ENVIRONMENT.merge(QuickRails.environment, "RAILS_ENV" => "production"))
      @instance = instance
    end

    def report
      "#{super}production.log (tail):\n#{@instance.log.lines.last(40).join}"
    end
  end

  # Firebrick with its port and no other option.
  class Firebrick < Server
    prepend Served

    private

    def command
      [self.class.binary, "-p", "0"]
    end
  end

  # Firebrick with examples/redmine, which lets it keep pages of visitors.
  class Cached < Firebrick
    def initialize(instance)
      instance.add_examples("public_pages.rb", "warm_up.rb")
      super
    end

    private

    def command
      [*super, "-C", File.join(Instance::EXAMPLE, "firebrick.toml")]
    end
  end

  class Puma < Server
    prepend Served

    # Ignores a configuration file in Redmine's folder.
    def command
      ["puma", "-C", "-", "-b", "tcp://127.0.0.1:0", "-e", "production", "-t", "1:3", "-w", "2", "--preload"]
    end

    private

    # Puma exits by the signal that it was sent.
    def end_process
      Process.kill("TERM", @pid) if running?
      wait_until(within: 20) { !running? }
      running? ? ["Puma did not end within 20 s"] : []
    end
  end
end
