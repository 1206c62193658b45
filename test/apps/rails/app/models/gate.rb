# frozen_string_literal: true

# Files by which a test and the app wait for each other.
module Gate
  module_function

  def path(name)
    Rails.root.join("tmp", name.to_s)
  end

  def open(name)
    File.write(path(name), "")
  end

  def wait(name)
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 60
    until File.exist?(path(name))
      raise "no #{name}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

      sleep 0.01
    end
  end
end
