# frozen_string_literal: true

# h2spec, the conformance tests for HTTP/2 (https://github.com/summerwind/h2spec): all of them, by ALPN and by prior knowledge, against
# an app that reads bodies: a response that does not wait for the body resets the rest of it, and some cases would race with that.
# `script/setup test` installs it.

require "support/http2_case"
require "support/tls_case"
require "open3"

class H2specTest < TlsCase
  parallel!

  H2SPEC = [*ENV.fetch("PATH", "").split(":"), File.expand_path("~/go/bin")].map { |dir| File.join(dir, "h2spec") }.find { |file| File.executable?(file) }
  CASES = 145
  APP = 'run lambda { |env| env["rack.input"]&.read; [200, { "content-type" => "text/plain" }, ["hello"]] }'
  # An address that also speaks HTTP/1 responds to an invalid HTTP/2 preface with an HTTP/1 400, which h2spec takes for a frame.
  NO_PREFACE = [["http2/3.5", "Sends invalid connection preface"]].freeze

  def setup
    super
    skip "needs h2spec: script/setup test" unless H2SPEC
  end

  # The failed cases, as [section, case].
  def failed(own, *options)
    report = File.join(own.base, "h2spec.xml")
    out, = Open3.capture2e(H2SPEC, "-h", "127.0.0.1", "-p", own.port.to_s, "-o", "5", "-j", report, *options)
    xml = File.read(report)
    File.delete(report)
    assert_equal CASES, xml.scan("<testcase").size, out
    xml.scan(/<testcase package="([^"]*)" classname="([^"]*)"[^>]*>\s*<(?:failure|error)/m)
  end

  it "passes with an app, by ALPN" do
    assert_empty failed(secure(app: APP), "-t", "-k")
  end

  it "passes with an app, by prior knowledge" do
    assert_empty failed(start(app: APP, binds: [Http2Case::BIND])) - NO_PREFACE
  end
end
