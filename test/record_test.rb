# frozen_string_literal: true

# `firebrick record` and `firebrick bench --replay` of its file, over every version of HTTP.

require "json"
require "open3"
require "support/bench_case"
require "support/quic_go"
require "support/tls_case"

RECORD_APP = <<~'RUBY'
  require "json"
  COUNT, LOCK = Hash.new(0), Mutex.new
  run lambda { |env|
    body = env["rack.input"]&.read.to_s
    LOCK.synchronize { COUNT["#{env['REQUEST_METHOD']} #{body.bytesize}"] += 1 }
    case env["PATH_INFO"]
    when %r{\A/posts/\d+\z} then [200, { "content-type" => "text/plain" }, ["post #{env['PATH_INFO']}"]]
    when %r{\A/reset/} then [200, { "content-type" => "text/plain" }, [env["PATH_INFO"].include?("***") ? "expired" : "welcome"]]
    when "/large" then [200, { "content-type" => "application/octet-stream", "content-length" => (6 << 20).to_s }, ["l" * (6 << 20)]]
    when "/parts" then [200, { "content-type" => "application/octet-stream" }, Array.new(40) { |n| n.to_s * 100_000 }]
    when "/path" then [200, { "content-type" => "application/octet-stream" }, File.open("sent.bin", "rb")]
    when "/form" then [302, { "location" => "/" }, []]
    when "/changes" then [200, { "content-type" => "text/plain" }, [LOCK.synchronize { COUNT["changes"] += 1 }.to_s.rjust(4)]]
    when "/fails" then [File.exist?(ENV.fetch("RECORD_FLAG")) ? 500 : 200, {}, ["x"]]
    when "/count" then [200, {}, [LOCK.synchronize { JSON.generate(COUNT) }]]
    else [404, {}, ["none"]]
    end
  }
RUBY

