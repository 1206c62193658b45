# frozen_string_literal: true

require "tmpdir"
require_relative "interleaved"

module Bench
  # The CPU time of each request of several servers, and its ratio to that of the first one, as rows of a Markdown table.
  class Comparison
    # digits: of the CPU time, in microseconds.
    def initialize(rounds:, seconds: 1, digits: 1)
      @rounds = rounds
      @seconds = seconds
      @row = "| %<scenario>s | %<name>s | %<cost>.#{digits}f µs | %<median>.3f | %<low>.3f to %<high>.3f |"
    end

    # Measures a scenario; servers: { name => Peer or command template }.
    def rows(scenario, servers)
      Dir.mktmpdir("firebrick-compare") do |dir|
        run = Interleaved.new(scenario, servers, dir: dir, seconds: @seconds, rounds: @rounds).run
        servers.keys.map do |name|
          format(@row, scenario: scenario.name, name: name, cost: run.cost(name), **run.ratio(name, servers.keys.first).to_h)
        end
      end
    end
  end
end
