# frozen_string_literal: true

# Rate limits of one server: by address, by header and by both, by path and method, with all spellings of a path.

require "support/rate_limit_case"

class RateLimitsTest < RateLimitCase
  parallel!

  it "refuses a client beyond its limit, says when to come again, and keeps the connection" do
    own = limited({ pages: { rate: "2/m", burst: 3 } })
    connection = connect(own)
    assert_equal [200] * 3, statuses(3, own, connection:)
    connection.write(request("GET", "/"))
    refused = connection.read_response
    assert_status 429, refused
    assert_equal "429 Too Many Requests\n", refused.body
    assert_includes 20..30, Integer(refused["retry-after"])
    assert_equal [429], statuses(1, own, connection:), "on the same connection"
    assert_equal [429], statuses(1, own), "and on another one: it is about the client"
  end

  it "tells clients behind a trusted proxy apart, and believes nobody else" do
    own = limited({ pages: { rate: "1/h" } })
    from = ->(list) { statuses(1, own, headers: { "X-Forwarded-For" => list }).first }
    assert_equal [200, 429, 200, 429], ["192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.7, 192.0.2.1"].map(&from)
    assert_equal [200, 429], ["2001:db8::1", "2001:db8::2"].map(&from), "a network of 64 bits is one client"
    alone = limited({ pages: { rate: "1/h" } }, settings: { rack: { trusted_proxies: "none" } })
    answers = %w[192.0.2.1 192.0.2.2].map { |list| statuses(1, alone, headers: { "X-Forwarded-For" => list }).first }
    assert_equal [200, 429], answers
  end

  it "is about its paths, in all their forms, and its methods" do
    own = limited({ login: { rate: "1/h", paths: "/login", methods: "POST" } })
    assert_equal [404, 404], statuses(2, own, path: "/login")
    others = %w[/%6cogin //login /x/../login /login/x].map { |path| statuses(1, own, method: "POST", path:).first }
    assert_equal [429] * 3, others.drop(1), "the first was admitted"
    refute_equal 429, others.first
    refute_includes statuses(2, own, method: "POST", path: "/logins"), 429
  end

  it "counts by a header, and clients that are excepted not at all" do
    own = limited({ keys: { rate: "1/h", key: "header:X-Api-Key" } })
    of = ->(key) { statuses(1, own, headers: key ? { "x-api-key" => key } : {}).first }
    assert_equal [200, 429, 200, 200, 200], ["a", "a", "b", nil, nil].map(&of)
    excepted = limited({ pages: { rate: "1/h", except: ["10.0.0.0/8", "127.0.0.1"] } })
    assert_equal [200] * 3, statuses(3, excepted)
  end

  it "asks every limit, counts in a dry run, and shows all of it" do
    own = limited({ tight: { rate: "1/h", dry_run: true }, all: { rate: "3/h", key: "all" } })
    assert_equal [200, 200, 200, 429], statuses(4, own)
    limits = own.stats["rate_limits"]["limits"]
    counts = limits.map { |limit| limit.values_at("name", "admitted", "refused") }
    assert_equal [["tight", 1, 3], ["all", 3, 1]], counts
    text, = own.command_line("stats", own.dir)
    assert_match(%r{^rate limits  tight 1/h: 1 admitted, 3 refused \(dry run\)\n +all 3/h: 3 admitted, 1 refused$}, text)
    assert_includes own.metrics, %(firebrick_rate_limit_requests_total{limit="all",result="refused"} 1\n)
    refute_includes own.stderr, "429", "what a client does is not logged"
  end

  it "limits an app before its workers see a request, and a reload changes the limits" do
    app = %(run ->(env) { File.write("calls", "x", mode: "a"); [200, {}, ["hello"]] }\n)
    own = start(app:, settings: { rate_limits: { pages: "2/h" }, reload: { watch: 0 } }, leaves: %w[calls])
    assert_equal [200, 200, 429], statuses(3, own)
    assert_equal 2, File.size(own.path("calls"))
    reload(own, %([rate_limits]\npages = "2/h"\nmore = "5/h"\n[reload]\nwatch = 0\n))
    assert_equal [429], statuses(1, own), "what has not changed goes on"
    reload(own, %([rate_limits]\npages = "3/h"\n[reload]\nwatch = 0\n))
    assert_equal [200, 200, 200, 429], statuses(4, own), "what has changed begins anew"
    reload(own, "")
    assert_equal [200] * 4, statuses(4, own)
  end

  def reload(own, settings)
    File.write(own.path("firebrick.toml"), settings)
    _, err, code = own.command_line("reload", own.dir)
    assert_equal 0, code, err
  end

  it "forgets clients rather than growing without end" do
    own = limited({ pages: { rate: "1/h" } })
    connection = connect(own)
    before = own.pss
    20_000.times.each_slice(500) do |numbers|
      connection.write(numbers.map { |number| request("GET", "/", "X-Forwarded-For" => "2001:db8:#{number.to_s(16)}::1") }.join)
      numbers.each { connection.read_response }
    end
    assert_operator own.pss - before, :<, 20 << 20
  end
end