# Quiet, because a recording lasts for seconds, and gets its requests within them.
class RecordTest < BenchCase
  quiet! 15

  # Records what the block sends; returns the lines, and what the command said.
  def record(own, *args, dir:)
    file = "#{dir}/requests.jsonl"
    command = own.begin_command("record", file, *args)
    wait_until("the recording") { command.output.include?("recording to") }
    yield
    command.wait
    [File.readlines(file).map { |line| JSON.parse(line) }, command.output, command.code]
  end

  it "keeps requests with bodies and without secrets, and replays them with a comparison" do
    in_folder do |dir|
      flag = "#{dir}/flag"
      server = start(app: RECORD_APP, binds: ["tcp://127.0.0.1:0?h2c=true"], workers: 1, threads: "4:4", env: { "RECORD_FLAG" => flag })
      url = server.url.chomp("/")
      lines, said, status = record(server, "--for", "4s", dir: dir) do
        curl = ->(*args) { assert system("curl", "-sS", "-o", "/dev/null", *args), args.inspect }
        curl.call("-H", "Cookie: _session=c00kie", "-H", "Authorization: Bearer s3cret", "#{url}/posts/17?token=t0ken&page=2")
        curl.call("#{url}/posts/18")
        curl.call("-d", "title=a&password=hidden", "#{url}/form")
        curl.call("-H", "Content-Type: application/json", "-d", '{"user":{"password":"hidden","n":1}}', "#{url}/form")
        curl.call("#{url}/changes")
        curl.call("#{url}/fails")
        curl.call("--http2-prior-knowledge", "#{url}/posts/19")
      end
      assert_equal 0, status, said
      assert_match(/7 requests in .*until the time was over/, said)
      assert_equal 0o600, File.stat("#{dir}/requests.jsonl").mode & 0o777
      text = File.read("#{dir}/requests.jsonl")
      %w[c00kie s3cret t0ken hidden].each { |secret| refute_includes text, secret }
      requests = lines[1..-2]
      first = requests.find { |line| line["target"].start_with?("/posts/17") }
      assert_equal "/posts/17?token=*****&page=2", first["target"]
      assert_includes first["fields"], ["cookie", "_session=******"]
      assert_equal %w[authorization cookie query], first["masked"].sort
      assert_equal [200, 14, Digest::SHA256.hexdigest("post /posts/17")], first.values_at("status", "length", "sha256")
      assert_equal(["title=a&password=******", '{"user":{"password":"******","n":1}}'],
                   requests.select { |line| line["method"] == "POST" }.map { |line| line["body"] })
      assert_includes requests.map { |line| line["version"] }, "HTTP/2"

      replay = ["#{url}/", "--replay", "#{dir}/requests.jsonl", "--speed", "10x"]
      found = result(*replay, "--replay-unsafe")
      compared = found.dig("outcome", "compared").to_h { |group| [group["name"], group.values_at("same", "status", "length", "body")] }
      assert_equal [3, 0, 0, 0], compared["GET /posts/:id"]
      assert_equal [2, 0, 0, 0], compared["POST /form"]
      assert_equal [0, 0, 0, 1], compared["GET /changes"], "the same length"
      assert_operator JSON.parse(get_from(url, "/count"))["POST 23"], :>=, 2, "with the body"
      File.write(flag, "")
      out, err, code = bench(*replay, "--fail-if", "differences>1")
      assert_equal 1, code
      assert_match(/differences>1: it is 2/, err)
      assert_match(%r{^ +0 +1 +0 +0 .*GET /fails$\n.*status 500 instead of 200}, out)
      assert_match(/2 requests of the recording were left out because their methods are unsafe/, out)
      assert_match(/secrets/, out)
      assert_equal 5, result(*replay[0, 3], "--speed", "max", "-c", "2").dig("outcome", "sent")
      assert_equal 5, result(*replay[0, 3], "--rate", "50/s").dig("outcome", "sent")
    end
  end

  [["threads", {}], ["fibers", { settings: { fibers: 20 } }], ["plain Ruby", { env: { "FIREBRICK_PURE" => "1" } }]].each do |mode, options|
    it "has the digest of each body, also of one that a worker writes to the client itself, in #{mode}" do
      in_folder do |dir|
        env = { "RECORD_FLAG" => "/nonexistent" }.merge(options[:env] || {})
        sent = "s" * 3_000_001
        server = start(app: RECORD_APP, files: { "sent.bin" => sent }, binds: ["tcp://127.0.0.1:0?h2c=true"], workers: 1, threads: "2:2", **options, env: env)
        url = server.url.chomp("/")
        bodies = { "/large" => "l" * (6 << 20), "/parts" => Array.new(40) { |n| n.to_s * 100_000 }.join, "/path" => sent, "/posts/1" => "post /posts/1" }
        # A busy machine takes more than 10 s for these requests.
        lines, said, status = record(server, "--for", "30s", dir: dir) do
          bodies.each do |path, body|
            ["--http1.1", "--http2-prior-knowledge"].each do |version|
              out, status = Open3.capture2("curl", "-sS", "-D", "#{dir}/head", version, "#{url}#{path}", binmode: true)
              assert_predicate status, :success?
              assert_equal [body.bytesize, true], [out.bytesize, out == body.b], path
              assert_match(/^content-length: #{sent.bytesize}\r$/i, File.read("#{dir}/head")) if path == "/path"
            end
          end
        end
        assert_equal 0, status, said
        got = lines[1..-2].select { |line| line["method"] == "GET" }
        assert_equal(bodies.flat_map { |path, body| [[path, body.bytesize, Digest::SHA256.hexdigest(body)]] * 2 }.sort_by(&:inspect),
                     got.map { |line| line.values_at("target", "length", "sha256") }.sort_by(&:inspect), said)
        compared = result("#{url}/", "--replay", "#{dir}/requests.jsonl", "--speed", "max", "-c", "2").dig("outcome", "compared")
        assert_equal [0, 0, 0], %w[status length body].map { |name| compared.sum { |group| group[name] } }, compared
      end
    end
  end

  it "masks keys in paths, and replays such requests" do
    in_folder do |dir|
      server = start(app: RECORD_APP, workers: 1, threads: "2:2", env: { "RECORD_FLAG" => "/nonexistent" })
      key = "k8mVbqjG1wTzYs6xQ2pN4cRd"
      lines, said, status = record(server, "--for", "3s", dir: dir) do
        ["/reset/#{key}?page=2", "/posts/17", "/reset/3f2504e0-4f89-11d3-9a0c-0305e82c3301"].each do |path|
          assert system("curl", "-sS", "-o", "/dev/null", "-H", "Referer: http://localhost/reset/#{key}", "#{server.url.chomp('/')}#{path}")
        end
      end
      assert_equal 0, status, said
      refute_includes File.read("#{dir}/requests.jsonl"), key
      targets = lines[1..-2].map { |line| line["target"] }
      assert_equal ["/posts/17", "/reset/#{'*' * key.size}?page=2", "/reset/3f2504e0-4f89-11d3-9a0c-0305e82c3301"], targets.sort
      assert_equal [%w[path referer], %w[referer], %w[referer]], lines[1..-2].map { |line| line["masked"].sort }.sort
      compared = result(server.url, "--replay", "#{dir}/requests.jsonl", "--speed", "max", "-c", "1").dig("outcome", "compared")
      found = compared.to_h { |group| [group["name"], group.values_at("same", "status", "length", "body")] }
      assert_equal({ "GET /reset/:id" => [2, 0, 0, 0], "GET /posts/:id" => [1, 0, 0, 0] }, found)
    end
  end

  it "ends by size, records one in n, and refuses a second recording" do
    in_folder do |dir|
      server = start(app: RECORD_APP, workers: 1, threads: "4:4", env: { "RECORD_FLAG" => "/nonexistent" })
      lines, said, = record(server, "--for", "30s", "--one-in", "10", "--max", "20KB", dir: dir) do
        _, err, code = server.command_line("record", "#{dir}/second")
        assert_equal 1, code
        assert_match(/one recording at a time/, err)
        refute_path_exists "#{dir}/second"
        bench("#{server.url}posts/1", "-n", 2_000, "-c", 4, "-q")
      end
      assert_match(/until the size was reached/, said)
      assert_operator lines.size - 2, :<, 200
      _, err, code = server.command_line("record", "#{dir}/requests.jsonl")
      assert_equal 1, code
      assert_match(/exists: expected the name of a new file/, err)
    end
  end

  it "ends when its client has gone, and requests go on" do
    in_folder do |dir|
      server = start(app: RECORD_APP, workers: 1, threads: "4:4", env: { "RECORD_FLAG" => "/nonexistent" })
      2.times do |number|
        command = server.begin_command("record", "#{dir}/#{number}", "--for", "60s")
        wait_until("recording #{number}") { command.output.include?("recording to") }
        assert_equal 0, bench("#{server.url}posts/1", "-n", 50, "-q").last
        command.kill
        assert_equal "firebrick record", JSON.parse(File.readlines("#{dir}/#{number}").first)["kind"]
        # The server notices with its next line, at the latest after a second.
        sleep 2
      end
      assert_equal 0, bench("#{server.url}posts/1", "-n", 50, "-q").last
    end
  end

  def get_from(url, path)
    Open3.capture2("curl", "-sS", "#{url}#{path}").first
  end
end

class RecordTlsTest < TlsCase
  quiet! 5

  it "keeps requests over HTTP/3 and for files of the site, too" do
    skip "needs Go and quic-go: script/setup test" unless QuicGo.client
    own = secure(files: { "public/file.txt" => "a file" }, settings: { files: { public: "always" } })
    Dir.mktmpdir do |dir|
      command = own.begin_command("record", "#{dir}/requests.jsonl", "--for", "4s")
      wait_until("the recording") { command.output.include?("recording to") }
      assert_equal 200, QuicGo.ask(own, "/three?token=s3cret").first["status"]
      assert_equal "a file", fetch(own, "/file.txt").body
      command.wait
      text = File.read("#{dir}/requests.jsonl")
      refute_includes text, "s3cret"
      lines = text.lines.map { |line| JSON.parse(line) }.select { |line| line.key?("target") }.sort_by { |line| line["target"] }
      assert_equal([["/file.txt", "HTTP/1.1", 200, 6], ["/three?token=******", "HTTP/3", 200, lines.last["length"]]],
                   lines.map { |line| line.values_at("target", "version", "status", "length") })
      assert_equal Digest::SHA256.hexdigest("a file"), lines.first["sha256"]
    end
  end
end
