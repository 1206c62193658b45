# frozen_string_literal: true

# Runs tests in several threads, in place of minitest's own executor. Minitest hands over the tests of all classes that allow it,
# after the others have run by themselves; nothing starts before that, so that the order can be chosen.
#
# There are two kinds of classes: with `parallel!` each test may run beside any other; with `in_turn!` the tests share something
# that each needs for itself, so that they run one after another, but beside other classes. The latter begin first, those with
# the most tests before all others, then the single tests of classes marked as slow: a long test that began last would
# delay the end of the run.
#
# A class is told when the last of its tests is over, so that its shared server ends then and not after all tests.

require "minitest"

class ParallelTests
  Test = Struct.new(:suite, :name, :reporter) do
    def run
      reporter.synchronize { reporter.prerecord suite, name }
      result = suite.new(name).run
      reporter.synchronize { reporter.record result }
    end
  end

  attr_reader :size

  # +size+ is the number of tests that run at a time.
  def initialize(size)
    @size = size
    @lock = Mutex.new
    @tests = []
    @left = Hash.new(0)
  end

  # Minitest's interface: called before the first test.
  def start; end

  # Minitest's interface: a test is [class, name, reporter].
  def <<(test)
    @tests << Test.new(*test)
    @left[test.first] += 1
  end

  # Minitest's interface: runs all tests and returns when they are over. Minitest calls it again when it is interrupted.
  def shutdown
    jobs = queue
    Array.new([size, jobs.size].min) { worker(jobs) }.each(&:join)
  end

  private

  # The lists of tests that the threads take one after another.
  def queue
    tests = @tests.slice!(0..)
    rows, single = tests.group_by(&:suite).partition { |suite, _| suite.in_turn? }
    rows = rows.map(&:last).sort_by { |row| -row.size }
    single = single.flat_map(&:last).shuffle(random: Random.new(Minitest.seed)).partition { |test| test.suite.slow? }.flatten
    (rows + single.map { |test| [test] }).each_with_object(Queue.new) { |job, jobs| jobs << job }.close
  end

  def worker(jobs)
    Thread.new do
      Thread.current.abort_on_exception = true
      while (job = jobs.pop)
        job.each { |test| finish(test.tap(&:run)) }
      end
    end
  end

  def finish(test)
    last = @lock.synchronize { (@left[test.suite] -= 1).zero? }
    test.suite.finish(test.reporter) if last
  end
end
