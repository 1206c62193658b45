# frozen_string_literal: true

# Compression of the responses of an app: which, how, and that a client sees the same page with every coding.

require "support/case"
require "support/codings"

class CompressionTest < Case
  parallel!

  PAGE = Array.new(600) { |i| "<li><a href=\"/posts/#{i}\">Post number #{i * 7919 % 1000}</a></li>" }.join("\n").freeze

  APP = <<~RUBY.freeze
    PAGE = #{PAGE.dump}
    class Pieces
      def initialize(*pieces) = @pieces = pieces
      def each(&) = @pieces.each(&)
    end
    class Events
      def each = 4.times { |i| (yield "data: \#{i}\\n\\n"; sleep 0.3) }
    end
    run lambda { |env|
      html = { "content-type" => "text/html; charset=utf-8" }
      case env["PATH_INFO"]
      when "/page" then [200, html, [PAGE]]
      when "/pieces" then [200, html, Pieces.new(*PAGE.scan(/.{1,1000}/m))]
      when "/large" then [200, html, [PAGE * 20]]
      when "/small" then [200, html, ["small"]]
      when "/error" then [500, html, [PAGE]]
      when "/image" then [200, { "content-type" => "image/png" }, [PAGE]]
      when "/typeless" then [200, {}, [PAGE]]
      when "/no-transform" then [200, html.merge("cache-control" => "public, no-transform"), [PAGE]]
      when "/coded" then [200, html.merge("content-encoding" => "gzip"), [PAGE]]
      when "/part" then [206, html.merge("content-range" => "bytes 0-1999/30000"), [PAGE[0, 2000]]]
      when "/varied" then [200, html.merge("vary" => "Cookie"), [PAGE]]
      when "/counted" then [200, html.merge("content-length" => PAGE.bytesize.to_s, "accept-ranges" => "bytes"), [PAGE]]
      when "/weak" then [200, html.merge("etag" => 'W/"weak"'), [PAGE]]
      when "/events" then [200, { "content-type" => "text/event-stream" }, Events.new]
      when "/strong"
        known = env["HTTP_IF_NONE_MATCH"].to_s.split(/\\s*,\\s*/).include?('"strong"')
        known ? [304, { "etag" => '"strong"' }, []] : [200, html.merge("etag" => '"strong"'), [PAGE]]
      else [404, html, ["nothing"]]
      end
    }
  RUBY

  shared_server app: APP

  def coded(path, accept, headers = {})
    get(path, headers: { "Accept-Encoding" => accept }.merge(headers))
  end

  it "compresses a page with the coding that the client prefers" do
    firebrick_only
    { "gzip" => "gzip", "gzip, deflate, br, zstd" => "zstd", "gzip, deflate, br" => "gzip", "br" => "br",
      "zstd;q=0.5, gzip" => "gzip", "gzip;q=0, br" => "br" }.each do |accept, coding|
      next unless Codings.installed?(coding)

      %w[/page /pieces /large].each do |path|
        response = coded(path, accept)
        assert_status 200, response
        assert_equal coding, response["content-encoding"], "#{path} #{accept}"
        assert_equal "Accept-Encoding", response["vary"]
        assert_equal path == "/large" ? PAGE * 20 : PAGE, Codings.decode(response).force_encoding("UTF-8"), path
        assert_operator response.body.bytesize, :<, PAGE.bytesize / 2 if path == "/page"
      end
    end
  end

  it "sends the page as it is to a client that accepts no coding, and says that it varies" do
    firebrick_only
    ["identity", "", "deflate", "gzip;q=0"].each do |accept|
      response = coded("/page", accept)
      assert_nil response["content-encoding"], accept
      assert_equal PAGE, response.body.force_encoding("UTF-8")
      assert_equal "Accept-Encoding", response["vary"]
    end
  end

  it "leaves alone what is short, packed, partial, encoded or not to be transformed" do
    %w[/small /image /typeless /no-transform /coded /part].each do |path|
      response = coded(path, "gzip")
      path == "/coded" ? assert_equal("gzip", response["content-encoding"]) : assert_nil(response["content-encoding"], path)
      assert_includes [PAGE, PAGE[0, 2000], "small"], response.body.force_encoding("UTF-8"), path
    end
  end

  it "compresses error pages" do
    firebrick_only
    response = coded("/error", "gzip")
    assert_status 500, response
    assert_equal "gzip", response["content-encoding"]
    assert_equal PAGE, Codings.decode(response).force_encoding("UTF-8")
  end

  it "adds to Vary, replaces Content-Length and takes Accept-Ranges away" do
    firebrick_only
    varied = coded("/varied", "gzip")
    assert_equal(%w[Cookie Accept-Encoding], varied.all("vary").flat_map { |value| value.split(/, */) })
    counted = coded("/counted", "gzip")
    assert_equal counted.body.bytesize.to_s, counted["content-length"] if counted["content-length"]
    assert_nil counted["accept-ranges"]
    assert_equal PAGE, Codings.decode(counted).force_encoding("UTF-8")
  end

  it "describes a page to HEAD as to GET" do
    firebrick_only
    %w[/page /counted /strong].each do |path|
      head = ask(request("HEAD", path, "Accept-Encoding" => "gzip"))
      whole = coded(path, "gzip")
      %w[content-encoding vary etag content-type].each do |name|
        value = whole[name]
        value.nil? ? assert_nil(head[name], "#{path} #{name}") : assert_equal(value, head[name], "#{path} #{name}")
      end
      assert_includes [nil, whole["content-length"]], head["content-length"], path
    end
  end

  it "weakens a strong ETag, and the app recognises it when it comes back" do
    firebrick_only
    assert_equal 'W/"weak"', coded("/weak", "gzip")["etag"]
    assert_equal '"strong"', coded("/strong", "identity")["etag"]
    tag = coded("/strong", "gzip")["etag"]
    assert_equal 'W/"strong"', tag
    again = coded("/strong", "gzip", "If-None-Match" => "#{tag}, W/\"other\"")
    assert_status 304, again
    assert_equal [tag, "Accept-Encoding"], [again["etag"], again["vary"]]
    assert_status 304, coded("/strong", "identity", "If-None-Match" => '"strong"')
    assert_status 200, coded("/strong", "gzip", "If-None-Match" => 'W/"other"')
  end

  it "sends each event when the app flushes it" do
    firebrick_only
    %w[gzip zstd br].each do |coding|
      next unless coding == "gzip" || Codings.installed?(coding)

      connection = connect
      connection.write(request("GET", "/events", "Accept-Encoding" => coding))
      head = connection.read_head
      assert_equal coding, head["content-encoding"]
      times = []
      until (size = connection.read_through("\r\n").to_i(16)).zero?
        head.body << connection.read_exactly(size + 2).delete_suffix("\r\n")
        times << now
      end
      # Four events 0.3 s apart: none waits for the next one.
      assert_operator times.first, :<, times.last - 0.5, coding
      assert_equal (0..3).map { |i| "data: #{i}\n\n" }.join, Codings.decode(head)
    ensure
      connection&.close
    end
  end

  it "pads pages of clients with cookies by a random length, and others not" do
    firebrick_only
    sizes = ->(headers) { Array.new(12) { coded("/page", "gzip", headers).body.bytesize }.uniq }
    assert_equal 1, sizes.call({}).size
    with = sizes.call("Cookie" => "session=1")
    assert_operator with.size, :>, 3
    assert_operator with.max - with.min, :<, 128
  end
