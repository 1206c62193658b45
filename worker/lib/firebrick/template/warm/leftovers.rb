# frozen_string_literal: true

require "timeout"
require "firebrick/template/boot_threads"
require "firebrick/template/warm/connections"

module Firebrick
  class Template
    module Warm
      # The traces of requests in a process that its forks would inherit: a thread that does not run in them, a
      # connection that they would share.
      module Leftovers
        class << self
          # Runs the block, and closes connections of known libraries.
          #
          # @return [String, nil] the first of its leftovers, in words
          def of
            # Timeout's own thread is not one of the app's.
            Timeout.timeout(1) { nil }
            threads = BootThreads.new
            connections = Connections.new
            yield
            Connections.close
            thread(threads) || connection(connections.left)
          end

          private

          def thread(threads)
            started = threads.started.first
            "a thread runs on: #{started.inspect}" if started
          end

          def connection(left)
            return "open connections cannot be found without /proc" unless left

            "a connection to #{left.first} stays open" if left.any?
          end
        end
      end
    end
  end
end
