# frozen_string_literal: true

# `limits.memory` beside clients of HTTP/3 that stop somewhere: see memory_test.rb. Most of the time passes until QUIC gives them up.

require "support/memory_case"
require "support/quic_go"

class MemoryHttp3Test < MemoryCase
  quiet! 180

  # Each client has a connection of its own and stops somewhere (test/quic_go/crowd.go), or never does. They end with the test, or
  # their 1,000 ports would be taken in the tests after a failure.
  def crowd(own, path, count, stop)
    skip "needs Go and quic-go: script/setup test" unless QuicGo.client
    holder = IO.popen(QuicGo.command(own, path, "-crowd", count, "-stop", stop), err: File::NULL)
    (@crowds ||= []) << holder
    assert_equal "holding\n", holder.gets
    holder
  end

  def teardown
    @crowds&.reject(&:closed?)&.each { |holder| Process.kill(:KILL, holder.pid) }&.each(&:close)
    super
  end

  def serve_quic(**options)
    secure(app: APP, threads: "5:5", **options,
           settings: { front_threads: 1, limits: { memory: "#{LIMIT}MiB", max_queue: 100_000, max_connections: 4000 } })
  end

  { "uploads that do not go on" => %w[/upload body], "whole responses that nobody reads" => %w[/string response],
    "responses in pieces that nobody reads" => %w[/chunked response] }.each do |what, (path, stop)|
    it "holds 1,000 #{what} over HTTP/3" do
      own = serve_quic
      holder, stats = assert_within_memory(own, get: -> { fetch(own) }) { crowd(own, path, 1000, stop) }
      assert_operator stats["quic_bytes"], :>, MIB, stats.to_s
      Process.kill(:KILL, holder.pid)
      holder.close
      # QUIC gives up clients that have vanished after half a minute.
      assert_given_back(own, within: 60, get: -> { fetch(own) })
    end
  end

  it "serves others beside floods of resets over HTTP/3 while memory is scarce" do
    own = serve_quic
    holders, stats = assert_within_memory(own, get: -> { fetch(own) }) { [crowd(own, "/string", 600, "response"), crowd(own, "/string", 20, "reset")] }
    assert_operator stats["reached_files"], :>, 0, stats.to_s
    holders.each { |holder| Process.kill(:KILL, holder.pid) }.each(&:close)
    assert_given_back(own, within: 60, get: -> { fetch(own) })
  end
end
