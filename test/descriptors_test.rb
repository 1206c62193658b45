# frozen_string_literal: true

# A server that is about to run out of descriptors keeps running, and logs it.

require "support/case"

class DescriptorsTest < Case
  parallel!

  LIMIT = 256
  WHY = /out of descriptors; it may have #{LIMIT} \(ulimit -n\)/
  APP = <<~'RUBY'
    HELD = []
    run lambda { |env|
      text = { "content-type" => "text/plain" }
      case env["PATH_INFO"]
      when "/socket" then [101, { "connection" => "upgrade", "upgrade" => "test", "rack.hijack" => ->(io) { HELD << io } }, []]
      when "/hijack" then HELD << env["rack.hijack"].call.tap { |io| io.write("HTTP/1.1 200 OK\r\n\r\n") }; [200, {}, []]
      when "/stream" then [200, text, ->(io) { HELD << io; io.write("begun") }]
      when "/wait" then sleep 5; [200, text, ["waited"]]
      else [200, text, [Process.pid.to_s]]
      end
    }
  RUBY

  { "upgraded connections" => ["/socket", { "Connection" => "Upgrade", "Upgrade" => "test" }, 101],
    "hijacked connections" => ["/hijack", {}, 200],
    "streams" => ["/stream", {}, 200] }.each do |name, (path, fields, status)|
    it "refuses #{name} when descriptors are short, and its worker goes on" do
      own = limited
      worker = get("/", to: own).body
      # All connect before the first needs a second descriptor; otherwise those with two might leave no room for the last.
      clients = Array.new(LIMIT * 2 / 3) { connect(own).write(request("GET", "/")).tap(&:read_response) }
      responses = clients.map { |client| client.write(request("GET", path, fields)) }.map(&:read_head)
      assert_equal [status, 503], responses.map(&:status).uniq
      assert_operator responses.count { |one| one.status == status }, :>, LIMIT / 8
      assert_equal worker, get("/", to: own).body
      assert_match WHY, own.stderr
      refute_match(/malformed|died/, own.stderr)
    end
  end

  it "replaces a worker while clients have what they may have" do
    own = limited
    worker = get("/", to: own).body
    clients = Array.new(LIMIT) { connect(own).write(request("GET", "/stream")) }
    wait_until("a refusal") { own.stderr.match?(WHY) }
    Process.kill(:KILL, worker.to_i)
    wait_until("another worker") { get("/", to: own).then { |response| response.status == 200 && response.body != worker } }
    refute_match(/cannot be forked/, own.stderr)
    clients.each(&:close)
  end

  it "closes idle connections for new ones" do
    own = limited
    clients = Array.new(LIMIT) { connect(own).write(request("GET", "/")).tap { |one| assert_status 200, one.read_response } }
    assert_closed clients.first
    assert_alive clients.last
  end

  it "refuses a connection when none is idle, until one ends" do
    own = limited
    clients = Array.new(LIMIT) { connect(own).write(request("GET", "/wait")) }
    refused = clients.last.read_response
    assert_status 503, refused
    assert_match WHY, own.stderr
    clients.each(&:close)
    wait_until("room") { get("/", to: own).status == 200 }
  end

  private

  def limited
    firebrick_only
    start(app: APP, threads: "1:5", open_files: LIMIT, settings: { timeouts: { shutdown: "1s" } }, args: ["--front-threads", "1"])
  end
end
