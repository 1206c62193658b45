# frozen_string_literal: true

# Servers shared by a class of tests. The clean end of each one is recorded as a test of its own under the class's name:
# right after classes that run alone, and after all tests for those that run in parallel.

require "support/server"

module SharedServers
  @servers = {}
  @failures = {}
  @lock = Mutex.new

  # The test of a server's end; instances are made by hand, so that minitest does not list it twice.
  class CleanEnd < Minitest::Test
    class << self
      attr_accessor :server, :title

      def name
        title || super
      end

      def runnable_methods
        []
      end
    end

    def test_the_shared_server_shuts_down_cleanly
      problems = self.class.server.finish
      assert_empty problems, problems.empty? ? nil : self.class.server.report
    end
  end

  module_function

  # The owner's server, started at the first call. If it fails to start, every test of the owner fails.
  def fetch(owner)
    @lock.synchronize do
      raise @failures[owner] if @failures[owner]

      @servers[owner] ||= yield.start
    rescue Minitest::Assertion => e
      @failures[owner] = e
      raise
    end
  end

  def running(owner)
    @lock.synchronize { @servers[owner] }
  end

  def finish(owner, reporter)
    server = @lock.synchronize { @servers.delete(owner) } or return
    test = Class.new(CleanEnd)
    test.server = server
    test.title = owner.name
    method = "test_the_shared_server_shuts_down_cleanly"
    reporter.synchronize do
      reporter.prerecord test, method
      reporter.record Minitest.run_one_method(test, method)
    end
  end

  def finish_all(reporter)
    @lock.synchronize { @servers.keys }.each { |owner| finish(owner, reporter) }
  end

  # Stops the servers of parallel classes once their tests are done, before the summary is printed.
  module AfterParallelTests
    def __run(reporter, options)
      super.tap do
        parallel_executor.shutdown
        SharedServers.finish_all(reporter)
      end
    ensure
      SharedServers.finish_all(reporter)
    end
  end
  Minitest.singleton_class.prepend(AfterParallelTests)
end
