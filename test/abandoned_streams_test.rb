# frozen_string_literal: true

# Unfinished responses of apps that wait: the effect of a client that disconnects, when no write reveals it.

require "support/http2_case"

class AbandonedStreamsTest < Http2Case
  parallel!

  APP = <<~'RUBY'
    LOG = Queue.new
    # Writes once, and waits.
    body = lambda do |name, &write|
      write.call("hello\n")
      if name == "post" || name == "thread"
        sleep 0.5
        LOG << "#{name} went on"
        loop { write.call("more\n"); sleep 0.05 }
      end
      name == "call-queue" ? Queue.new.pop : sleep
    rescue Exception => error
      LOG << "#{name} #{error.class}"
      raise
    ensure
      LOG << "#{name} ensured"
    end
    each = Struct.new(:name, :body) do
      def each(&) = body.call(name, &)
      def close = LOG << "#{name} closed"
    end
    run lambda { |env|
      text = { "content-type" => "text/event-stream" }
      name = env["QUERY_STRING"]
      finished = ->(_, status, _, error) { LOG << "#{name} #{status} #{error.class}" }
      env["rack.response_finished"] << finished unless env["PATH_INFO"] == "/log"
      stream = ->(io) { body.call(name) { |part| io.write(part) } }
      case env["PATH_INFO"]
      when "/call", "/ticking" then [200, text, stream]
      when "/hijack" then [200, text.merge("rack.hijack" => stream), []]
      when "/each" then [200, text, each.new(name, body)]
      when "/half" then [200, text, ->(io) { io.write("hello\n"); sleep 2.5; io.write("bye\n"); io.close }]
      when "/log" then [200, text, [Array.new(LOG.size) { LOG.pop }.join("\n")]]
      else [200, text, ["fine"]]
      end
    }
  RUBY

  LEAVING = { "resets its connection" => %i[http1 reset!], "closes it with unread bytes" => %i[http1 close],
              "closes its Unix socket" => %i[unix close], "resets its stream" => %i[http2 reset_stream],
              "closes its connection of HTTP/2" => %i[http2 close] }.freeze

  def streaming(fibers: 10, **options)
    start(app: APP, threads: "1:1", settings: { fibers: fibers }, **options)
  end

  def open_stream(kind, own, path)
    return connect(own).write(request("GET", path)) unless kind == :http2

    client = http2(own)
    stream = client.request(path)
    client.define_singleton_method(:reset_stream) { write(rst_stream(stream)) }
    client
  end

  def wait_for_lines(own, *expected)
    lines = []
    wait_until(-> { "the lines #{expected.inspect}, not #{lines.inspect}" }) { (lines += get("/log", to: own).body.lines(chomp: true)) && (expected - lines).empty? }
  end

  # Waits until the client could read the beginning of the body. If it left after the head alone, the app would fail to write.
  def wait_for_hello(kind, client)
    return client.read_until("hello") { client.answers.values.any? { |answer| answer.body == "hello\n" } } if kind == :http2

    wait_until("hello") { client.socket.recv_nonblock(65_536, Socket::MSG_PEEK, exception: false).to_s.include?("hello") }
  end

  LEAVING.each do |how, (kind, leave)|
    it "ends the wait of an app whose client #{how}" do
      skip "threads are left to their next write" unless Server.cruby?
      own = kind == :unix ? streaming(binds: ["unix://app.sock"]) : streaming
      %w[call hijack each call-queue].each do |name|
        client = open_stream(kind, own, "/#{name[/\w+/]}?#{name}")
        wait_for_hello(kind, client)
        client.read_through("hello") if kind == :unix # its end is enough
        client.public_send(leave)
        closed = name == "each" ? ["each closed"] : []
        wait_for_lines(own, "#{name} Firebrick::ClientGone", "#{name} ensured", *closed, "#{name} 200 Firebrick::ClientGone")
      end
      wait_until("the fibers to be free") { own.stats["workers"].first["busy_threads"].zero? }
    end
  end

  it "goes on with requests that change something, whose next write fails" do
    own = streaming
    client = connect(own).write(request("POST", "/ticking?post", { "Content-Length" => "0" }))
    client.read_through("hello")
    client.reset!
    wait_for_lines(own, "post went on", "post Errno::EPIPE", "post ensured")
  end

  it "leaves threads to their next write" do
    skip "the flag of TEST_FIBERS overrides the setting" if ENV["TEST_FIBERS"]
    own = start(app: APP, threads: "2:2")
    client = connect(own).write(request("GET", "/ticking?thread"))
    client.read_through("hello")
    client.reset!
    wait_for_lines(own, "thread went on", "thread Errno::EPIPE", "thread ensured")
  end

  it "goes on for a client that has closed its sending side only, and reads" do
    own = streaming
    client = connect(own).write(request("GET", "/half", { "Connection" => "close" }))
    client.read_through("hello")
    client.socket.close_write
    assert_includes client.read_to_end, "bye\n"
  end
end
