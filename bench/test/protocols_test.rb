# frozen_string_literal: true

# Tests of bench/protocols: parsing, the check before the load, and one short round beside real peers.
require "minitest/autorun"
require "socket"
require "tmpdir"
require_relative "../lib/interleaved"
require_relative "../lib/options"
require_relative "../lib/protocols"

class H2loadTest < Minitest::Test
  TEXT = <<~TEXT
    finished in 2.00s, 1000.00 req/s, 66.47KB/s
    requests: 2064 total, 2064 started, 2003 done, 2000 succeeded, 3 failed, 3 errored, 0 timeout
    status codes: 2000 2xx, 0 3xx, 1 4xx, 0 5xx
  TEXT

  def test_responses_and_failures_are_counted
    sample = Bench::Loads::H2load.parse(TEXT)
    assert_equal [2000, 2.0, 3], [sample.requests, sample.seconds, sample.errors]
  end

  def test_text_without_a_result_is_a_failure
    assert_raises(Bench::Failure) { Bench::Loads::H2load.parse("h2load: Could not resolve host") }
  end
end

class Http3Test < Minitest::Test
  def text(protocol, **errors)
    "{\"outcome\":#{JSON.generate(ok: 2000, seconds: 2.0, server: { protocol: protocol }, errors: { read: 0, texts: { 'a' => 3 } }.merge(errors))}}\n"
  end

  def test_responses_and_failures_are_counted
    sample = Bench::Loads::Http3.parse(text("HTTP/3", timeout: 2, status: 1))
    assert_equal [2000, 2.0, 3], [sample.requests, sample.seconds, sample.errors]
  end

  def test_another_protocol_and_text_without_a_result_are_failures
    assert_raises(Bench::Failure) { Bench::Loads::Http3.parse(text("HTTP/2")) }
    assert_raises(Bench::Failure) { Bench::Loads::Http3.parse("firebrick bench: no connection") }
  end
end

class ResumptionsTest < Minitest::Test
  def test_only_the_connections_with_a_reused_session_count
    text = "starting\n7 connections in 1 real seconds, 3 bytes read per connection\nNow timing\n" \
           "950 connections in 2 real seconds, 3 bytes read per connection\n"
    assert_equal [950, 2.0], Bench::Loads::Resumptions.parse(text).to_a.first(2)
    assert_raises(Bench::Failure) { Bench::Loads::Resumptions.parse("no cipher match") }
  end
end

class CheckTest < Minitest::Test
  def check(body) = Bench::Check.new(path: "/", bytes: body.bytesize, sha256: Digest::SHA256.hexdigest(body))

  def serve(body)
    TCPServer.open("127.0.0.1", 0) do |server|
      thread = Thread.new do
        client = server.accept
        client.readpartial(4096)
        client.write("HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\nConnection: close\r\n\r\n#{body}")
        client.close
      end
      yield server.local_address.ip_port
    ensure
      thread.join
    end
  end

  def test_the_right_body_passes_and_a_wrong_one_is_a_failure
    serve("right") { |port| assert check("right").call(port) }
    serve("wrong") { |port| assert_match(/wrong response: 5 bytes/, assert_raises(Bench::Failure) { check("right").call(port) }.message) }
  end

  def test_a_server_that_does_not_listen_yet_is_waited_for
    port = TCPServer.open("127.0.0.1", 0) { |free| free.local_address.ip_port }
    refute check("right").call(port)
  end
end

# Each case in one short round, with the peers that are installed.
class CasesTest < Minitest::Test
  FIREBRICK = Bench::Program.path
  # Bytes of the longest file: a busy machine sends it several times in the round.
  MOST = 1 << 20

  Bench::Protocols.all.each do |one|
    define_method("test_#{one.name}") do
      one.body = one.body[0, MOST]
      # These clients are the test's own.
      one.load = one.load.class.new(connections: 50) if one.load.is_a?(Bench::Loads::Idle)
      skip "#{one.load.program} is not installed" unless one.load.program.nil? || Bench::Machine.there?(one.load.program)
      peers = one.peers.select { |_name, peer| peer.command.start_with?("{firebrick}") || Bench::Machine.there?(peer.command.shellsplit.first) }
      peers = peers.transform_values { |peer| peer.dup.tap { |copy| copy.command = copy.command.sub("{firebrick}", FIREBRICK.shellescape) } }
      run = Dir.mktmpdir { |dir| Bench::Interleaved.new(one, peers, dir: dir, seconds: 1, rounds: 1).run }
      peers.each_key { |name| assert_predicate run.cost(name), :positive?, name }
    end
  end
end
