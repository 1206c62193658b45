# frozen_string_literal: true

# quic-go's HTTP/3 client: test/quic_go, built once for all tests by `go build`.

require "fileutils"
require "json"
require "minitest"
require "open3"
require "tmpdir"

module QuicGo
  SOURCE = File.expand_path("../quic_go", __dir__)
  BUILDING = Mutex.new

  class << self
    # Returns the program; nil if it cannot be built here.
    def client
      BUILDING.synchronize { @client = build unless defined?(@client) }
      @client
    end

    # Returns the responses to requests for +path+ of a server; +flags+ are the client's.
    def ask(server, path, *flags)
      out, err, status = Open3.capture3("timeout", "60", *command(server, path, *flags))
      raise Minitest::Assertion, "quic-go's client failed: #{err}" unless status.success?

      JSON.parse(out.lines.last)
    end

    def command(server, path, *flags)
      [client, *flags.map(&:to_s), "https://127.0.0.1:#{server.port}#{path}"]
    end

    private

    def build
      return unless system("go version", out: File::NULL, err: File::NULL)

      dir = Dir.mktmpdir("quic-go")
      at_exit { FileUtils.remove_entry(dir) }
      out, status = Open3.capture2e({ "GOTOOLCHAIN" => "local" }, "timeout", "300", "go", "build", "-o", "#{dir}/client", ".", chdir: SOURCE)
      return "#{dir}/client" if status.success?

      warn("quic-go's client cannot be built:\n#{out}")
    end
  end
end
