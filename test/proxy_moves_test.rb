# frozen_string_literal: true

# Origins whose names resolve to other addresses after a while.

require "support/site_case"

class ProxyMovesTest < SiteCase
  parallel!

  # Replaces the system's resolver: reads names from a file at each look-up, and logs each look-up in another file.
  RESOLVER = <<~'C'
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <netdb.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>

    int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
      int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
      char name[256], address[256];
      FILE *names = node && getenv("TEST_NAMES") ? fopen(getenv("TEST_NAMES"), "r") : NULL;
      int known = 0;
      while (names && !known && fscanf(names, "%255s %255s", name, address) == 2) known = !strcmp(name, node);
      if (names) fclose(names);
      if (!known) return next(node, service, hints, found);
      FILE *log = fopen(getenv("TEST_LOOKUPS"), "a");
      if (log) { fprintf(log, "%s\n", node); fclose(log); }
      return next(address, service, hints, found);
    }
  C

  def setup
    firebrick_only
    @folder = Dir.mktmpdir("names")
    File.write(path("resolver.c"), RESOLVER)
    skip "there is no C compiler" unless system("cc", "-shared", "-fPIC", "-o", path("resolver.so"), path("resolver.c"), "-ldl", err: File::NULL)
    File.write(path("lookups"), "")
  end

  def teardown
    FileUtils.rm_rf(@folder)
  end

  def path(name) = File.join(@folder, name)

  def names(**all)
    File.write(path("names.new"), all.map { |name, address| "#{name}.test #{address}\n" }.join)
    File.rename(path("names.new"), path("names"))
  end

  def lookups
    File.readlines(path("lookups")).size
  end

  def environment
    { "LD_PRELOAD" => path("resolver.so"), "TEST_NAMES" => path("names"), "TEST_LOOKUPS" => path("lookups") }
  end

  # Two addresses with one port; only the second one has a server.
  def moved_backend
    listener = TCPServer.new("127.0.0.7", 0)
    port = listener.local_address.ip_port
    thread = Thread.new do
      loop do
        socket = listener.accept
        Thread.new do
          socket.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nmoved") while socket.gets("\r\n\r\n")
        rescue SystemCallError, IOError
          nil
        end
      end
    end
    yield port
  ensure
    thread&.kill
    listener&.close
  end

  it "finds an origin that has moved within the request that its old address refuses" do
    behind = backend
    moved_backend do |port|
      names(origin: "127.0.0.1", other: "127.0.0.1")
      own = served({ proxies: { "/api": { origin: "http://origin.test:#{behind.port}" }, "/moved": { origin: "http://other.test:#{port}" } } }, env: environment)
      assert_status 200, get("/api/x", to: own)
      assert_status 502, get("/moved/x", to: own)
      sleep 1.1 # results of the resolver are cached for a second
      names(origin: "127.0.0.1", other: "127.0.0.7")
      before = lookups
      response = get("/moved/x", to: own)
      assert_equal [200, "moved"], [response.status, response.body]
      assert_equal before + 1, lookups
    end
  end

  it "looks a name up once a second at most, however many requests fail" do
    names(origin: "127.0.0.9")
    closed = TCPServer.open("127.0.0.9", 0) { |one| one.local_address.ip_port }
    own = served({ proxies: { "/api": { origin: "http://origin.test:#{closed}" } } }, env: environment)
    took = elapsed do
      40.times.map { Thread.new { get("/api/x", to: own) } }.each { |one| assert_status 502, one.value }
    end
    assert_operator lookups, :<=, 2 + took.ceil
  end

  it "finds it for handlers on mruby" do
    mruby_only
    moved_backend do |port|
      names(origin: "127.0.0.1")
      own = start(files: { "h.rb" => "lambda { |env| http_request(\"http://origin.test:#{port}/\").join }" }, settings: "[routes]\n\"/\" = \"h.rb\"\n",
                  app: "run ->(_) { [200, {}, []] }", env: environment)
      assert_status 500, get("/", to: own)
      sleep 1.1
      names(origin: "127.0.0.7")
      assert_equal "moved", get("/", to: own).body
    end
  end
end