end

class CompressionSettingsTest < Case
  parallel!

  DEFLATER = "use Rack::Deflater\n"
  SMALL = "run ->(_) { [200, {}, []] }"

  it "can be turned off, and be bounded" do
    firebrick_only
    app = CompressionTest::APP
    off = get("/page", to: start(app: app, args: ["--no-compress"]), headers: { "Accept-Encoding" => "gzip" })
    assert_equal [nil, nil], [off["content-encoding"], off["vary"]]
    none = get("/page", to: start(app: app, args: %w[--compress-cpu 0]), headers: { "Accept-Encoding" => "gzip" })
    assert_equal [nil, "Accept-Encoding"], [none["content-encoding"], none["vary"]]
    long = get("/page", to: start(app: app, args: %w[--compress-min-length 1MiB]), headers: { "Accept-Encoding" => "gzip" })
    assert_equal [nil, nil], [long["content-encoding"], long["vary"]]
  end

  it "names Rack::Deflater at the start and in check, with the remedy, unless the app is to compress" do
    note = /Rack::Deflater compresses responses inside of Ruby's lock; remove it from the middleware/
    off = { compression: { responses: false } }
    [[DEFLATER + SMALL, {}, true], ["map('/x') { #{DEFLATER} #{SMALL} }", {}, true], [SMALL, {}, false], [DEFLATER + SMALL, off, false]]
      .each do |app, settings, named|
      own = Server.new(app: app, settings: settings)
      out, err, code = own.command_line("check", own.dir)
      assert_equal [0, named], [code, out.match?(note)], out + err
    ensure
      own&.finish
    end
    assert_match note, start(app: DEFLATER + SMALL).stdout
  end
end
