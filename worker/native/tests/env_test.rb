# frozen_string_literal: true

# The contents of the app's env.
class EnvTest < Case
  ENV_AS_JSON = <<~RUBY
    require "json"
    run lambda { |env|
      plain = env.reject { |key, _| key.start_with?("rack.") }
      plain["input"] = env["rack.input"].read
      plain["scheme"] = env["rack.url_scheme"]
      [200, { "content-type" => "application/json" }, [JSON.generate(plain.transform_values { |v| v.is_a?(String) ? v.b.inspect[1..-2] : v })]]
    }
  RUBY

  def env_of(**request)
    serve(ENV_AS_JSON) { |worker| return JSON.parse(worker.get(request.delete(:target) || "/", **request)[2]) }
  end

  def test_the_request_line
    env = env_of(method: "PATCH", target: "/a%20b/c?x=1&y=%2F")
    assert_equal %w[PATCH /a%20b/c x=1&y=%2F], env.values_at("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING")
    assert_equal ["/a%20b/c", "/a%20b/c?x=1&y=%2F"], env.values_at("REQUEST_PATH", "REQUEST_URI")
    assert_equal ["", "HTTP/1.1", "HTTP/1.1"], env.values_at("SCRIPT_NAME", "SERVER_PROTOCOL", "HTTP_VERSION")
  end

  def test_peer_and_server
    env = env_of(remote_addr: "10.1.2.3", remote_port: 50_000, server_name: "shop.example", server_port: "8080")
    assert_equal %w[10.1.2.3 50000 shop.example 8080], env.values_at(*%w[REMOTE_ADDR REMOTE_PORT SERVER_NAME SERVER_PORT])
    assert_match(/\AFirebrick \d/, env["SERVER_SOFTWARE"])
    assert_equal "http", env["scheme"]
    refute env.key?("HTTPS")
  end

  def test_a_unix_peer_is_the_local_host
    env = env_of(remote_addr: "", remote_port: 0)
    assert_equal "127.0.0.1", env["REMOTE_ADDR"]
    refute env.key?("REMOTE_PORT")
  end

  def test_https_and_old_http
    env = env_of(https: true, version: 10)
    assert_equal %w[https on HTTP/1.0 HTTP/1.0], env.values_at("scheme", "HTTPS", "SERVER_PROTOCOL", "HTTP_VERSION")
  end

  def test_fields
    long = "x-#{'long-' * 100}name"
    env = env_of(fields: [["Host", "a.example"], %w[X-Own-Name 1], %w[Accept a], %w[accept b], ["Cookie", "a=1"],
                          ["cookie", "b=2"], %w[x-own-name 2], [long, ""], ["Content-Type", "text/x"]])
    assert_equal ["a.example", "1, 2", "a, b", "a=1; b=2", "text/x"],
                 env.values_at(*%w[HTTP_HOST HTTP_X_OWN_NAME HTTP_ACCEPT HTTP_COOKIE CONTENT_TYPE])
    assert_equal "", env["HTTP_#{long.upcase.tr('-', '_')}"]
    refute env.key?("HTTP_CONTENT_TYPE")
  end

  def test_every_known_name_has_its_key
    env = env_of(fields: Wire::NAMES.map { |name| [name, "v"] }, body: "b")
    (Wire::NAMES - %w[content-type content-length transfer-encoding]).each do |name|
      assert_equal "v", env["HTTP_#{name.upcase.tr('-', '_')}"], name
    end
    refute env.key?("HTTP_TRANSFER_ENCODING")
  end

  def test_queue_time
    now = Process.clock_gettime(Process::CLOCK_MONOTONIC, :microsecond)
    assert_in_delta 60, env_of(asked_us: now - 60_000_000)["firebrick.queue_time"], 30
    assert_in_delta 0.0, env_of(asked_us: now + 60_000_000)["firebrick.queue_time"]
  end

  def test_one_request_leaves_nothing_for_the_next
    serve(ENV_AS_JSON) do |worker|
      get = ->(**request) { JSON.parse(worker.get("/", **request)[2]) }
      first = get.call
      get.call(method: "POST", https: true, version: 10, body: "x", remote_addr: "9.9.9.9", server_name: "o", server_port: "1",
               fields: [%w[X-A b]])
      assert_equal first, get.call
    end
  end

  def test_values_are_binary_and_keys_frozen
    serve(app(<<~RUBY)) { |worker| assert_equal "{}", worker.get("/ä".b, fields: [%w[Host h], %w[X-B b]])[2] }
      odd = env.select { |k, v| !k.frozen? || (k =~ /PATH|URI|^HTTP_/ && v.encoding != Encoding::BINARY && !v.ascii_only?) }
      [200, {}, [odd.inspect]]
    RUBY
  end

  def test_bodies
    [nil, "", "small", "\0\xff" * 60_000].each do |body|
      env = env_of(method: "POST", body: body)
      assert_equal body.to_s.b.inspect[1..-2], env["input"]
      assert_equal [*(body.bytesize.to_s unless body.to_s.empty?)], [*env["CONTENT_LENGTH"]]
    end
  end

  def test_a_body_in_a_descriptor
    read = 'input = env["rack.input"]; a = input.read; input.rewind; b = input.read(10); [200, {}, [a.bytesize.to_s, b, input.class.to_s]]'
    serve(app(read)) do |worker|
      Tempfile.create do |file|
        file.write("0123456789" * 50_000)
        file.rewind
        id = worker.start(method: "POST", file: file, fd_length: 500_000, fields: [%w[Content-Length 500000]])
        assert_equal "5000000123456789File", worker.response(id)[2]
      end
      eventually("the descriptor is closed") { Dir["/proc/#{worker.pid}/fd/*"].none? { |fd| File.readlink(fd).include?("deleted") } }
    end
  end

  def test_lint_is_content
    rackup = <<~RUBY
      require "rack/lint"
      use Rack::Lint
      run lambda { |env|
        env["rack.input"].read
        [200, { "content-type" => "text/plain" }, ["fine"]]
      }
    RUBY
    serve(rackup) do |worker, front|
      requests = [
        {}, { body: "abc", method: "POST" }, { target: "*", method: "OPTIONS" }, { target: "http://h.example/p?q" },
        { target: "http://h.example" }, { https: true }, { version: 10, fields: [] }, { remote_addr: "", remote_port: 0 },
        { target: "/%C3%A4?\xe4".b, fields: [%w[Host h], ["X-Latin", "\xe4".b]] }, { method: "PROPFIND" }
      ]
      requests.each { |request| assert_equal [200, "fine"], worker.get(request[:target] || "/", **request.except(:target)).values_at(0, 2), request.inspect }
      refute_match(/LintError/, front.log)
    end
  end

  def test_lint_is_content_with_a_head_request
    serve("require 'rack/lint'\nuse Rack::Lint\nrun ->(_) { [200, { 'content-type' => 'text/plain' }, []] }") do |worker|
      assert_equal 200, worker.get("/", method: "HEAD").first
    end
  end

  def test_the_input_without_a_body
    serve(app(<<~RUBY)) { |worker| assert_equal '["", nil, "", nil, nil, 0, "buffer emptied: "]', worker.get[2] }
      i = env["rack.input"]; b = +"x"; i.read(1, b)
      [200, {}, [[i.read, i.read(1), i.read(0), i.gets, i.each { raise }&.then { nil }, i.rewind, "buffer emptied: " + b].inspect]]
    RUBY
  end
end
