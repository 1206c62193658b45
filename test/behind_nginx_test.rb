# frozen_string_literal: true

# The configuration of nginx that docs/from-nginx.md shows, with a real nginx in front of a Unix socket.

require "net/http"
require "support/case"
require "support/peers"

class BehindNginxTest < Case
  parallel!

  # nginx with the lines of the page, and one more location for WebSockets, as the page says.
  class Nginx < Peers::Nginx
    PAGE = File.read(File.join(Server::ROOT, "docs/from-nginx.md"))[/^ {4}upstream app \{.*?^ {4}\}$/m].gsub(/^ {4}/, "")
    WEBSOCKETS = PAGE[%r{(?<=location / \{\n).*?(?=^ *\}$)}m].sub('Connection ""', 'Connection "upgrade"')

    def initialize(socket)
      super()
      @socket = socket
    end

    private

    def configuration
      location = "location /socket {\n#{WEBSOCKETS}proxy_set_header Upgrade $http_upgrade;\n}"
      page = PAGE.sub("unix:/run/app.sock", "unix:#{@socket}").sub("server {\n  location", "server {\nlisten 127.0.0.1:#{@port};\n#{location}\n  location")
      "user root; worker_processes 1; pid #{@base}/nginx.pid; error_log #{log}; events {}\nhttp { #{temporary_folders} access_log off; client_max_body_size 0;\n#{page}\n}\n"
    end
  end

  APP = <<~'RUBY'
    require "digest"
    run lambda { |env|
      if env["HTTP_UPGRADE"]
        io = env["rack.hijack"].call
        io.write("HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
        io.write(io.readpartial(100).upcase)
        io.close
        next [-1, {}, []]
      end
      facts = env.values_at("REMOTE_ADDR", "rack.url_scheme", "HTTP_HOST", "HTTP_X_FORWARDED_FOR", "HTTP_X_REQUEST_START")
      [200, { "content-type" => "text/plain" }, [[*facts, Digest::SHA256.hexdigest(env["rack.input"].read)].join(" ")]]
    }
  RUBY

  def setup
    firebrick_only
    skip "nginx is not installed" unless File.executable?("/usr/sbin/nginx")
  end

  it "serves the app to nginx's clients over a socket, with their addresses and time in its queue" do
    own = start(app: APP, binds: ["unix://app.sock"])
    nginx = Nginx.new(own.path("app.sock")).start
    Net::HTTP.start(*nginx.address) do |http|
      3.times { assert_match(/\A127\.0\.0\.1 http 127\.0\.0\.1 127\.0\.0\.1 t=\d+\.\d+ #{Digest::SHA256.hexdigest('')}\z/, http.get("/").body) }
      upload = Random.bytes(3 << 20)
      assert_equal Digest::SHA256.hexdigest(upload), http.post("/upload", upload).body.split.last
    end
    assert_equal 1, own.stats.dig("connections", "accepted"), "connections are kept"

    socket = TCPSocket.new(*nginx.address)
    socket.write("GET /socket HTTP/1.1\r\nHost: x\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
    assert_match(%r{\AHTTP/1.1 101 }, socket.readpartial(4096))
    socket.write("hello")
    assert_equal "HELLO", socket.read
  ensure
    socket&.close
    nginx&.finish
  end
end
