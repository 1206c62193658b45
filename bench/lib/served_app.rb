# frozen_string_literal: true

require "fileutils"
require "json"
require "net/http"
require "open3"
require "tmpdir"
require_relative "failure"
require_relative "program"
require_relative "server"

module Bench
  # A small app that waits or computes, served by Firebrick and loaded by `firebrick bench`. For classes that run `in_folder`.
  module ServedApp
    ROOT = File.expand_path("../..", __dir__)
    APP = <<~RUBY
      def compute(seconds)
        finish = Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) + seconds
        nil until Process.clock_gettime(Process::CLOCK_THREAD_CPUTIME_ID) > finish
      end
      run ->(_) { %s; [200, { "content-type" => "text/plain" }, ["done"]] }
    RUBY

    private

    # Makes `@dir`, a folder that exists as long as the block runs. Returns the block's value.
    def in_folder(name)
      @dir = Dir.mktmpdir("bench-#{name}")
      yield
    ensure
      FileUtils.remove_entry(@dir) if @dir
    end

    # Writes the app that runs this code. Returns its folder.
    def write_app(name, code)
      File.join(@dir, name).tap do |folder|
        FileUtils.mkdir_p(folder)
        File.write(File.join(folder, "config.ru"), format(APP, code))
      end
    end

    # Returns the server, once it responds.
    def serve(folder, flags, shape)
      environment = { "FIREBRICK_LIB" => ENV["FIREBRICK_LIB"] || File.join(ROOT, "worker/lib"), "XDG_RUNTIME_DIR" => @dir }
      server = Server.new("#{program} serve {dir} -b tcp://127.0.0.1:{port} -e production #{flags}", log: File.join(@dir, "log"), env: environment)
      server.start(folder, shape) { |port| Net::HTTP.get_response("127.0.0.1", "/", port).body == "done" }
    end

    # Returns the result of `firebrick bench`.
    def bench(port, *flags)
      file = File.join(@dir, "bench.json")
      text, = Open3.capture2e(program, "bench", "http://127.0.0.1:#{port}/", "--no-stages", "--json", file, *flags)
      raise Failure, "firebrick bench #{flags.join(' ')}:\n#{text}" unless File.exist?(file)

      JSON.parse(File.read(file))
    ensure
      FileUtils.rm_f(file)
    end

    def program
      @program ||= Program.built("dist", "release")
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
