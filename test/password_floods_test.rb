# frozen_string_literal: true

# Many wrong passwords whose checks are slow: another user's login does not wait for them.

require "support/site_case"

# Alone, because the checks take all of a processor, and a login that waits for one for too long is refused.
class PasswordFloodsTest < SiteCase
  # "correct horse", bcrypt with cost 10.
  HASH = "$2y$10$DO8tREYvXnfaJ.lKZl5sFensxeUJVxpPD3s.3ifDz3e6UoOqa8R3i"

  def setup
    firebrick_only
  end

  def authorization(word) = "Basic #{["ann:#{word}"].pack('m0')}"

  it "answers a new login while wrong passwords come without end" do
    own = served({ basic_auth: true }, "/.htpasswd" => "ann:#{HASH}\n")
    statuses = Queue.new
    stop = false
    floods = Array.new(20) do |client|
      Thread.new do
        n = 0
        until stop
          # As many at a time as one HTTP/1 connection may have waiting, repeatedly.
          connection = connect(own)
          20.times { connection.write(request("GET", "/", { "Authorization" => authorization("wrong #{client} #{n += 1}") })) }
          20.times { statuses << connection.read_response("GET").status }
          connection.close
        end
      rescue SystemCallError, IOError
        retry unless stop
      end
    end
    assert(wait_until(within: 20) { statuses.size >= 5 })
    started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    response = get("/", to: own, headers: { "Authorization" => authorization("correct horse") })
    took = Process.clock_gettime(Process::CLOCK_MONOTONIC) - started
    assert_status 200, response
    # Without a separate queue it would wait for at least twenty others, each time for more.
    assert_operator took, :<, 20
    seen = Array.new(statuses.size) { statuses.pop }
    assert_empty seen.uniq - [401, 429, 503]
  ensure
    stop = true
    floods&.each(&:kill)
  end

  it "answers all of those who are slow to be checked" do
    own = served({ basic_auth: true }, "/.htpasswd" => "ann:#{HASH}\n")
    statuses = Array.new(12) do |n|
      Thread.new { get("/", to: own, headers: { "Authorization" => authorization("wrong #{n}") }).status }
    end.map(&:value)
    # Each has its own connection: all of them are answered, one after another.
    assert_empty statuses.uniq - [401, 503]
    assert_includes statuses, 401
  end
end
