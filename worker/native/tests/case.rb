# frozen_string_literal: true

require "minitest"
require "json"
require_relative "fake_front"
require_relative "pure"

# The base class of the worker's tests.
class Case < Minitest::Test
  def setup
    reason = Pure.difference(self)
    skip "in plain Ruby: #{reason}" if reason
  end

  # An app whose response is the value of the Ruby code in +text+.
  def app(text)
    "run lambda { |env|\n#{text}\n}\n"
  end

  # Starts one template and one worker; afterwards the template's log must contain no internal errors.
  def serve(rackup, **options)
    FakeFront.open(rackup, **options) do |front, worker|
      yield worker, front
      refute_match(/panicked|internal error|\[BUG\]/, front.log)
    end
  end

  # Skips a test that holds only for threads that serve one request at a time, as all do unless TEST_FIBERS is set.
  def threads_only(why)
    skip why unless ENV.fetch("TEST_FIBERS", "0") == "0"
  end

  # Skips a test of what only the implementation for Linux does.
  def linux_only(why)
    portable = ENV["RUSTFLAGS"].to_s.include?("firebrick_portable")
    skip why if portable || !RbConfig::CONFIG["host_os"].include?("linux")
  end

  def header(fields, name)
    fields.filter_map { |key, value| value if key.casecmp?(name) }
  end

  # Waits until the block is true.
  def eventually(what, within: 10)
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + within
    until yield
      flunk "not within #{within} s: #{what}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
      sleep 0.01
    end
  end

  def alive?(pid)
    Process.kill(0, pid)
    !File.read("/proc/#{pid}/stat").match?(/\) Z/)
  rescue Errno::ESRCH, Errno::ENOENT
    false
  end
end
