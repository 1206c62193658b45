# frozen_string_literal: true

# Ctrl-C and TERM during a test run: ends every process that the tests have started, and removes their servers' folders.
#
# Why: servers lead their own process groups, so a terminal's Ctrl-C does not reach them, and a test that is killed in the middle
# runs no `ensure`. Processes left behind would use the machine, and make later runs fail.

require "fileutils"
require "support/processes"

module Interruption
  SIGNALS = %w[INT TERM].freeze
  # Seconds that processes have between TERM and KILL.
  GRACE = 5

  @folders = []

  module_function

  # Processes that work in this folder belong to the tests, even if their parent has changed.
  def own(folder)
    @folders << folder
  end

  def disown(folder)
    @folders.delete(folder)
  end

  def install
    SIGNALS.each { |name| trap(name) { interrupted(name) } }
  end

  # Runs inside a signal handler, so it takes no locks. The main thread stops here.
  def interrupted(name)
    # Another signal ends this process at once.
    SIGNALS.each { |other| trap(other, "DEFAULT") }
    $stderr.write("\ntest/run: #{name}: ending what the tests have started\n")
    (Thread.list - [Thread.current]).each(&:kill)
    end_all
    FileUtils.rm_rf(@folders)
    exit!(128 + Signal.list.fetch(name))
  end

  def end_all
    remains.each { |one| signal("TERM", one) }
    deadline = now + GRACE
    sleep 0.05 until remains.empty? || now > deadline
    # Killed processes may have started others meanwhile.
    while remains.any? && now < deadline + GRACE
      remains.each { |one| signal("KILL", one) }
      sleep 0.05
    end
  end

  def remains
    found = Processes.tree(Process.pid) + Processes.in_directory(*@folders)
    found.uniq(&:pid).reject { |one| one.pid == Process.pid }
  end

  def signal(name, one)
    Process.kill(name, one.pid)
  rescue Errno::ESRCH
    nil
  end

  def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
end
