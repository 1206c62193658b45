# frozen_string_literal: true

# Servers that a class of tests shares. How each one ends is a test of its own, recorded under the class's name:
# at once for classes that run alone, after all others for those that run in parallel.

require "support/server"

module SharedServers
  @servers = {}
  @failures = {}
  @lock = Mutex.new

  # One test per ended server; its instances are made by hand, so that minitest does not list it twice.
  class CleanEnd < Minitest::Test
    class << self
      attr_accessor :judged, :title

      def name
        title || super
      end

      def runnable_methods
        []
      end
    end

    def test_the_shared_server_shuts_down_cleanly
      problems = self.class.judged.finish
      assert_empty problems, problems.empty? ? nil : self.class.judged.report
    end
  end

  module_function

  # The owner's server, started at the first call. One that failed to start fails each of the owner's tests at once.
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
    judge = Class.new(CleanEnd)
    judge.judged = server
    judge.title = owner.name
    method = "test_the_shared_server_shuts_down_cleanly"
    reporter.synchronize do
      reporter.prerecord judge, method
      reporter.record Minitest.run_one_method(judge, method)
    end
  end

  def finish_all(reporter)
    @lock.synchronize { @servers.keys }.each { |owner| finish(owner, reporter) }
  end

  # Ends the parallel classes' servers once their tests are done and before the summary is printed.
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
