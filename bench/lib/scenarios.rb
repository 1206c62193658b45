# frozen_string_literal: true

require "digest"
require_relative "loads"
require_relative "peers"
require_relative "sites"

module Bench
  # The scenarios: one entry per group of rows of the report.
  #
  # name: for the command line; app: directory under apps/; load: a load generator;
  # shape: [workers, threads]; pinned: server and generator each on its own processor
  # (otherwise both use all); redis: needs a Redis; upload: bytes of the POST, or 0;
  # bytes and sha256: of the one correct body; path: its URL path.
  # beside: names of the servers with which an app is compared, see Peers.apps; gem: one that the app needs and that may be missing.
  # metric: the metric of ratios (:cpu per request, :p99, memory of a :connection, or :fairness, the ratio of p99 to the server's own
  # median); apart: each server is started for its own slice,
  # because the load is not a slice of time; descriptors: the number that a process needs.
  # wanted: for each peer, the largest ratio of Firebrick's metric to its; limits: Firebrick's memory limits, MiB at the start and under
  # load, bytes for a connection.
  # Without an app: site: a directory of Sites; peers: the servers; backend: the Peer behind the proxies.
  Scenario = Struct.new(:name, :app, :load, :shape, :pinned, :redis, :upload, :bytes, :sha256, :path,
                        :site, :peers, :backend, :wanted, :limits, :beside, :gem, :metric, :apart, :descriptors, keyword_init: true) do
    def initialize(pinned: true, redis: false, upload: 0, shape: [1, 5], path: "/", wanted: {}, limits: {}, beside: %w[puma],
                   metric: :cpu, apart: false, descriptors: 1_024, **rest) = super

    def shape_name = shape.join("x")

    # The folder in which servers start: an app's, or that of a site made below `dir`.
    def folder(dir) = site ? Sites.folder(site, dir) : File.expand_path("../apps/#{app}", __dir__)
  end

  # In place of a peer, where Firebrick is compared with itself.
  OWN = "itself"

  SHAPES = %w[1x1 1x10 1x100 2x1 2x10 10x1 10x10].freeze
  QUICK = %w[hello-64 page-200 redis-64 page-ab].freeze
  UPLOAD_BYTES = 65_536

  # The headers of a browser's navigation besides Host.
  BROWSER_HEADERS = {
    "Accept" => "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
    "Accept-Encoding" => "gzip, deflate, br, zstd",
    "Accept-Language" => "en-GB,en;q=0.9,de;q=0.7",
    "Cache-Control" => "max-age=0",
    "Cookie" => "session=1f0c9a7be25d4c7e8a41b63d0f9e2c55; theme=dark",
    "Referer" => "http://127.0.0.1/articles?page=2",
    "Sec-Ch-Ua" => '"Chromium";v="131", "Not_A Brand";v="24"',
    "Sec-Fetch-Dest" => "document",
    "Sec-Fetch-Mode" => "navigate",
    "Sec-Fetch-Site" => "same-origin",
    "Upgrade-Insecure-Requests" => "1",
    "User-Agent" => "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36"
  }.freeze

  # The correct body of each app.
  BODIES = {
    "hello" => "Hello, World!",
    "page" => Sites::PAGE,
    "redis" => '{"greeting":"Hello from Redis","ok":true}',
    "redis-pool" => '{"greeting":"Hello from Redis","ok":true}',
    "mebibyte" => "0123456789abcdef" * 65_536,
    "upload" => Digest::SHA256.hexdigest("x" * UPLOAD_BYTES),
    "sleep20" => "slept",
    "io" => "waited",
    "cpu" => "sorted",
    "mix" => "mixed"
  }.freeze
  # The front page of apps/sinatra: bytes and SHA-256.
  SHOP = [923, "67e60ef52d12fd665cee587ab8e6759be9e64cb8b217a3012ea944439e375294"].freeze

  def self.scenario(name, app, load, **rest)
    body = BODIES[app]
    bytes, sha256 = body ? [body.bytesize, Digest::SHA256.hexdigest(body)] : SHOP
    Scenario.new(name: name, app: app, load: load, bytes: bytes, sha256: sha256, **rest)
  end

  def self.sweep(app)
    SHAPES.map do |shape|
      load = Loads::Siege.new(users: 30, repeats: 20)
      scenario("sweep-#{app}-#{shape}", app, load, shape: shape.split("x").map(&:to_i), pinned: false, apart: true)
    end
  end

  # A file of a site: path and body.
  def self.static(name, site, load, path, body, peers:, **rest)
    Scenario.new(name: name, site: site, load: load, path: path, shape: [1, 1], peers: Peers::STATIC.slice("firebrick", *peers),
                 bytes: body.bytesize, sha256: Digest::SHA256.hexdigest(body), **rest)
  end

  PAGE_WANTED = { "h2o" => 0.75, "nginx" => 0.6 }.freeze
  # Connections of the scenarios that hold many open, and the descriptors of their processes.
  MANY = 5_000
  MANY_DESCRIPTORS = 8_000
  MEMORY_LIMITS = { start: 10, load: 25 }.freeze

  WITHOUT_APP = [
    *[64, 200].map do |connections|
      static("static-page-#{connections}", "page", Loads::Wrk.new(connections: connections), "/page.html", Sites::PAGE,
             peers: %w[h2o nginx], wanted: PAGE_WANTED)
    end,
    static("static-ab", "page", Loads::Ab.new(requests: 10_000, concurrency: 200, warm_up: 1_000), "/page.html", Sites::PAGE,
           peers: %w[h2o nginx], wanted: { "h2o" => 0.9, "nginx" => 0.9 }),
    static("idle-5000", "page", Loads::Idle.new(connections: MANY), "/page.html", Sites::PAGE, peers: %w[h2o], metric: :connection,
                                                                                               apart: true, limits: { connection: 1_000 }, descriptors: MANY_DESCRIPTORS),
    Scenario.new(name: "mruby-hello-64", site: "empty", load: Loads::Wrk.new(connections: 64), shape: [1, 1], peers: Peers::MRUBY,
                 wanted: { "h2o" => 0.75 }, bytes: BODIES["hello"].bytesize, sha256: Digest::SHA256.hexdigest(BODIES["hello"])),
    Scenario.new(name: "static-large-4", site: "large", load: Loads::Wrk.new(connections: 4, patience: 16), path: "/large.bin", shape: [1, 1],
                 peers: Peers::STATIC.slice("firebrick", "nginx"), wanted: { "nginx" => 1.0 },
                 bytes: Sites::LARGE_PIECE.bytesize * Sites::LARGE_PIECES, sha256: Sites::LARGE_SHA256),
    *[64, 200].map do |connections|
      load = Loads::Wrk.new(connections: connections, files: Sites::FILES, folders: Sites::FOLDERS)
      static("static-many-#{connections}", "many", load, Sites.many_path(0), Sites.many_body(0),
             peers: %w[nginx], wanted: { "nginx" => 0.9 }, limits: MEMORY_LIMITS)
    end,
    Scenario.new(name: "proxy-64", site: "empty", load: Loads::Wrk.new(connections: 64), shape: [1, 1], peers: Peers::PROXIES,
                 backend: Peers::BACKEND, wanted: { "nginx" => 0.8 },
                 bytes: Peers::BACKEND_BODY.bytesize, sha256: Digest::SHA256.hexdigest(Peers::BACKEND_BODY))
  ].freeze

  BESIDE_IODINE = %w[puma iodine].freeze
  BESIDE_UNICORN = %w[puma iodine unicorn].freeze
  HELLO_WANTED = { "iodine" => 0.75, "puma" => 0.18 }.freeze
  PAGE_APP_WANTED = { "iodine" => 0.8, "puma" => 0.2 }.freeze

  SCENARIOS = [
    *[64, 200].map do |connections|
      scenario("hello-#{connections}", "hello", Loads::Wrk.new(connections: connections), beside: BESIDE_IODINE, wanted: HELLO_WANTED)
    end,
    scenario("hello-5000", "hello", Loads::Wrk.new(connections: MANY, least: 3, patience: 10),
             beside: %w[iodine], wanted: { "iodine" => 0.9 }, descriptors: MANY_DESCRIPTORS),
    scenario("hello-two", "hello", Loads::Wrk.new(connections: 64), shape: [2, 5], pinned: false, beside: BESIDE_IODINE, wanted: { "iodine" => 0.9 }),
    *[64, 200].map do |connections|
      scenario("page-#{connections}", "page", Loads::Wrk.new(connections: connections), beside: BESIDE_IODINE, wanted: PAGE_APP_WANTED)
    end,
    scenario("page-browser", "page", Loads::Wrk.new(connections: 64, headers: BROWSER_HEADERS), beside: BESIDE_IODINE),
    scenario("redis-64", "redis", Loads::Wrk.new(connections: 64), redis: true, beside: BESIDE_IODINE),
    scenario("redis-pool-64", "redis-pool", Loads::Wrk.new(connections: 64), redis: true, gem: "connection_pool", beside: BESIDE_IODINE,
                                                                             wanted: { "iodine" => 0.9, "puma" => 0.5 }),
    scenario("page-ab", "page", Loads::Ab.new(requests: 10_000, concurrency: 200, warm_up: 1_000), beside: BESIDE_UNICORN,
                                                                                                   wanted: { "unicorn" => 0.65, "puma" => 0.35 }),
    scenario("mebibyte-16", "mebibyte", Loads::Wrk.new(connections: 16), beside: BESIDE_UNICORN, wanted: { "puma" => 0.7, "unicorn" => 0.9 }),
    scenario("upload-16", "upload", Loads::Wrk.new(connections: 16, upload: UPLOAD_BYTES), upload: UPLOAD_BYTES, beside: BESIDE_UNICORN,
                                                                                           wanted: { "puma" => 0.75 }),
    scenario("rate-2000", "hello", Loads::Rate.new(rate: 2_000), shape: [2, 5], metric: :p99, beside: BESIDE_IODINE, wanted: { "puma" => 1.0 }),
    scenario("fair-200", "sleep20", Loads::Ab.new(requests: 3_000, concurrency: 200, keep_alive: true), shape: [6, 1], apart: true,
                                                                                                        metric: :fairness, wanted: { OWN => 1.1 }),
    scenario("idle-1", "hello", Loads::Wrk.new(connections: 1)),
    *sweep("io"), *sweep("cpu"), *sweep("mix"),
    scenario("memory-10", "sinatra", Loads::Ab.new(requests: 4_000, concurrency: 50), shape: [10, 5], apart: true),
    *WITHOUT_APP
  ].freeze

  # The scenarios that `bench/run` measures by default; the sweep over shapes would take two hours more.
  TABLE = SCENARIOS.reject { |one| one.name.start_with?("sweep-") }.freeze

  # Returns scenarios by their names, in which `*` stands for any letters; with `shape`, [workers, threads], instead of their own.
  def self.scenarios(names, shape = nil)
    found = names.flat_map { |name| SCENARIOS.select { |one| File.fnmatch(name, one.name) } }
    shape ? found.map { |one| one.dup.tap { |copy| copy.shape = shape } } : found
  end
end
