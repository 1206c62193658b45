# frozen_string_literal: true

# HTTP from mruby handlers: other servers by http_request, and this server by H2O.next.

require "support/case"
require "support/backend"

class MrubyHttpTest < Case
  parallel!

  HANDLER = <<~'RUBY'
    ORIGIN = "BACKEND"

    class Upper
      def initialize(body)
        @body = body
      end

      def each
        @body.each { |part| yield part.upcase }
      end
    end

    KINDS = {
      "/fan-out" => lambda { |env|
        requests = %w[a b c].map { |name| http_request("#{ORIGIN}/#{name}") }
        [200, {}, requests.map { |one| one.join[2].join + " " }]
      },
      "/relay" => lambda { |env| http_request("#{ORIGIN}/relay").join },
      "/app" => lambda { |env| H2O.next.call(env) },
      "/upper" => lambda { |env|
        status, headers, body = H2O.next.call(env)
        [status, headers, Upper.new(body)]
      },
      "/sent" => lambda { |env| [200, { "X-Reproxy-URL" => "/other/sent" }, []] },
      "/out" => lambda { |env| [307, { "X-Reproxy-URL" => "#{ORIGIN}/out" }, []] }
    }
    lambda { |env| (KINDS[env["PATH_INFO"]] || lambda { |_| [399, {}, []] }).call(env) }
  RUBY

  APP = <<~'RUBY'
    run lambda { |env|
      parts = Enumerator.new do |body|
        body << "app #{env["REQUEST_METHOD"]} #{env["PATH_INFO"]} "
        body << env["rack.input"].read
      end
      [200, { "x-app" => "1" }, parts]
    }
  RUBY

  def setup
    mruby_only
  end

  def server_for(origin, reproxy: true)
    other = 'lambda { |env| [200, {}, ["other ", env["PATH_INFO"], " ", env["h2o.remaining_reprocesses"].to_s]] }'
    files = { "h.rb" => HANDLER.sub("BACKEND", origin), "other.rb" => other }
    settings = <<~TOML
      [routes]
      "/" = { mruby = "h.rb", reproxy = #{reproxy} }
      "/other" = "other.rb"
    TOML
    start(files: files, settings: settings, app: APP, workers: 1, threads: "1:1")
  end

  def with_backend(**options)
    behind = Backend.new(**options) do |conn, req|
      conn.read_body(req)
      conn.respond("#{req.verb} #{req.target} #{req.body}".strip)
    end
    yield behind, server_for(behind.origin)
  ensure
    behind&.close
  end

  it "sends requests concurrently, and passes the responses on" do
    with_backend do |_, own|
      assert_equal "GET /a GET /b GET /c ", get("/fan-out", to: own).body
      response = get("/relay", to: own)
      assert_equal [200, "GET /relay", "10"], [response.status, response.body, response["content-length"]]
      assert_equal "POST /out body", post("/out", "body", to: own).body
    end
  end

  it "requests the app behind it, whose response streams to the client" do
    with_backend do |_, own|
      response = post("/app", "body", to: own)
      assert_equal [200, "app POST /app body", "1"], [response.status, response.body, response["x-app"]]
      assert_equal "APP POST /UPPER BODY", post("/upper", "body", to: own).body
    end
  end

  it "sends requests to other servers only if allowed" do
    own = server_for("http://127.0.0.1:1", reproxy: false)
    assert_status 502, get("/out", to: own)
    assert_logged "set reproxy = true", on: own
    assert_equal "other /sent 5", get("/sent", to: own).body
  end

  it "reports why a request to a server failed" do
    own = server_for("http://127.0.0.1:1")
    response = get("/relay", to: own)
    assert_equal 500, response.status
    assert_includes response["client-warning"], "refused"
  end
end
