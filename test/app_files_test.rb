# frozen_string_literal: true

# Files that the app's own middleware would send: the front sends them instead, with the same fields, but only where no earlier
# middleware affects them. All other files are left to the app, and a log line gives the reason.

require "support/case"
require "support/reloading"

class AppFilesTest < Case
  include Reloading

  parallel!

  FILES = { "public/report.txt" => "the report", "public/assets/app.css" => "a{}", "public/font.woff2" => "wOF2", "public/index.html" => "<p>home",
            "public/docs/index.html" => "<p>docs", "public/data.bin" => "0123456789" }.freeze
  # Every response of the app has the field x-app; the front's has not.
  TAIL = 'run ->(env) { [200, { "content-type" => "text/plain", "x-app" => "1" }, ["app " + env["PATH_INFO"]]] }'
  AUTH = 'use(Rack::Auth::Basic) { |name, word| name == "ann" && word == "sesame" }'
  STATIC = 'use Rack::Static, urls: [""], root: "public", index: "index.html", cascade: true'

  # An app that counts the requests that reach its middleware.
  def app(*lines) = [COUNTED, *lines, TAIL].join("\n")
  COUNTED = "require 'rack/auth/basic'\nuse Rack::CommonLogger, File.open('seen.log', 'a').tap { |log| log.sync = true }"

  def seen(own)
    File.exist?(own.path("seen.log")) ? File.readlines(own.path("seen.log")).size : 0
  end

  it "leaves files behind a password to the app, and says so" do
    own = start(app: app(AUTH, STATIC), files: FILES)
    assert_status 401, get("/report.txt", to: own)
    assert_status 200, get("/report.txt", to: own, headers: { "Authorization" => "Basic #{['ann:sesame'].pack('m0')}" })
    line = "because Rack::Auth::Basic comes before Rack::Static in the middleware stack; set `files.public = \"always\"` to serve them anyway"
    assert_includes own.stdout, line
  end

  it "serves them all the same if it is told so" do
    [{ public: "always" }, { serve_public: true }, { serve_public: "always" }].each do |files|
      own = start(app: app(AUTH, STATIC), files: FILES, settings: { files: files })
      assert_equal "the report", get("/report.txt", to: own).body
      assert_equal 0, seen(own)
    end
  end

  it "serves what Rack::Static would send, with its fields, and does not ask the app" do
    rules = '[[:all, { "Cache-Control" => "public, max-age=31536000" }], [:fonts, { "Access-Control-Allow-Origin" => "*" }], [%w[css], { "X-Kind" => "style" }]]'
    own = start(app: app("#{STATIC}, header_rules: #{rules}"), files: FILES)
    %w[GET HEAD].each do |verb|
      font = ask(request(verb, "/font.woff2"), to: own)
      assert_equal ["public, max-age=31536000", "*"], [font["cache-control"], font["access-control-allow-origin"]]
    end
    style = get("/assets/app.css", to: own)
    assert_equal ["style", nil, "text/css"], [style["x-kind"], style["access-control-allow-origin"], style["content-type"]]
    assert_equal ["<p>home", "<p>docs"], [get("/", to: own).body, get("/docs/", to: own).body]
    assert_equal "public, max-age=31536000", get("/", to: own)["cache-control"]
    assert_equal 0, seen(own)
    assert_equal "app /nothing", get("/nothing", to: own).body
    refute_includes own.stdout, "files of"
  end

  it "serves the paths of Rack::Static and no others" do
    own = start(app: app('use Rack::Static, urls: ["/assets"], root: "public"', 'use Rack::Static, urls: { "/" => "index.html" }, root: "public"'), files: FILES)
    assert_equal("a{}", get("/assets/app.css", to: own).body)
    assert_equal("<p>home", get("/", to: own).body)
    assert_equal 0, seen(own)
    assert_equal "app /report.txt", get("/report.txt", to: own).body
    assert_status 404, get("/assets/nothing.css", to: own)
  end

  it "serves no file of an app that sends none, unless asked" do
    own = start(app: app, files: FILES)
    assert_equal "app /report.txt", get("/report.txt", to: own).body
    assert_includes own.stdout, "are not served, because no middleware of the app sends them"
    named = start(app: app, files: FILES, args: ["--public", "public"])
    assert_equal "the report", get("/report.txt", to: named).body
    off = start(app: app(STATIC), files: FILES, args: ["--no-public"])
    assert_equal "the report", get("/report.txt", to: off).body
    Clock.wait_until("the line that Rack::CommonLogger writes after the response") { seen(off).positive? }
    assert_equal 1, seen(off)
  end

  it "serves what Rack::Files and Rack::Cascade send, below the paths where they are mounted" do
    own = start(app: app('map("/files") { run Rack::Files.new("public", { "x-files" => "1" }) }'), files: FILES)
    response = get("/files/data.bin", to: own)
    assert_equal %w[0123456789 1], [response.body, response["x-files"]]
    assert_equal "app /data.bin", get("/data.bin", to: own).body
    tail = TAIL.delete_prefix("run ")
    cascade = start(app: "run Rack::Cascade.new([Rack::Files.new('public'), #{tail}])", files: FILES)
    response = get("/report.txt", to: cascade)
    assert_equal ["the report", nil], [response.body, response["x-app"]]
    assert_equal "app /x", get("/x", to: cascade).body
  end

  it "serves the files of a Sinatra app with the fields that the app would send" do
    source = <<~RUBY
      require "sinatra/base"
      class Site < Sinatra::Base
        set :public_folder, File.join(__dir__, "public")
        set :static_cache_control, [:public, { max_age: 300 }]
        get("/") { "the app" }
      end
      run Site
    RUBY
    front, ruby = [[], ["--no-public"]].map { |args| start(app: source, files: FILES, args: args) }
    ["/report.txt", "/docs/index.html", "/data.bin", "/assets/app.css"].each do |path|
      names = %w[content-type cache-control x-content-type-options x-frame-options x-xss-protection last-modified]
      # The files were written in different seconds.
      changed = Time.at(1_700_000_000)
      one, other = [front, ruby].map do |own|
        File.utime(changed, changed, own.path("public#{path}"))
        get(path, to: own)
      end
      assert_equal names.map { |name| other[name] }, names.map { |name| one[name] }, path
      assert one["etag"], "the front has sent #{path}"
    end
    assert_equal "the app", get("/", to: front).body
  end

  refuse = 'env["PATH_INFO"] == "/report.txt" ? [403, {}, []] : super'
  {
    "a module in front of known middleware" => ["Rack::Head.prepend(Module.new { def call(env) = #{refuse} })\nuse Rack::Head", STATIC],
    "a method of one object" => ["use(Class.new { def self.new(app) = Rack::Head.new(app).tap { |head| def head.call(env) = #{refuse} } })", STATIC],
    "known middleware that the app has changed" => ["class Rack::Head\n  alias before call\n  def call(env) = #{refuse.sub('super', 'before(env)')}\nend\nuse Rack::Head", STATIC],
    "the app's own class by a known name" => ["class Rack::Timeout\n  def initialize(app) = @app = app\n  def call(env) = #{refuse.sub('super', '@app.call(env)')}\nend\nuse Rack::Timeout", STATIC],
    "a module in front of the file server" => ["Rack::Files.prepend(Module.new { def serving(request, path) = #{refuse.sub('env', 'request.env')} })", STATIC]
  }.each do |what, lines|
    it "leaves files to the app because of #{what}" do
      own = start(app: app(*lines), files: FILES)
      assert_status 403, get("/report.txt", to: own)
      assert_match(/because .* comes before Rack::Static|only it can tell what Rack::Static does/, own.stdout)
    end
  end

  it "leaves files to a Sinatra app that sends them in its own way" do
    ["def send_file(*) = halt(403)", "def static!(*) = halt(403)", "helpers { def cache_control(*) = halt(403) }\n  set :static_cache_control, [:public]"].each do |line|
      own = start(app: "require 'sinatra/base'\nclass Site < Sinatra::Base\n  #{line}\nend\nrun Site", files: FILES)
      assert_status 403, get("/report.txt", to: own)
      assert_match(%r{the app sends the files of \S+/public itself: only it can tell what Site does}, own.stdout)
    end
  end

  it "hears what a new release says" do
    own = start(app: app(STATIC), files: FILES)
    assert_equal "the report", get("/report.txt", to: own).body
    File.write(own.path("config.ru"), app(AUTH, STATIC))
    reload(own)
    wait_until("the new release's answer", within: 30) { get("/report.txt", to: own).status == 401 }
    wait_until("its reason in the log") { own.stderr.include?("Rack::Auth::Basic comes before Rack::Static") }
  end
end
