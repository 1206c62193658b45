# frozen_string_literal: true

# Servers shared by a class of tests. The clean end of each is recorded as a separate test under the class's name, after
# the last test of the class.

require "support/server"

module SharedServers
  # A class's server, or the reason why it did not start. While one starts, only the tests of its class wait.
  Shared = Struct.new(:lock, :server, :failure)

  @shared = {}
  @lock = Mutex.new

  # The test of the end of a class; instances are made by hand, so that minitest does not list it twice.
  class CleanEnd < Minitest::Test
    class << self
      attr_accessor :check, :title

      def name
        title || super
      end

      def runnable_methods
        []
      end
    end

    def test_the_class_ends_cleanly
      instance_exec(&self.class.check)
    end
  end

  module_function

  # The owner's server, started at the first call. If it fails to start, every test of the owner fails.
  def fetch(owner)
    shared = @lock.synchronize { @shared[owner] ||= Shared.new(Mutex.new) }
    shared.lock.synchronize do
      raise shared.failure if shared.failure

      shared.server ||= yield.start
    rescue Minitest::Assertion => e
      shared.failure = e
      raise
    end
  end

  def running(owner)
    @lock.synchronize { @shared[owner]&.server }
  end

  def finish(owner, reporter)
    server = @lock.synchronize { @shared.delete(owner)&.server } or return
    record(owner, reporter) do
      problems = server.finish
      assert_empty problems, problems.empty? ? nil : server.report
    end
  end

  # Runs the block as a test under the owner's name.
  def record(owner, reporter, &check)
    test = Class.new(CleanEnd)
    test.check = check
    test.title = owner.name
    method = "test_the_class_ends_cleanly"
    reporter.synchronize { reporter.prerecord test, method }
    result = test.new(method).run
    reporter.synchronize { reporter.record result }
  end

  def finish_all(reporter)
    @lock.synchronize { @shared.keys }.each { |owner| finish(owner, reporter) }
  end

  # Runs the parallel tests before the summary is printed, and stops remaining servers when the run was interrupted.
  module AfterParallelTests
    # Minitest 6 has another name for it.
    define_method(Minitest.respond_to?(:run_all_suites) ? :run_all_suites : :__run) do |reporter, options|
      super(reporter, options).tap do
        parallel_executor.shutdown
        SharedServers.finish_all(reporter)
      end
    ensure
      SharedServers.finish_all(reporter)
    end
  end
  Minitest.singleton_class.prepend(AfterParallelTests)
end
