# frozen_string_literal: true

require "open3"
require_relative "other_suites"

# Runs failed tests again, alone, in a separate process. For TEST_AGAIN, which `make e2e` and `make worker-test` set.
#
# Why: some two thousand tests start servers, ten at a time, on shared machines. A test that fails beside the others and
# passes alone must be made more robust, or shows a race; both runs are printed. A real fault fails both.
module Again
  # Failures in more classes than this cannot be chance. Classes are counted, not tests: a shared server that does not start fails all of its class.
  MOST = 12

  # Collects failed tests.
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

  # Returns whether all tests passed, some of them perhaps in the second run. `program` takes a part of a file's name and minitest's options.
  def run(arguments, *program)
    others = OtherSuites.new
    reporter = Reporter.new
    Minitest.extensions << "again"
    Minitest.define_singleton_method(:plugin_again_init) { |_| self.reporter << reporter }
    return true if Minitest.run(arguments)

    classes = reporter.failed.group_by(&:first)
    # The names once more, at the end of the log.
    reporter.failed.each { |name, test| puts "Failed: #{name}##{test}" }
    return false if classes.empty? || classes.size > MOST

    others.let_finish
    failures = classes.filter_map { |name, failed| alone(*program, name: name, tests: failed.map(&:last)) }
    # Repeats the failures at the end of the log.
    failures.each { |name, text| puts "", "FAILED: #{name}, alone, too:", text.lines.last(60) }
    failures.empty?
  end

  # Runs the failed tests of a class; all of them if its shared server did not end cleanly. Returns its name and the output if they fail again.
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
