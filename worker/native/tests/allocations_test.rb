# frozen_string_literal: true

require "open3"

# The record of who has allocated which object (worker/native/src/allocations.rs), in a process of its own that serves no requests. With requests:
# test/leaks_test.rb.
class AllocationsTest < Case
  PREAMBLE = <<~RUBY
    require "objspace"
    require "tempfile"
    require "firebrick/native"
    # The routes that a dump has for Strings that begin with the text, by number of objects. A child writes it, as in a worker.
    def routes(text)
      file = Tempfile.new("dump")
      pid = fork do
        output = IO.for_fd(Firebrick::Native.add_routes(file.fileno), "wb")
        output.sync = true
        ObjectSpace.dump_all(output: output)
        output.close
        Firebrick::Native.routes_added
        exit!(0)
      end
      Process.wait(pid)
      raise "the child has failed" unless $?.success?
      File.readlines(file.path).grep(/"value":"\#{text} \\d/).map { |line| line[/\\A{"address":"0x\\h+", "route":(\\d+), "type"/, 1] }.tally
    end
    def record(wanted) = Firebrick::Native.record_allocations(wanted)
    def strings(text, count) = Array.new(count) { |n| "\#{text} \#{n} \#{'x' * 30}" }
  RUBY

  def run_script(script)
    lib = ENV.fetch("FIREBRICK_LIB", File.expand_path("../../lib", __dir__))
    out, status = Open3.capture2e(RbConfig.ruby, "-I", lib, "-e", PREAMBLE + script)
    assert_predicate status, :success?, out
    out.lines(chomp: true)
  end

  def test_objects_are_recorded_between_start_and_end
    out = run_script(<<~RUBY)
      before = strings("before", 5)
      record(true)
      record(true)
      kept = strings("kept", 7)
      p routes("before"), routes("kept")
      record(false)
      later = strings("later", 3)
      p routes("kept"), routes("later")
      record(true)
      p routes("kept")
      again = strings("again", 2)
      p routes("again")
      record(false)
      record(false)
    RUBY
    assert_equal [{ nil => 5 }, { "0" => 7 }, { nil => 7 }, { nil => 3 }, { nil => 7 }, { "0" => 2 }].map(&:inspect), out
  end

  def test_collections_and_compactions_do_no_harm
    out = run_script(<<~RUBY)
      record(true)
      ObjectSpace.trace_object_allocations_start
      kept = strings("kept", 50)
      threads = Array.new(4) { Thread.new { 200.times { strings("gone", 20); GC.start(full_mark: false) } } }
      threads.each(&:join)
      GC.stress = true
      under_stress = strings("stress", 20)
      GC.stress = false
      p routes("kept"), routes("stress")
      if GC.respond_to?(:compact)
        10.times { strings("gone", 5_000); GC.compact }
        after = strings("after", 5)
        p routes("kept").keys, routes("after")
      end
      record(false)
    RUBY
    assert_equal [{ "0" => 50 }, { "0" => 20 }].map(&:inspect), out.first(2)
    assert_equal [[nil], { "0" => 5 }].map(&:inspect), out[2..] unless out.size == 2
  end

  def test_a_descriptor_that_cannot_be_written_to_is_an_error
    out = run_script(<<~RUBY)
      $stdout.sync = true
      record(true)
      pid = fork do
        Firebrick::Native.add_routes(9_999)
      rescue RuntimeError => e
        puts e.message
        exit!(0)
      end
      Process.wait(pid)
      File.open(File::NULL) do |file|
        output = IO.for_fd(Firebrick::Native.add_routes(file.fileno), "wb")
        output.sync = true
        output.write("x" * 100_000) rescue p $!.class
        output.close
        Firebrick::Native.routes_added
      rescue RuntimeError => e
        puts e.message
      end
    RUBY
    assert_equal 3, out.size, out
    assert_match(/Bad file descriptor/, out.first)
    assert_match(/Bad file descriptor/, out.last)
  end
end
