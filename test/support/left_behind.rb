# frozen_string_literal: true

# Finds processes that a test run has started and that still run at its end, prints and ends them: one that computes would slow down, or
# stop, everything that follows on the machine.

require "support/interruption"
require "support/processes"

module LeftBehind
  # All processes of the run inherit it, also those that have left their process group and their parent.
  MARK = "TEST_RUN"
  # Seconds that processes have to end by themselves.
  GRACE = 2

  module_function

  def mark
    ENV[MARK] = Process.pid.to_s
  end

  def end_all
    deadline = Interruption.now + GRACE
    sleep 0.05 until remains.empty? || Interruption.now > deadline
    remains.each do |one|
      puts "Left behind by a test, and ended: process #{one.pid}, #{Processes.command(one.pid)}"
      Interruption.signal("KILL", one)
    end
  end

  def remains
    Processes.all.values.select { |one| one.pid != Process.pid && marked?(one.pid) }
  end

  def marked?(pid)
    File.binread("/proc/#{pid}/environ").split("\0").include?("#{MARK}=#{Process.pid}")
  rescue SystemCallError
    false
  end
end
