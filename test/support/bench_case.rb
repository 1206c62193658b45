# frozen_string_literal: true

require "json"
require "open3"
require "support/case"

# Runs `firebrick bench` and reads its results.
class BenchCase < Case
  # Standard output, standard error, exit status. A run that hangs fails the test and is killed.
  def bench(*args, input: "", within: 60, dir: Dir.tmpdir)
    env = Server.ruby_files
    Open3.popen3(env, Server.binary, "bench", *args.map(&:to_s), chdir: dir) do |stdin, stdout, stderr, waiter|
      stdin.write(input)
      stdin.close
      texts = [stdout, stderr].map { |io| Thread.new { io.read } }
      unless waiter.join(within)
        Process.kill("KILL", waiter.pid)
        flunk "bench #{args.join(' ')} did not end within #{within} s"
      end
      return [*texts.map(&:value), waiter.value.exitstatus]
    end
  end

  # The JSON of a run that must succeed.
  def result(*args, **options)
    out, err, code = bench(*args, "--format", "json", **options)
    assert_equal 0, code, err
    JSON.parse(out)
  end

  def in_folder(&block)
    Dir.mktmpdir("bench", &block)
  end
end
