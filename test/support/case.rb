# frozen_string_literal: true

# The base of all end-to-end tests: servers for one test or for a whole class, helpers for raw HTTP, and a check that
# every server ends cleanly.

require "minitest"
require "minitest/test"
require "minitest/assertions"
require "digest/md5"
require "digest/sha1"
require "digest/sha2"
require "json"
require "tempfile"
require "support/clock"
require "support/connection"
require "support/interruption"
require "support/parallel_tests"
require "support/processes"
require "support/quick_spawn" if Process.euid.zero?
require "support/server"
require "support/shared_servers"

class Case < Minitest::Test
  include Clock

  class << self
    # Names a test by a sentence, so that `-v` reads like a specification.
    def it(sentence, &block)
      name = "test_#{sentence}"
      raise ArgumentError, "#{self} already has the test: #{sentence}" if method_defined?(name, false)

      define_method(name, &block)
    end

    # Declares the server that all tests of the class share; the first test that needs it starts it.
    def shared_server(**options)
      @shared_options = options
    end

    def shared_options
      @shared_options || (superclass.respond_to?(:shared_options) ? superclass.shared_options : nil)
    end

    # The running shared server.
    def server
      SharedServers.fetch(self) { Server.new(**shared_options) }
    end

    # Allows each of the class's tests to run beside any other test. Suitable for tests that wait for other processes rather than
    # use the processor, with their own servers, ports and files, and without limits on time that a busy machine exceeds.
    # +slow+: tests that wait for many seconds, and should begin early; for some classes the seconds of the longest test, because
    # the longest begin first.
    def parallel!(slow: false)
      parallelize_me!
      @slow = slow == true ? 10 : slow
    end

    # The seconds of a slow class; nil or false if it is none.
    def slow?
      @slow
    end

    # The class's tests share something that each of them needs for itself, such as its server's only thread, or lines of its
    # log: they run one after another, but beside those of other classes.
    def in_turn!
      parallelize_me!
      @in_turn = true
    end

    def in_turn?
      @in_turn || (superclass.respond_to?(:in_turn?) && superclass.in_turn?)
    end

    # The class's tests measure times or rates, and leave most of the machine idle: they run in turn, beside those of a few other such classes,
    # before all tests that are louder. +seconds+: their time together, roughly; the longest begin first.
    def quiet!(seconds = 5)
      in_turn!
      @quiet = seconds
    end

    # The seconds of a quiet class; nil if it is none.
    def quiet?
      @quiet
    end

    # Minitest's interface: runs all tests of the class. Minitest 6 has another name for it.
    define_method(Minitest::Runnable.respond_to?(:run_suite) ? :run_suite : :run) do |reporter, options = {}|
      super(reporter, options)
    ensure
      finish(reporter) unless runs_beside_others?
    end

    def runs_beside_others?
      %i[test_order run_order].any? { |order| respond_to?(order) && public_send(order) == :parallel }
    end

    # Ends what the class has made, after the last of its tests. An error there is one of this class: the others run all the same.
    def finish(reporter)
      over(reporter)
    rescue StandardError, Minitest::Assertion => e
      SharedServers.record(self, reporter) { raise e }
    end

    # Called after the last of the class's tests: ends their shared server.
    def over(reporter)
      SharedServers.finish(self, reporter)
    end
  end

  def before_setup
    super
    @own_servers = []
    @connections = []
  end

  def after_teardown
    @connections.each(&:close)
    show_logs unless passed? || skipped?
    problems = @own_servers.flat_map { |server| server.finish.map { |problem| "#{problem}\n#{server.report}" } }
    problems.each { |problem| failures << Minitest::Assertion.new(problem).tap { |e| e.set_backtrace([name]) } }
    super
  end

  def server
    self.class.server
  end

  # Starts a server for this test alone; after the test it is stopped and checked for a clean end.
  def start(**options)
    own = Server.new(**options)
    @own_servers << own
    own.start
  end

  # Opens a connection that is closed after the test.
  def connect(to = server, **options)
    closed_at_end(Connection.new(to.address, **options))
  end

  # Closes a client when the test has ended. Returns it.
  def closed_at_end(client) = client.tap { @connections << client }

  # Sends one request on a new connection and returns the response.
  def ask(bytes, to: server, method: nil)
    connection = connect(to)
    connection.write(bytes)
    connection.read_response(method || bytes[/\A\s*([A-Z]+)/, 1] || "GET")
  ensure
    connection&.close
  end

  def get(path, to: server, headers: {})
    ask(request("GET", path, headers), to: to)
  end

  def post(path, body, to: server, headers: {})
    ask(request("POST", path, headers, body), to: to)
  end

  # Formats a well-formed request.
  def request(method, path, headers = {}, body = nil)
    fields = { "Host" => "example.test" }.merge(headers)
    fields["Content-Length"] = body.bytesize if body && fields.keys.none? { |k| k.casecmp?("transfer-encoding") }
    head = fields.map { |name, value| "#{name}: #{value}\r\n" }.join
    "#{method} #{path} HTTP/1.1\r\n#{head}\r\n".b + body.to_s.b
  end

  # Encodes the pieces in chunked transfer coding.
  def chunked(*pieces)
    pieces.map { |piece| "#{piece.bytesize.to_s(16)}\r\n#{piece}\r\n" }.join + "0\r\n\r\n"
  end

  # The values that a test accepts: from Firebrick only its own (one, or an Array of several that are equally right); from
  # another server (TEST_SERVER) also the +others+ that the standards allow.
  def accepted(own, *others)
    own = [own] unless own.is_a?(Array)
    ENV["TEST_SERVER"] ? own + others : own
  end

  def assert_status(expected, response, message = nil)
    expected = Array(expected)
    assert_includes expected, response.status, "#{message || 'status'}; the response was:\n#{response.raw_head}#{response.body.byteslice(0, 500)}"
  end

  # The server closed the connection and sent nothing more.
  def assert_closed(connection, message = "the connection should be closed", within: 5)
    assert connection.ended?(within: within), message
    assert_equal "", connection.buffered, "bytes after the last response"
  end

  # Waits until that many requests for the app are queued or being served.
  def wait_for_requests(count, on: server)
    wait_until("#{count} requests in progress") { on.control("/requests").length == count }
  end

  # Waits until at least that many tasks of mruby handlers wait for something.
  def wait_for_tasks(count, on: server)
    wait_until("#{count} waiting tasks") { on.control("/stats").dig("handlers", "waiting") >= count }
  end

  # Asserts that the error log has this text, or a matching line; it may be written after the response.
  def assert_logged(expected, on: server)
    found = -> { expected.is_a?(Regexp) ? on.stderr.match?(expected) : on.stderr.include?(expected) }
    assert wait_until(&found), "not in the error log: #{expected.inspect}\n#{on.stderr}"
  end

  # The connection is open, idle, and still serves requests.
  def assert_alive(connection, path = "/alive")
    connection.write(request("GET", path))
    assert_status 200, connection.read_response("GET"), "a later request on the same connection"
  end

  def firebrick_only(reason = "specific to Firebrick")
    skip reason if Server.puma? && !ENV["TEST_EVERYTHING"]
  end

  # For tests with an app of `support/rails_app`.
  def rails_only
    skip "Rails is not installed (apt-get install ruby-rails ruby-sqlite3)" unless RailsApp.version
  end

  def mruby_only
    firebrick_only
    skip "built without mruby" unless Server.mruby?
  end

  def rack3_only
    skip "needs Rack 3" if Server.rack_release < "3"
  end

  def rack2_only
    skip "needs Rack 2" if Server.rack_release >= "3"
  end

  private

  def show_logs
    servers = @own_servers.dup
    shared = SharedServers.running(self.class)
    servers << shared if shared
    servers.each { |server| warn "\n--- #{self.class}##{name}\n#{server.report}" }
  end
end

Minitest.parallel_executor = ParallelTests.new(Integer(ENV.fetch("MT_CPU", 10)))
