# frozen_string_literal: true

# Prints where the time of a run went, for TEST_TIMES=1, in seconds of wall-clock time. A class has the sum of its tests, which may have run
# beside each other and beside those of other classes.

module Times
  # The number of classes and of tests that are listed.
  MOST = 30

  Entry = Struct.new(:name, :seconds, :tests, :finished)

  # Collects the duration and the end of each test.
  class Reporter < Minitest::AbstractReporter
    def initialize(out = $stdout)
      super()
      @out = out
      @tests = []
      @lock = Mutex.new
    end

    def start
      @began = now
    end

    def record(result)
      @lock.synchronize { @tests << [result.klass, Entry.new("#{result.klass}##{result.name}", result.time, 1, now - @began)] }
    end

    # Minitest calls this when all tests are over.
    def report
      entries = @tests.map(&:last)
      list("Slowest tests", entries)
      list("Slowest classes", @tests.group_by(&:first).map { |name, tests| sum(name, tests.map(&:last)) })
      @out.puts "", kinds
    end

    private

    # In the order in which they run.
    def kinds
      @tests.group_by { |name, _| kind(Object.const_get(name)) }.map do |kind, tests|
        whole = sum(kind, tests.map(&:last))
        format("%<tests>d tests ran %<name>s, until %<finished>.0f s", **whole.to_h)
      end
    end

    def kind(suite)
      return "alone" unless suite.runs_beside_others?

      suite.quiet? ? "beside quiet ones" : "beside others"
    end

    def list(title, entries)
      @out.puts "", "#{title}: seconds, tests, when they were over"
      entries.max_by(MOST, &:seconds).each do |entry|
        @out.puts format("%<seconds>8.1f %<tests>5d %<finished>7.0f  %<name>s", **entry.to_h)
      end
    end

    def sum(name, entries)
      Entry.new(name, entries.sum(&:seconds), entries.sum(&:tests), entries.map(&:finished).max)
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  def self.install
    Minitest.extensions << "times"
    Minitest.define_singleton_method(:plugin_times_init) { |_| reporter << Reporter.new }
  end
end
