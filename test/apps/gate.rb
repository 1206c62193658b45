# frozen_string_literal: true

# Files by which a test and an app wait for each other, in the app's folder.
module Gate
  module_function

  def wait(name)
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
    until File.exist?("gate-#{name}.log")
      raise "no gate #{name}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

      sleep 0.01
    end
  end

  def open(name)
    File.write("gate-#{name}.log", "")
  end
end
