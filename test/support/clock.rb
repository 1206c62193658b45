# frozen_string_literal: true

# Waiting with a deadline. Deadlines are generous: they tell a hang from a slow machine, and measure nothing.

module Clock
  module_function

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  # Seconds that the block takes.
  def elapsed
    began = now
    yield
    now - began
  end

  # Polls until the block is true and returns its value; after +within+ seconds nil, or a failure that mentions +what+, which may be
  # a block that says it then.
  def wait_until(what = nil, within: 10, every: 0.02)
    deadline = now + within
    loop do
      value = yield
      return value if value
      break if now > deadline

      sleep every
    end
    raise Minitest::Assertion, "waited #{within} s for: #{what.respond_to?(:call) ? what.call : what}" if what
  end
end
