# frozen_string_literal: true

# Tests of Ruby programs that have their server inside.

require "net/http"
require "support/case"
require "support/ruby_program"

class ProgramCase < Case
  # Starts a program that ends, and is checked, after the test.
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

  # A port that is free, for programs that need a number.
  def free_port
    server = TCPServer.new("127.0.0.1", 0)
    server.addr[1].tap { server.close }
  end

  # At whichever address `localhost` is: with port 0 servers listen at its first one, which may be ::1.
  def fetch(port, path = "/")
    Net::HTTP.get(URI("http://localhost:#{port}#{path}"))
  end

  # Fetches as soon as somebody listens.
  def fetch_soon(port, path = "/", within: 60)
    wait_until("port #{port} to listen", within: within) { fetch(port, path) rescue nil }
  end
end
