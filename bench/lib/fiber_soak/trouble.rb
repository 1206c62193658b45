# frozen_string_literal: true

class FiberSoak
  # Disturbs the server from time to time: reloads it, suspends a worker for a while, or kills one.
  class Trouble
    KINDS = %i[reload stop stop kill reload].freeze
    # Seconds after which an event may have no effect any more.
    LATER = 5
    # Errors that clients may see of suspended or killed workers. A reload causes none.
    SEEN = /\Astatus 50[234]\z|\AEOFError|ECONNRESET|EPIPE/

    attr_reader :events, :failures

    def initialize(servers, every, seed)
      @servers = servers
      @every = every
      @random = Random.new(seed)
      @events = []
      @failures = []
      @harmed = []
    end

    # Runs until `over` on the clock.
    def run(over)
      number = -1
      while now + @every < over
        sleep @every
        kind = KINDS[(number += 1) % KINDS.size]
        began = now
        note = send(kind)
        @events << [kind, began, now + LATER, note]
      end
    end

    # Returns whether a response between two times may be one of `SEEN`, because a worker was suspended or killed.
    def excuses?(began, ended, problem)
      problem.match?(SEEN) && @events.any? { |kind, from, to| kind != :reload && began <= to && ended >= from }
    end

    def harmed?(pid) = @harmed.include?(pid)

    private

    def reload
      good, text = @servers.reload
      @failures << text unless good
      text.lines.last
    end

    def stop
      pid = victim or return
      seconds = @random.rand(8.0)
      Process.kill("STOP", pid)
      sleep seconds
      Process.kill("CONT", pid)
      format("%d for %.1f s", pid, seconds)
    rescue Errno::ESRCH
      format("%d, which was killed within %.1f s", pid, seconds)
    end

    def kill
      pid = victim or return
      Process.kill("KILL", pid)
      pid.to_s
    rescue Errno::ESRCH
      "gone"
    end

    def victim
      @servers.workers.sample(random: @random).tap { |pid| @harmed << pid }
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
