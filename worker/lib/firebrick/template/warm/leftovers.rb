# frozen_string_literal: true

require "timeout"
require "firebrick/template/warm/connections"

module Firebrick
  class Template
    module Warm
      # What requests leave behind in a process, and its forks would inherit: a thread that does not run in them, a
      # connection that they would share.
      module Leftovers
        class << self
          # Runs the block, and closes connections of known libraries.
          #
          # @return [String, nil] the first of its leftovers, in words
          def of
            # Timeout's own thread is not one of the app's.
            Timeout.timeout(1) { nil }
            threads = Thread.list
            connections = Connections.new
            yield
            Connections.close
            thread(threads) || connection(connections.left)
          end

          private

          def thread(before)
            started = (Thread.list - before).find { |thread| thread.alive? && !fork_safe?(thread) }
            "a thread runs on: #{started.inspect}" if started
          end

          def fork_safe?(thread)
            thread.thread_variable_get(:fork_safe) || thread[:fork_safe]
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
