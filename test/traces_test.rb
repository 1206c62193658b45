# frozen_string_literal: true

# Distributed tracing: the trace context that is passed on, and the spans sent to a collector, however the collector behaves.

require "support/http2_case"
require "support/backend"
require "support/certificates"
require "support/otlp"
require "json"
require "open3"

class TracesTest < Http2Case
  include Certificates

  parallel!

  TRACE = "0af7651916cd43dd8448eb211c80319c"
  PARENT = "b7ad6b7169203331"
  SAMPLED = "00-#{TRACE}-#{PARENT}-01".freeze

  APP = <<~'RUBY'
    require "json"
    text = { "content-type" => "application/json" }
    run lambda { |env|
      seen = JSON.generate(env.slice("HTTP_TRACEPARENT", "HTTP_TRACESTATE"))
      case env["PATH_INFO"]
      when "/slow" then sleep 0.3; [200, text, [seen]]
      when "/fails" then [503, text, [seen]]
      when "/raises" then raise "on purpose"
      else [200, text, [seen]]
      end
    }
  RUBY

  def collector(**options, &answer)
    Otlp::Collector.new(**options, &answer).tap { |one| (@collectors ||= []) << one }
  end

  def teardown
    super
  ensure
    @collectors&.each(&:close)
  end

  # Batches are sent after 50 ms instead of five seconds.
  def traced(to, env: {}, traces: {}, settings: {}, **options)
    start(**{ app: APP }.merge(options), settings: { traces: { endpoint: to.url, service_name: "shop" }.merge(traces) }.merge(settings), env: { "OTEL_BSP_SCHEDULE_DELAY" => "50" }.merge(env))
  end

  def spans(collector, count)
    wait_until("#{count} spans", within: 20) { collector.spans.size >= count }
    collector.spans.tap { |all| assert_equal count, all.size, all.map(&:name).inspect }
  end

  def seen(response) = JSON.parse(response.body)

  it "is off by default, also when OpenTelemetry's variables are set" do
    to = collector
    own = start(app: APP, env: { "OTEL_EXPORTER_OTLP_ENDPOINT" => to.url, "OTEL_TRACES_SAMPLER" => "always_on", "OTEL_BSP_SCHEDULE_DELAY" => "20" })
    assert_empty seen(get("/", to: own))
    both = { "traceparent" => "whatever it is", "tracestate" => "a=1" }
    assert_equal({ "HTTP_TRACEPARENT" => "whatever it is", "HTTP_TRACESTATE" => "a=1" }, seen(get("/", to: own, headers: both)))
    sleep 0.5
    assert_equal 0, to.count
  end

  it "begins a trace, and makes the app's spans children of its own" do
    to = collector
    own = traced(to)
    response = get("/books?id=1", to: own, headers: { "User-Agent" => "Lynx/2" })
    server, queue, app, send = spans(to, 4)
    assert_equal %w[GET queue app send], [server, queue, app, send].map(&:name)
    assert_equal [2, 1, 1, 1], [server, queue, app, send].map(&:kind)
    assert_equal ["", *[server.span_id] * 3], [server, queue, app, send].map(&:parent_span_id)
    assert_equal "00-#{server.trace_id}-#{app.span_id}-01", seen(response)["HTTP_TRACEPARENT"]
    wanted = { "http.request.method" => "GET", "url.path" => "/books", "url.scheme" => "http", "http.response.status_code" => 200, "server.address" => "example.test", "client.address" => "127.0.0.1",
               "user_agent.original" => "Lynx/2", "network.protocol.version" => "1.1" }
    assert_equal wanted, server.attributes.slice(*wanted.keys)
    assert_nil server.status
    assert_equal ["shop", own.pid], server.service.values_at("service.name", "process.pid")
    post = to.posts.first
    assert_equal ["/v1/traces", "application/x-protobuf"], [post.path, post.headers["content-type"]]
    now = Process.clock_gettime(Process::CLOCK_REALTIME, :nanosecond)
    assert_operator (now - server.start).abs, :<, 60_000_000_000
    [queue, app, send].each { |child| assert_operator server.start, :<=, child.start and assert_operator child.end, :<=, server.end + 1_000_000, child.name }
  end

  it "continues the caller's trace, with its state" do
    to = collector
    own = traced(to, traces: { sample: 0.0 })
    response = seen(get("/", to: own, headers: { "traceparent" => SAMPLED, "tracestate" => "vendor=1,other=2" }))
    server, _, app, = spans(to, 4)
    assert_equal [TRACE, PARENT, "vendor=1,other=2"], [server.trace_id, server.parent_span_id, server.state]
    assert_equal ["00-#{TRACE}-#{app.span_id}-01", "vendor=1,other=2"], response.values_at("HTTP_TRACEPARENT", "HTTP_TRACESTATE")
    assert_equal 0x301, server.flags, "sampled, and the parent is remote"
  end

  it "records nothing that the caller has not sampled, nor what the ratio leaves out" do
    to = collector
    own = traced(to)
    none = SAMPLED.sub(/01\z/, "00")
    assert_equal none, seen(get("/", to: own, headers: { "traceparent" => none }))["HTTP_TRACEPARENT"]
    rare = traced(to, traces: { sample: 0 })
    assert_match(/\A00-\h{32}-\h{16}-00\z/, seen(get("/", to: rare))["HTTP_TRACEPARENT"])
    sleep 0.5
    assert_equal 0, to.count
    # The standard variables supply settings that the [traces] table does not have.
    variable = traced(to, env: { "OTEL_TRACES_SAMPLER" => "always_off" })
    assert_match(/-00\z/, seen(get("/", to: variable, headers: { "traceparent" => SAMPLED }))["HTTP_TRACEPARENT"])
    sleep 0.3
    assert_equal 0, to.count
  end

  it "begins anew where the position cannot be read" do
    to = collector
    own = traced(to)
    upper = SAMPLED.upcase
    ["nonsense", "", upper, "#{SAMPLED}-more", SAMPLED.sub(/\A00/, "ff"), SAMPLED.sub(TRACE, "0" * 32)].each do |wrong|
      response = seen(get("/", to: own, headers: { "traceparent" => wrong, "tracestate" => "a=1" }))
      assert_match(/\A00-(?!0af7651916cd43dd)\h{32}-\h{16}-01\z/, response["HTTP_TRACEPARENT"], wrong)
      assert_nil response["HTTP_TRACESTATE"], wrong
    end
    twice = ask("GET / HTTP/1.1\r\nHost: x\r\ntraceparent: #{SAMPLED}\r\ntraceparent: #{SAMPLED}\r\n\r\n", to: own, method: "GET")
    assert_match(/\A00-(?!0af7651916cd43dd)\h{32}-\h{16}-01\z/, seen(twice)["HTTP_TRACEPARENT"])
    newer = SAMPLED.sub(/\A00/, "cc")
    assert_match(/\A00-#{TRACE}-\h{16}-01\z/, seen(get("/", to: own, headers: { "traceparent" => "#{newer}-what-comes" }))["HTTP_TRACEPARENT"])
  end

  it "shows the wait for a worker" do
    to = collector
    own = traced(to, workers: 1, threads: "1:1")
    [0, 1].map { Thread.new { get("/slow", to: own) } }.each(&:join)
    waits = spans(to, 8).select { |span| span.name == "queue" }.map(&:milliseconds).sort
    assert_operator waits.last, :>=, 200
    assert_operator waits.first, :<, waits.last
    assert(to.spans.select { |span| span.name == "app" }.all? { |span| span.milliseconds >= 250 })
  end

  it "marks failures of the server as errors, and those of clients not" do
    to = collector
    own = traced(to)
    %w[/fails /raises].each { |path| get(path, to: own) }
    ask(request("BREW", "/", {}), to: own)
    servers = spans(to, 12).select { |span| span.kind == 2 }.sort_by(&:start)
    assert_equal [[2, ""], [2, ""], nil], servers.map(&:status)
    assert_equal(["503", "500", nil], servers.map { |span| span.attributes["error.type"] })
    assert_equal %w[GET GET HTTP], servers.map(&:name)
    assert_equal %w[_OTHER BREW], servers.last.attributes.values_at("http.request.method", "http.request.method_original")
  end

  it "works with HTTP/2" do
    to = collector
    own = traced(to)
    answer = fetch("/two", to: own, headers: { "traceparent" => SAMPLED })
    server, _, app, = spans(to, 4)
    assert_equal "00-#{TRACE}-#{app.span_id}-01", JSON.parse(answer.body)["HTTP_TRACEPARENT"]
    assert_equal ["2", "/two", PARENT], [*server.attributes.values_at("network.protocol.version", "url.path"), server.parent_span_id]
  end

  it "records files, and rewrites the position for origins" do
    to = collector
    behind = Backend.new
    files = { "index.html" => "home", "static.json" => JSON.generate(root: ".", proxies: { "/api": { origin: behind.origin } }) }
    own = traced(to, app: nil, files: files, workers: nil, threads: nil, environment: nil)
    assert_equal "home", get("/", to: own).body
    assert_equal %w[GET send], spans(to, 2).map(&:name)
    get("/api/x", to: own, headers: { "traceparent" => SAMPLED })
    server, proxy, = spans(to, 5).drop(2)
    assert_equal [PARENT, server.span_id, 3], [server.parent_span_id, proxy.parent_span_id, proxy.kind]
    assert_equal "00-#{TRACE}-#{proxy.span_id}-01", behind.requests.first["traceparent"]
  ensure
    behind&.close
  end

  it "records handlers on mruby" do
    skip "built without mruby" unless Server.mruby?
    to = collector
    handler = 'lambda { |env| [200, { "content-type" => "text/plain" }, [env["HTTP_TRACEPARENT"]]] }'
    own = traced(to, app: nil, files: { "handler.rb" => handler }, settings: { routes: { '"/"' => "handler.rb" } }, workers: nil, threads: nil, environment: nil)
    body = get("/", to: own, headers: { "traceparent" => SAMPLED }).body
    server, inside, = spans(to, 3)
    assert_equal ["handler", server.span_id, "00-#{TRACE}-#{inside.span_id}-01"], [inside.name, inside.parent_span_id, body]
  end

  it "tries again when the collector is busy, as late as it says" do
    to = collector { |number| number == 1 ? [503, "Retry-After: 2\r\n"] : [200, ""] }
    own = traced(to)
    get("/", to: own)
    spans(to, 4)
    first, second = to.posts.map { |post| post.at.first }
    assert_operator second - first, :>=, 1.9
    assert_equal to.posts[0].body, to.posts[1].body
  end

  it "is not slowed by a collector that is silent, and says once what was dropped" do
    to = collector { :silence }
    own = traced(to, env: { "OTEL_EXPORTER_OTLP_TIMEOUT" => "300", "OTEL_BSP_MAX_QUEUE_SIZE" => "10", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE" => "5" })
    60.times { assert_status 200, get("/", to: own) }
    assert_logged(/traces: the spans of \d+ requests were dropped: #{Regexp.escape(to.url)}\S*: /, on: own)
    20.times { get("/", to: own) }
    assert_equal 1, own.stderr.scan("were dropped").size
    own.signal("TERM")
    wait_until("the end", within: 15) { !own.running? }
    lost = own.stderr.scan(/the spans of (\d+) requests were dropped/).sum { |(count)| Integer(count) }
    assert_equal 80, lost, own.stderr
  end

  # A file with the certificate of an authority.
  def authority_file(dir, authority)
    File.join(dir, "ca-#{authority.first.serial}.pem").tap { |path| File.write(path, authority.first.to_pem) }
  end

  it "exports over TLS to a collector whose authority is its own" do
    authority = certificate(name: "the authority")
    to = collector(tls: certificate(issuer: authority))
    Dir.mktmpdir do |dir|
      file = authority_file(dir, authority)
      %w[OTEL_EXPORTER_OTLP_CERTIFICATE OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE].each_with_index do |variable, number|
        own = traced(to, env: { variable => file })
        assert_status 200, get("/", to: own)
        spans(to, 4 * (number + 1))
        refute_match(/traces/, own.stderr)
      end
    end
  end

  it "sends nothing to a collector whose certificate it does not trust, and says why" do
    authority, other = %w[one other].map { |name| certificate(name: name) }
    Dir.mktmpdir do |dir|
      cases = {
        [authority, {}] => /UnknownIssuer/,
        [other, {}] => /UnknownIssuer/,
        [authority, { subject_alt_name: "DNS:elsewhere.test" }] => /not valid for name/,
        [authority, { from: Time.now - 7200, to: Time.now - 3600 }] => /expired/
      }
      cases.each_with_index do |((trusted, options), reason), number|
        to = collector(tls: certificate(issuer: authority, **options))
        env = number.zero? ? {} : { "OTEL_EXPORTER_OTLP_CERTIFICATE" => authority_file(dir, trusted) }
        own = traced(to, env: env)
        assert_status 200, get("/", to: own)
        own.signal("TERM")
        wait_until("the end", within: 15) { !own.running? }
        assert_logged(/traces: the spans of 1 requests were dropped: #{Regexp.escape(to.url)}\S*: .*#{reason}.* \(OTEL_EXPORTER_OTLP_CERTIFICATE /, on: own)
        assert_equal 0, to.count
      end
    end
  end

  it "says at the start that a file of authorities cannot be used, and serves" do
    to = collector
    Dir.mktmpdir do |dir|
      File.write(File.join(dir, "empty.pem"), "no certificate\n")
      { "missing.pem" => /No such file/, "empty.pem" => /no certificate/ }.each do |name, reason|
        own = traced(to, env: { "OTEL_EXPORTER_OTLP_CERTIFICATE" => File.join(dir, name) })
        assert_logged(/warning: OTEL_EXPORTER_OTLP_CERTIFICATE: \S*#{name}: .*#{reason}.*; the system's authorities are used/, on: own)
        assert_status 200, get("/", to: own)
      end
    end
  end

  it "serves while there is no collector, and exports when there is one" do
    to = collector
    port = to.port
    to.close
    own = traced(to)
    5.times { assert_status 200, get("/", to: own) }
    sleep 0.3
    later = collector(port: port)
    wait_until("the spans", within: 20) { later.spans.size == 20 }
  end

  it "does not repeat what the collector refuses" do
    to = collector { [400, ""] }
    own = traced(to)
    get("/", to: own)
    assert_logged(/traces: the spans of 1 requests were dropped: .*the collector answered 400/, on: own)
    sleep 1.5
    assert_equal 1, to.count
  end

  it "sends what is left when the server ends" do
    to = collector
    own = traced(to, env: { "OTEL_BSP_SCHEDULE_DELAY" => "60000" })
    3.times { get("/", to: own) }
    sleep 0.2
    assert_equal 0, to.count
    own.signal("TERM")
    wait_until("the end") { !own.running? }
    assert_equal [1, 12], [to.count, to.spans.size]
  end

  it "ends in time although the collector does not answer" do
    to = collector { :silence }
    own = traced(to, env: { "OTEL_BSP_SCHEDULE_DELAY" => "60000" })
    get("/", to: own)
    own.signal("TERM")
    asked = now
    wait_until("the end", within: 15) { !own.running? }
    assert_operator now - asked, :<, 8
    assert_match(/the last spans could not be exported in time/, own.stderr)
  end

  it "takes the rest from OpenTelemetry's variables" do
    to = collector
    env = { "OTEL_EXPORTER_OTLP_ENDPOINT" => "#{to.url}/tenant/", "OTEL_EXPORTER_OTLP_HEADERS" => "api-key=a%20b", "OTEL_SERVICE_NAME" => "books", "OTEL_RESOURCE_ATTRIBUTES" => "deployment.environment.name=test",
            "OTEL_EXPORTER_OTLP_PROTOCOL" => "grpc" }
    own = start(app: APP, settings: { traces: { endpoint: "auto" } }, env: { "OTEL_BSP_SCHEDULE_DELAY" => "50" }.merge(env))
    get("/", to: own)
    server, = spans(to, 4)
    assert_equal %w[books test], server.service.values_at("service.name", "deployment.environment.name")
    assert_equal ["/tenant/v1/traces", "a b"], [to.posts.first.path, to.posts.first.headers["api-key"]]
    assert_logged(%r{warning: OTEL_EXPORTER_OTLP_PROTOCOL is grpc: the server exports by http/protobuf all the same}, on: own)
  end

  # Where the official Python package is installed, its decoding is compared with the test's.
  it "is read by OpenTelemetry's own messages" do
    _, installed = Open3.capture2e("python3", "-c", "import opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    skip "no opentelemetry-proto for Python" unless installed.success?
    to = collector
    own = traced(to)
    get("/fails", to: own, headers: { "traceparent" => SAMPLED, "tracestate" => "a=1" })
    ours = spans(to, 4)
    script = <<~'PYTHON'
      import json, sys
      from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
      read = ExportTraceServiceRequest.FromString(sys.stdin.buffer.read())
      spans = read.resource_spans[0].scope_spans[0].spans
      print(json.dumps([[s.trace_id.hex(), s.span_id.hex(), s.parent_span_id.hex(), s.name, s.kind, s.start_time_unix_nano, s.end_time_unix_nano, s.trace_state, s.flags, s.status.code,
                         {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in s.attributes}] for s in spans]))
    PYTHON
    theirs, = Open3.capture2("python3", "-c", script, stdin_data: to.posts.first.body, binmode: true)
    wanted = ours.map { |span| [span.trace_id, span.span_id, span.parent_span_id, span.name, span.kind, span.start, span.end, span.state, span.flags, span.status ? span.status[0] : 0, span.attributes] }
    assert_equal wanted, JSON.parse(theirs)
  end
end
