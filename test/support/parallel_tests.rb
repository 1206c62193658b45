# frozen_string_literal: true

# Runs tests in several threads, in place of minitest's own executor. Minitest hands over the tests of all classes that allow it,
# after the others have run by themselves; nothing starts before that, so that the order can be chosen.
#
# There are three kinds of classes. With `parallel!` each test may run beside any other. With `in_turn!` the tests share something
# that each needs for itself, so that they run one after another, but beside other classes. With `quiet!` they measure times and rates, and leave
# most of the machine idle: they run in turn, beside a few of their kind, before all others.
#
# Classes in turn begin first, those with the most tests before all others, then the single tests. The tests of classes marked as slow mostly wait,
# so some threads take them first, from the beginning: a long test that began last would delay the end of the run, and
# many of them at a time would leave the processors idle.
#
# A class learns when the last of its tests is over, so that its shared server ends then and not after all tests.

require "minitest"

class ParallelTests
  # The number of quiet tests that run at a time, unless MT_CPU is less.
  QUIET = 4

  Test = Struct.new(:suite, :name, :reporter) do
    def run
      reporter.synchronize { reporter.prerecord suite, name }
      result = suite.new(name).run
      reporter.synchronize { reporter.record result }
    end
  end

  attr_reader :size

  # +size+ is the number of tests that run at a time; two of five threads take slow ones first, the others take them last.
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
    quiet, others = @tests.slice!(0..).partition { |test| test.suite.quiet? }
    workers([QUIET, size].min, jobs(quiet.group_by(&:suite).values.sort_by { |row| -row.first.suite.quiet? })).each(&:join)
    in_turn, single = others.partition { |test| test.suite.in_turn? }
    slow, quick = single.shuffle(random: Random.new(Minitest.seed)).map { |test| [test] }.partition { |(test)| test.suite.slow? }
    slow = jobs(slow.sort_by { |(test)| -test.suite.slow? })
    quick = jobs(in_turn.group_by(&:suite).values.sort_by { |row| -row.size } + quick)
    [*workers(size * 2 / 5, slow, quick), *workers(size - (size * 2 / 5), quick, slow)].each(&:join)
  end

  private

  # A queue of lists of tests, each of which one thread runs.
  def jobs(lists)
    lists.each_with_object(Queue.new) { |list, queue| queue << list }.close
  end

  # Threads that take lists of tests one after another, from each queue until it is empty.
  def workers(count, *queues)
    Array.new(count) do
      Thread.new do
        Thread.current.abort_on_exception = true
        queues.each do |jobs|
          while (job = jobs.pop)
            job.each { |test| finish(test.tap(&:run)) }
          end
        end
      end
    end
  end

  def finish(test)
    last = @lock.synchronize { (@left[test.suite] -= 1).zero? }
    test.suite.finish(test.reporter) if last
  end
end
