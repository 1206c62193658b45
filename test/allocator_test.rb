# frozen_string_literal: true

# `rack.allocator`: whether the Ruby processes use jemalloc, the environment of programs that they start, and the server's messages about it.

require "net/http"
require "support/case"

class AllocatorTest < Case
  parallel!

  INSTALLED = ["/usr/lib/#{RbConfig::CONFIG['host_cpu']}-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"]
              .any? { |dir| File.file?("#{dir}/libjemalloc.so.2") }
  # In the worker: whether it is loaded, and LD_PRELOAD of a program that the app starts.
  APP = <<~'RUBY'
    run lambda { |env|
      loaded = File.read("/proc/self/maps").include?("libjemalloc.so.2") ? "jemalloc" : "system"
      [200, { "content-type" => "text/plain" }, ["#{loaded} #{`sh -c 'echo ${LD_PRELOAD-unset}'`}"]]
    }
  RUBY

  def before_setup
    firebrick_only
    super
  end

  def serve(allocator = nil, env: {})
    settings = allocator ? { rack: { allocator: allocator } } : {}
    start(app: APP, settings: settings, env: { "LD_PRELOAD" => nil, "MALLOC_ARENA_MAX" => nil, "GLIBC_TUNABLES" => nil, **env })
  end

  def states(own) = get("/", to: own).body.split

  it "is jemalloc where that is installed, for the app's own processes only" do
    assert_equal [INSTALLED ? "jemalloc" : "system", "unset"], states(serve)
  end

  it "is the system's if that is asked for" do
    assert_equal %w[system unset], states(serve("system"))
  end

  it "is the system's where the environment has tuned that" do
    assert_equal %w[system unset], states(serve(env: { "MALLOC_ARENA_MAX" => "4" }))
  end

  it "keeps what the environment preloads" do
    other = "/nonexistent/other.so"
    assert_equal ["system", other], states(serve(env: { "LD_PRELOAD" => other }))
    assert_equal [INSTALLED ? "jemalloc" : "system", other], states(serve("jemalloc", env: { "LD_PRELOAD" => other }))
  end

  it "says when jemalloc is asked for and missing" do
    own = serve("jemalloc")
    missing = "* jemalloc is not used, although rack.allocator is \"jemalloc\": libjemalloc.so.2 was not found or cannot be loaded"
    assert_equal !INSTALLED, own.stdout.include?(missing)
  end
end
