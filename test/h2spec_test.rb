# frozen_string_literal: true

# h2spec, the conformance tests for HTTP/2 (https://github.com/summerwind/h2spec): all of them, against an app and a static site.
# `script/setup test` installs it.

require "support/http2_case"
require "support/site_server"
require "open3"

class H2specTest < Http2Case
  H2SPEC = [*ENV.fetch("PATH", "").split(":"), File.expand_path("~/go/bin")].map { |dir| File.join(dir, "h2spec") }.find { |file| File.executable?(file) }

  # An address that also speaks HTTP/1 answers what is no preface of HTTP/2 as HTTP/1 does: with 400. h2spec takes that for a frame.
  PREFACE = "3.5. HTTP/2 Connection Preface"
  PREFACE_CASE = "Sends invalid connection preface"

  def setup
    super
    skip "needs h2spec: script/setup test" unless H2SPEC
  end

  # What has failed, as [section, case].
  def failed(own)
    report = own.path("h2spec.log")
    out, = Open3.capture2e(H2SPEC, "-h", "127.0.0.1", "-p", own.port.to_s, "-o", "5", "-j", report)
    xml = File.read(report)
    assert_operator xml.scan("<testcase").size, :>=, 145, out
    xml.scan(%r{<testcase package="([^"]*)" classname="([^"]*)"[^>]*>\\s*<(?:failure|error)}m)
  end

  def assert_conforming(own)
    own_rule = [["http2/3.5", PREFACE_CASE]]
    assert_empty failed(own) - own_rule
  end

  it "passes with an app" do
    assert_conforming(start(app: 'run lambda { |env| env["rack.input"]&.read; [200, { "content-type" => "text/plain" }, ["hello"]] }'))
  end

  it "passes with a static site" do
    own = SiteServer.new(files: { "public_html/index.html" => "hello" }, rules: { root: "public_html/" }, binds: [BIND])
    @own_servers << own
    assert_conforming(own.start)
  end
end
