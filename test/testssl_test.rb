# frozen_string_literal: true

# testssl.sh rates protocols, ciphers and known vulnerabilities. The certificate is made by the test and is not rated.

require "support/tls_case"

class TestsslTest < TlsCase
  parallel! slow: 60

  PARTS = %w[--protocols --std --server-defaults --fs --server-preference --heartbleed --ccs-injection --ticketbleed --robot
             --renegotiation --crime --poodle --tls-fallback --sweet32 --drown --logjam --freak --beast --lucky13 --rc4].freeze
  BAD = %w[MEDIUM HIGH CRITICAL].freeze
  # A chain of one self-signed certificate that is valid for an hour; HTTP responses are tested elsewhere.
  NOT_JUDGED = /cert|chain|OCSP|CAA|DNS|HSTS|trust|expiration|transparency|scanTime/i

  it "finds nothing of medium severity or above" do
    testssl = ENV["TESTSSL"] || `sh -c "command -v testssl"`.strip
    skip "testssl.sh is not installed (script/setup test)" if testssl.empty?
    own = secure
    report = own.path("testssl.json.log")
    Open3.capture2e(testssl, "--quiet", "--color", "0", "--warnings", "off", "--sneaky", "--fast", "--ip", "127.0.0.1",
                    "--jsonfile", report, *PARTS, "localhost:#{own.port}", chdir: own.temp_dir)
    findings = JSON.parse(File.read(report))
    assert_operator findings.size, :>, 40, "testssl.sh has not finished"
    bad = findings.select { |finding| BAD.include?(finding["severity"]) && !finding["id"].match?(NOT_JUDGED) }
    assert_empty(bad.map { |finding| finding.values_at("id", "severity", "finding").join(": ") })
    versions = findings.to_h { |finding| finding.values_at("id", "finding") }
    assert_match(/not offered/, versions["TLS1_1"])
    assert_match(/offered/, versions["TLS1_3"])
    FileUtils.rm_rf(Dir[File.join(own.temp_dir, "*")])
  end
end
