# frozen_string_literal: true

require_relative "machine"

module Bench
  # Measures how much of the processors others used during a round: other programs, and other virtual machines (steal).
  #
  # CPU time of the servers, the load generators, Redis and the bench itself is the bench's own; the rest of the time in which the
  # processors were busy is foreign.
  class Disturbance
    # Cores.
    MOST_FOREIGN = 0.12
    MOST_STEAL = 0.1

    # One moment: clock, and CPU seconds so far of all programs, of other virtual machines, and of the bench's own processes.
    Reading = Struct.new(:at, :busy, :steal, :own, keyword_init: true)

    # trees: the process trees of servers, Redis and backends. Load generators count once they have been waited for.
    def self.read(trees)
      busy, steal = Machine.busy_seconds
      times = Process.times
      own = times.utime + times.stime + times.cutime + times.cstime + trees.sum(&:cpu_seconds)
      Reading.new(at: Process.clock_gettime(Process::CLOCK_MONOTONIC), busy: busy, steal: steal, own: own)
    end

    def initialize
      @seconds = @foreign = @stolen = 0.0
    end

    # Adds the difference between two readings: a slice.
    def add(before, after)
      @seconds += after.at - before.at
      @foreign += (after.busy - before.busy) - (after.own - before.own)
      @stolen += after.steal - before.steal
    end

    # Cores of other programs. Ticks are coarser than CPU clocks, so a quiet round may be slightly below 0.
    def foreign = cores(@foreign)

    # Cores taken by other virtual machines.
    def steal = cores(@stolen)

    def disturbed? = foreign > MOST_FOREIGN || steal > MOST_STEAL

    private

    def cores(seconds) = @seconds.positive? ? [seconds / @seconds, 0.0].max : 0.0
  end
end
