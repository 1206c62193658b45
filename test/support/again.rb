# frozen_string_literal: true

require "open3"
require_relative "other_suites"

# Runs failed tests once more, alone, in a process of their own. For TEST_AGAIN, which `make e2e` and `make worker-test` set.
#
# Why: some two thousand tests start servers, eight at a time, on machines that are shared. A test that fails beside the others and
# passes alone names a test that must be mended, or a race; both runs are printed. A fault fails both.
module Again
  # More failures than this are no accident.
  MOST = 5

  # Collects what failed.
  class Reporter < Minitest::AbstractReporter
    attr_reader :failed

    def initialize
      super
      @failed = []
      @lock = Mutex.new
    end

    def record(result)
      return if result.passed? || result.skipped?

      @lock.synchronize { @failed << [result.klass, result.name] }
    end
  end

  module_function

  # Whether all tests passed, at the latest when they were run again. `program` takes a word of a file's name and minitest's options.
  def run(arguments, *program)
    others = OtherSuites.new
    reporter = Reporter.new
    Minitest.extensions << "again"
    Minitest.define_singleton_method(:plugin_again_init) { |_| self.reporter << reporter }
    return true if Minitest.run(arguments)
    return false if reporter.failed.empty? || reporter.failed.size > MOST

    others.let_finish
    failures = reporter.failed.group_by(&:first).filter_map { |name, failed| alone(*program, name: name, tests: failed.map(&:last)) }
    # Who sees only the end of a log sees what failed.
    failures.each { |name, text| puts "", "FAILED: #{name}, alone, too:", text.lines.last(60) }
    failures.empty?
  end

  # Runs the failed tests of a class; all of them if it was the end of their shared server. Its name and what was printed if they fail again.
  def alone(*program, name:, tests:)
    own = Object.const_get(name)
    file = own.instance_method(own.runnable_methods.first).source_location.first
    names = (tests - own.runnable_methods).empty? ? tests.map { |test| Regexp.escape(test) }.join("|") : "test_.*"
    puts "", "Again, alone: #{name} (#{tests.join(', ')})"
    text, status = Open3.capture2e({ "TEST_AGAIN" => nil, "MT_CPU" => "1" }, *program, file.delete_prefix("#{File.dirname(program.last)}/"),
                                   "-n", "/\\A#{Regexp.escape(name)}#(#{names})\\z/")
    puts text
    return [name, text] unless status.success?

    puts "UNSTABLE: #{name} failed beside the other tests, see above, and passes alone"
  end
end
