# frozen_string_literal: true

# Waiting with a deadline. Deadlines are generous: they distinguish a hang from a slow machine, and measure nothing.

module Clock
  module_function

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  # Returns the seconds that the block takes.
  def elapsed
    began = now
    yield
    now - began
  end

  # Polls until the block is true and returns its value, less often after a second: the questions of one test that waits
  # for a minute took a whole processor. After +within+ seconds returns nil, or fails with a message that mentions +what+, which may
  # be a block that returns the text then.
  def wait_until(what = nil, within: 10, every: 0.02)
    began = now
    deadline = began + within
    loop do
      value = yield
      return value if value
      break if now > deadline

      sleep(now - began < 1 ? every : [every, 0.1].max)
    end
    raise Minitest::Assertion, "waited #{within} s for: #{what.respond_to?(:call) ? what.call : what}" if what
  end
end
