# frozen_string_literal: true

# Frameworks other than Rails, each with a small app and two workers. They behave as under Puma.

require "support/case"
require "support/visitor"

# The base: an app of test/apps, and the features that all of them have.
class FrameworkCase < Case
  APPS = File.expand_path("apps", __dir__)

  class << self
    attr_reader :framework

    # Skips the class unless its gem is installed; its app has the same name.
    def framework!(name)
      @framework = name
      parallel!
    end

    def installed?
      return @installed if defined?(@installed)

      @installed = system(ENV.fetch("RUBY", "ruby"), "-e", "gem #{framework.inspect}", out: File::NULL, err: File::NULL)
    end

    def shared_options
      folder = File.join(APPS, framework)
      files = Dir.children(folder).to_h { |name| [name, File.binread(File.join(folder, name))] }
      { workers: 2, threads: "1:5", files: files.merge("gate.rb" => File.read(File.join(APPS, "gate.rb"))), leaves: ["test.sqlite3"] }
    end
  end

  def before_setup
    super
    skip "#{self.class.framework} is not installed (apt-get install ruby-#{self.class.framework})" unless self.class.installed?
  end

  def open_gate(name)
    File.write(server.path("gate-#{name}.log"), "")
  end

  def upload(path, content, **fields)
    Visitor.new(self, server).upload(path, "file", "report.txt", content, fields)
  end

  def assert_answer(status, content, response, part)
    assert_equal [status, content], [response.status, response.public_send(part)]
  end

  # Asserts that each piece arrives separately.
  def assert_streams(path)
    name = rand(1 << 32).to_s
    connection = connect
    connection.write(request("GET", "#{path}?name=#{name}"))
    3.times do |i|
      open_gate("#{name}-#{i}")
      connection.read_through("data: #{i}\n\n")
    end
    connection.read_through("0\r\n\r\n")
    connection.write(request("GET", "/"))
    connection.read_response
  end

  def assert_sends_report(path)
    response = get(path)
    assert_equal [200, "a report of the app\n"], [response.status, response.body]
    response
  end

  def assert_counts_visits
    visitor = Visitor.new(self, server)
    assert_equal(%w[1 2 3], Array.new(3) { visitor.get("/visits").body })
    assert_equal "1", Visitor.new(self, server).get("/visits").body
    visitor.cookies.transform_values!(&:reverse)
    assert_equal "1", visitor.get("/visits").body
  end
end

class SinatraTest < FrameworkCase
  framework! "sinatra"

  it "routes, renders and filters" do
    { "/" => "hello", "/names/a%20b" => "a b ", "/names/a/b" => "a b", "/files/a.b/c.txt" => '["a", "b/c.txt"]', "/template?text=%3Cb%3E" => "<p>&lt;B&gt;</p>" }.each do |path, expected|
      response = get(path)
      assert_equal [200, expected, "yes"], [response.status, response.body, response["x-before"]], path
    end
    assert_equal "hello".bytesize.to_s, ask(request("HEAD", "/"))["content-length"]
    assert_equal "cba", ask(request("PUT", "/json", { "Content-Type" => "application/json" }, "abc")).body
    redirect = get("/redirect", headers: { "Host" => "name.test" })
    assert_equal [302, "http://name.test/names/x"], [redirect.status, redirect["location"]]
    halted = get("/halt")
    assert_equal [418, "halted", "yes"], [halted.status, halted.body, halted["x-halt"]]
    assert_status 304, get("/etag", headers: { "If-None-Match" => '"v1"' })
  end

  it "has its error pages" do
    missing = get("/nowhere")
    assert_equal [404, "nothing at /nowhere"], [missing.status, missing.body]
    failed = get("/raise")
    assert_equal [500, "<h1>Internal Server Error</h1>"], [failed.status, failed.body]
    wait_until("the exception in the log") { "#{server.stderr}#{server.stdout}".include?("an error of the app") }
  end

  it("keeps sessions in signed cookies") { assert_counts_visits }

  it "takes uploads and sends files" do
    assert_equal "report.txt 3000000 note", upload("/upload", "x" * 3_000_000, note: "note").body
    assert_includes assert_sends_report("/sent")["content-disposition"], "report.txt"
    part = get("/sent", headers: { "Range" => "bytes=2-7" })
    assert_equal [206, "report"], [part.status, part.body]
  end

  it("streams") { assert_streams("/stream") }

  it "ends a stream whose client has left" do
    name = "left#{rand(1 << 32)}"
    connection = connect
    connection.write(request("GET", "/endless?name=#{name}"))
    connection.read_through("data: more\n\n")
    connection.close
    wait_until("the stream's callback", within: 30) { File.exist?(server.path("gate-#{name}.log")) }
    wait_until("free threads", within: 30) { server.control("/requests").empty? } unless Server.puma?
  end

  it("lets routes take the connection over") { assert_equal "hijacked", get("/hijack").body }
