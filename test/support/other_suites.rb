# frozen_string_literal: true

# Suites that run at the same time. Each holds a lock on the file named by TEST_AGAIN_LOCK; without the variable there are none. A suite that has
# to run failed tests again, alone, waits for the others.
class OtherSuites
  # The longest wait, in seconds.
  PATIENCE = 600

  def initialize(path = ENV.fetch("TEST_AGAIN_LOCK", nil))
    @lock = path && File.open(path, File::RDWR | File::CREAT)
    @lock&.flock(File::LOCK_SH)
  end

  # Waits until the others have finished, or wait as well.
  def let_finish
    return unless @lock

    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE
    sleep 0.2 until @lock.flock(File::LOCK_EX | File::LOCK_NB) || Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
  end
end
