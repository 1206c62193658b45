# frozen_string_literal: true

# Waiting with a deadline. Deadlines are generous: they tell "never" from "slowly", they measure nothing.

module Clock
  module_function

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  # Seconds that the block took.
  def elapsed
    began = now
    yield
    now - began
  end

  # Polls until the block is true and returns its value; nil (or a failure that says +what+) after +within+ seconds.
  def wait_until(what = nil, within: 10, every: 0.02)
    deadline = now + within
    loop do
      value = yield
      return value if value
      break if now > deadline

      sleep every
    end
    raise Minitest::Assertion, "waited #{within} s in vain: #{what}" if what
  end
end
