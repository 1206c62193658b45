# frozen_string_literal: true

# The base of tests of Ruby programs with an embedded server.

require "net/http"
require "support/case"
require "support/ruby_program"

class ProgramCase < Case
  # Starts a program that is ended and checked after the test.
  def program(source = nil, **options)
    @programs ||= []
    @programs << RubyProgram.new(source, **options)
    @programs.last
  end

  def after_teardown
    puts @programs.map(&:output) if @programs && !passed? && !skipped?
    problems = @programs.to_a.flat_map(&:finish)
    problems.each { |problem| failures << Minitest::Assertion.new(problem).tap { |error| error.set_backtrace([name]) } }
    super
  end

  # Returns a free port, for programs that need a number.
  def free_port
    server = TCPServer.new("127.0.0.1", 0)
    server.addr[1].tap { server.close }
  end

  # Fetches from `localhost`: with port 0 servers listen on its first address, which may be ::1.
  def fetch(port, path = "/")
    Net::HTTP.get(URI("http://localhost:#{port}#{path}"))
  end

  # Fetches as soon as a server listens.
  def fetch_soon(port, path = "/", within: 60)
    wait_until("port #{port} to listen", within: within) { fetch(port, path) rescue nil }
  end
end
