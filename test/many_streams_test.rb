# frozen_string_literal: true

# Thousands of WebSockets and event streams that stay open, on the fibers of one worker.

require "support/case"

# In turn: each test holds thousands of descriptors. TEST_STREAMS: the number of connections (2000).
class ManyStreamsTest < Case
  in_turn!

  COUNT = Integer(ENV.fetch("TEST_STREAMS", "2000"))
  APP = <<~'RUBY'
    ALL = {}.compare_by_identity
    # Until nil comes.
    follow = lambda do |io, &form|
      queue = Queue.new
      ALL[queue] = true
      begin
        io.write(form.call("hello"))
        while (event = queue.pop)
          io.write(form.call(event))
        end
      rescue Errno::EPIPE
        nil # it has gone
      ensure
        ALL.delete(queue)
        io.close
      end
    end
    frame = ->(text) { [0x81, text.bytesize].pack("CC") + text }
    run lambda { |env|
      text = { "content-type" => "text/plain" }
      case env["PATH_INFO"]
      when "/events" then [200, { "content-type" => "text/event-stream" }, ->(stream) { follow.call(stream) { |event| "data: #{event}\n\n" } }]
      when "/socket"
        [101, { "connection" => "upgrade", "upgrade" => "websocket", "rack.hijack" => ->(io) { follow.call(io) { |event| frame.call(event) } } }, []]
      when "/publish" then ALL.each_key { |queue| queue << env["QUERY_STRING"] }; [200, text, [ALL.size.to_s]]
      when "/end" then ALL.each_key { |queue| queue << nil }; [200, text, [""]]
      when "/count" then [200, text, [ALL.size.to_s]]
      else [200, text, [Process.pid.to_s]]
      end
    }
  RUBY
  KINDS = { "event streams" => ["/events", {}, ->(text) { "data: #{text}\n\n" }],
            "WebSockets" => ["/socket", { "Connection" => "Upgrade", "Upgrade" => "websocket" }, ->(text) { [0x81, text.bytesize].pack("CC") + text }] }.freeze

  KINDS.each do |name, (path, fields, form)|
    it "sends each event to all #{name}, costs nothing while there is none, and notices that they have gone" do
      own, clients = open_all(path, fields, form)
      2.times do |number|
        assert_equal COUNT.to_s, get("/publish?event#{number}", to: own).body
        assert(clients.all? { |client| client.read_through(form.call("event#{number}")) })
      end
      idle = idle_share(own)
      assert_operator idle, :<, 0.1, "of a processor while nothing happens"
      assert_match(/\A\d+\z/, get("/", to: own).body)
      report(name, own, idle)
      took = elapsed do
        # The disconnection of an event stream's client is noticed when something is written to it.
        clients.each(&:close)
        deadline = now + 120
        get("/publish?late", to: own).then { sleep 0.2 } until get("/count", to: own).body == "0" || now > deadline
        wait_for_count(own, 0)
      end
      puts format("%s: all noticed after %.1f s", name, took) if ENV.key?("TEST_STREAMS")
      wait_until("the fibers to be free", within: 60) { own.stats["workers"].first["busy_threads"].zero? }
    end

    it "keeps #{name} open through a reload, until the app ends them" do
      own, clients = open_all(path, fields, form)
      old = get("/", to: own).body
      _, err, code = own.command_line("reload", own.dir)
      assert_equal 0, code, err
      wait_until("a new worker") { get("/", to: own).body != old }
      assert_equal "0", get("/count", to: own).body
      refute clients.sample.ended?(within: 0.1)
      Process.kill("USR2", old.to_i)
      # The front stays, and keeps the connection after a response.
      clients.each { |client| path == "/events" ? client.read_through("0\r\n\r\n") : assert(client.ended?(within: 60)) }
    end
  end

  private

  def open_all(path, fields, form)
    firebrick_only
    app = "Firebrick.after_fork { trap('USR2') { Thread.new { ALL.each_key { |queue| queue << nil } } } }\n#{APP}"
    own = start(app: app, threads: "1:1", settings: { fibers: COUNT + 100, limits: { max_connections: COUNT + 1000 }, timeouts: { shutdown: "60s" } })
    get("/", to: own)
    @before = own.pss
    clients = Array.new(COUNT) { connect(own, deadline: 60).write(request("GET", path, fields)) }
    clients.each { |client| client.read_through(form.call("hello")) }
    wait_for_count(own, COUNT)
    [own, clients]
  end

  def wait_for_count(own, count)
    wait_until("#{count} in the app", within: 60) { get("/count", to: own).body == count.to_s }
  end

  # Returns the share of a processor that the server uses.
  def idle_share(own)
    used = -> { own.processes.sum { |one| File.read("/proc/#{one.pid}/stat").rpartition(") ").last.split.values_at(11, 12).sum(&:to_i) } / 100.0 }
    before = used.call
    (elapsed { sleep 3 }).then { |seconds| (used.call - before) / seconds }
  end

  def report(name, own, idle)
    return unless ENV.key?("TEST_STREAMS")

    puts format("%d %s: %.1f KiB each, %.2f %% of a processor while idle, hello after %.1f ms", COUNT, name, (own.pss - @before) / 1024.0 / COUNT, idle * 100,
                elapsed { get("/", to: own) } * 1000)
  end
end
