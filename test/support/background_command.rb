# frozen_string_literal: true

# A command that runs beside the test, whose output can be read meanwhile.

class BackgroundCommand
  # Exit code; nil for a signal, or before `wait`.
  attr_reader :code

  def initialize(environment, *command, chdir:)
    @io = IO.popen([environment, *command, { chdir: chdir, err: %i[child out] }])
    @output = +""
    @reader = Thread.new { @io.each_line { |line| @output << line } }
  end

  # Its output so far, both streams.
  def output = @output.dup

  # Kills it.
  def kill
    Process.kill("KILL", @io.pid)
    wait
  end

  # Waits for its end.
  def wait(within: 60)
    @reader.join(within) or raise Minitest::Assertion, "the command still runs after #{within} s:\n#{output}"
    _, status = Process.wait2(@io.pid)
    @code = status.exitstatus
    self
  end
end
