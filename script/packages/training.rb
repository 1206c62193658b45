# frozen_string_literal: true

require "etc"
require "fileutils"
require "socket"

module Packages
  # The load that an instrumented program serves for the profile. It covers what servers do most of the time: code that no load runs is
  # optimised for size.
  #
  # The program is its own load generator (`firebrick bench`), so nothing else has to be installed. Redis is used if it is installed.
  class Training
    SECONDS = 2
    BOOT_SECONDS = 30
    APPS = File.join(ROOT, "bench", "apps")
    PAGE_BYTES = 3936
    KEPT = [%w[-c 64], %w[-c 200]].freeze
    CLOSED = [%w[-c 100 --no-keep-alive]].freeze
    UPLOAD = [%w[-c 16 --content-type application/octet-stream --body-file]].freeze
    MRUBY = %(->(_env) { [200, { "content-type" => "text/plain" }, ["Hello, World!"]] }\n)

    # program: the instrumented `firebrick`; lib: its Ruby files, with the instrumented worker; raw: the folder for the counts; home: a
    # folder for the training's files.
    def initialize(program, lib:, raw:, home:)
      @program = program
      @raw = raw
      @home = home
      @env = { "FIREBRICK_LIB" => lib, "RACK_ENV" => "production", "HOME" => home, "XDG_STATE_HOME" => home }
    end

    # Raises Failure when a server does not start, a request fails, or nothing was counted.
    def run
      write_files
      rack
      files
      with_redis { |url| serve([app("redis")], loads: KEPT, env: { "REDIS_URL" => url }) }
      counted = Dir[File.join(@raw, "*.profraw")]
      raise Failure, "the training left no counts in #{@raw}" if counted.empty?

      counted
    end

    private

    def rack
      serve([app("hello")], loads: KEPT)
      serve([app("hello"), "-t", "1", "--fibers", "50"], loads: KEPT)
      serve([app("hello"), "--https"], scheme: "https", loads: [%w[-c 64 -k], %w[-c 4 --streams 16 -k]])
      serve([app("page")], loads: KEPT + CLOSED)
      serve([app("mebibyte")], loads: [%w[-c 16]])
      serve([app("upload")], loads: UPLOAD.map { |flags| [*flags, path("upload")] })
    end

    def files
      serve(["--root", path("site")], path: "/page.html", loads: KEPT + CLOSED) do |port|
        File.write(File.join(path("proxy"), "static.json"), %({"proxies": {"/": {"origin": "http://127.0.0.1:#{port}"}}}\n))
        serve([path("proxy")], path: "/page.html", loads: KEPT)
      end
      serve(["--root", path("site"), "--https"], scheme: "https", path: "/page.html", loads: [%w[-c 64 -k], %w[-c 4 --streams 16 -k]])
      serve(["--mruby", path("handler.rb")], loads: KEPT)
    end

    def app(name) = File.join(APPS, name)

    def path(name) = File.join(@home, name)

    def write_files
      %w[site proxy].each { |name| FileUtils.mkdir_p(path(name)) }
      File.write(path("site/page.html"), "<p>#{'Firebrick ' * ((PAGE_BYTES / 10) - 1)}\n".ljust(PAGE_BYTES))
      File.write(path("handler.rb"), MRUBY)
      File.binwrite(path("upload"), "x" * 65_536)
    end

    # Starts the program, runs each of the loads, and ends it; the block runs before it ends.
    def serve(words, loads:, path: "/", scheme: "http", env: {})
      port = Socket.tcp_server_sockets("127.0.0.1", 0) { |sockets| break sockets.first.local_address.ip_port }
      pid = start(words, port, env)
      loads.each { |flags| load_with(flags, "#{scheme}://127.0.0.1:#{port}#{path}") }
      yield port if block_given?
    ensure
      finish(pid, words) if pid
    end

    def start(words, port, env)
      counts = { "LLVM_PROFILE_FILE" => File.join(@raw, "%p-%m.profraw") }
      shape = words.include?("--fibers") ? [] : ["-t", "5:5"]
      pid = Process.spawn(@env.merge(counts, env), @program, "serve", *words, *(shape unless without_app?(words)), "-p", port.to_s,
                          "--control", "off", "-q", chdir: @home, in: File::NULL, %i[out err] => [log, "a"])
      wait_until_ready(pid, port, words)
      pid
    end

    def wait_until_ready(pid, port, words)
      deadline = now + BOOT_SECONDS
      until listens?(port)
        raise Failure, "#{words.join(' ')} ended:\n#{tail}" if Process.wait(pid, Process::WNOHANG)

        if now > deadline
          Process.kill(:KILL, pid) && Process.wait(pid)
          raise Failure, "#{words.join(' ')} does not listen:\n#{tail}"
        end
        sleep 0.05
      end
    end

    def without_app?(words) = words.intersect?(%w[--root --mruby]) || words == [path("proxy")]

    def listens?(port)
      TCPSocket.new("127.0.0.1", port).close.nil?
    rescue Errno::ECONNREFUSED
      false
    end

    # Counts of the load generator itself must not enter the profile.
    def load_with(flags, url)
      Packages.run(@program, "bench", url, "-t", "1", "-d", "#{SECONDS}s", "--no-stages", "--expect-status", "200", *flags,
                   env: @env.merge("LLVM_PROFILE_FILE" => File::NULL))
    end

    def finish(pid, words)
      Process.kill(:TERM, pid)
      _, status = Process.wait2(pid)
      raise Failure, "#{words.join(' ')} ended with #{status}:\n#{tail}" unless status.success?
    rescue Errno::ESRCH, Errno::ECHILD
      nil
    end

    def with_redis
      return warn("redis-server is not installed: no request to Redis is in the profile") unless system("redis-server", "--version", out: File::NULL)

      socket = path("redis.sock")
      pid = Process.spawn("redis-server", "--port", "0", "--unixsocket", socket, "--save", "", chdir: @home, out: File::NULL)
      deadline = now + BOOT_SECONDS
      until File.socket?(socket)
        raise Failure, "redis-server does not start" if now > deadline

        sleep 0.05
      end
      UNIXSocket.open(socket) { |redis| redis.write("SET greeting \"Hello from Redis\"\r\n") && redis.gets }
      yield "unix://#{socket}"
    ensure
      Process.kill(:TERM, pid) && Process.wait(pid) if pid
    end

    def log = path("log")

    def tail = File.exist?(log) ? File.readlines(log).last(15).join : ""

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