end

class GrapeTest < FrameworkCase
  framework! "grape"

  it "routes, checks parameters and has its errors" do
    assert_equal({ "hello" => "ä" }, get("/v1/hello?name=%C3%A4").json)
    posted = post("/v1/numbers", '{"number":4,"list":["a"]}', headers: { "Content-Type" => "application/json" })
    assert_equal [201, { "number" => 8, "list" => ["a"] }], [posted.status, posted.json]
    wrong = post("/v1/numbers", '{"number":40}', headers: { "Content-Type" => "application/json" })
    assert_equal 400, wrong.status, wrong.body
    assert_answer 422, { "error" => "no such thing" }, get("/v1/fails"), :json
    assert_answer 500, { "error" => "internal" }, get("/v1/raises"), :json
    assert_status 404, get("/v1/nowhere")
    assert_status 405, ask(request("DELETE", "/v1/hello"))
    nothing = get("/v1/nothing")
    assert_equal [204, ""], [nothing.status, nothing.body.to_s]
    options = ask(request("OPTIONS", "/v1/hello"))
    assert_equal [204, true], [options.status, options["allow"].include?("GET")]
  end

  it "takes uploads and sends files" do
    assert_equal({ "name" => "report.txt", "size" => 3_000_000 }, upload("/v1/upload", "x" * 3_000_000).json)
    assert_sends_report("/v1/sent")
  end

  it("streams") { assert_streams("/v1/events") }
end

class RodaTest < FrameworkCase
  framework! "roda"

  it "routes, has its error pages, keeps sessions and takes uploads" do
    assert_equal %w[hello x], [get("/").body, get("/names/x").body]
    assert_equal({ "a" => [1] }, get("/json").json)
    assert_answer 500, "sorry: an error of the app", get("/raise"), :body
    assert_answer 404, "nothing here", get("/nowhere"), :body
    assert_counts_visits
    assert_equal "report.txt 3000000", upload("/upload", "x" * 3_000_000).body
  end

  it("streams") { assert_streams("/stream") }
end

class SequelTest < FrameworkCase
  framework! "sequel"

  def before_setup
    super
    skip "sqlite3 is not installed (apt-get install ruby-sqlite3)" unless system(ENV.fetch("RUBY", "ruby"), "-e", "require 'sqlite3'", out: File::NULL, err: File::NULL)
  end

  it "gives each worker connections of its own, and loses nothing of what they write at a time" do
    firebrick_only "Puma's hook would be in its puma.rb"
    texts = Array.new(60) { |i| "entry#{i}" }
    texts.each_slice(15).map do |some|
      Thread.new { some.each { |text| assert_status 201, get("/add?#{text}") } }
    end.each(&:join)
    get("/rolled_back")
    found = get("/").json
    assert_equal texts.sort, found["texts"].sort
    assert_includes [1, 2], found["processes"].size
    assert_equal [0], found["forked_with"], "connections that were open before the fork"
    assert_equal 1, found["now"], "the pool's own connection"
  end

  it "would share a connection without the hook" do
    firebrick_only
    own = start(**self.class.shared_options, env: { "NO_HOOK" => "1" })
    assert_equal [1], get("/forked_with", to: own).json
  end
end
