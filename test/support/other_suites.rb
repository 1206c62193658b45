# frozen_string_literal: true

# Suites that run at the same time, each with a lock on the file that TEST_AGAIN_LOCK names. Without it there are none. A suite that has tests to run
# once more, alone, waits for the others.
class OtherSuites
  # Seconds; a bound on waiting.
  PATIENCE = 600

  def initialize(path = ENV.fetch("TEST_AGAIN_LOCK", nil))
    @lock = path && File.open(path, File::RDWR | File::CREAT)
    @lock&.flock(File::LOCK_SH)
  end

  # Until they have finished, or wait as well.
  def let_finish
    return unless @lock

    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE
    sleep 0.2 until @lock.flock(File::LOCK_EX | File::LOCK_NB) || Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
  end
end
