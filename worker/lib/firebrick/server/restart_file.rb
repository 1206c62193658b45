# frozen_string_literal: true

require "rbconfig"
require "shellwords"

module Firebrick
  class Server
    # `rails restart` touches tmp/restart.txt. Then a server started by `rails server` ends, and its command is executed
    # again in this process, as with Puma's plugin :tmp_restart. The Ruby stays the same.
    class RestartFile
      # Seconds between two checks.
      PERIOD = 0.5

      # dir::     the app's folder
      # command:: the command by which Rails restarts: a Ruby file and its arguments
      def initialize(dir, command)
        @path = File.join(dir, "tmp", "restart.txt")
        @command = command
        @touched = changed_at
        @restart = false
      end

      # Runs the server. Returns when it has ended, unless the file was touched.
      def run(server, &block)
        watcher = Thread.new { watch(server) }
        watcher.name = "firebrick restart.txt"
        server.run(&block)
        exec(RbConfig.ruby, *@command.shellsplit) if @restart
      ensure
        watcher&.kill
      end

      private

      def watch(server)
        sleep PERIOD until changed_at != @touched && server.running?
        Report.log("firebrick: #{@path} was touched: restarting")
        @restart = true
        server.stop
      end

      def changed_at
        File.mtime(@path)
      rescue SystemCallError
        nil
      end
    end
  end
end
