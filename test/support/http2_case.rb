# frozen_string_literal: true

# The base of the tests of HTTP/2: servers on an address that speaks it in plain text, and raw clients.

require "support/case"
require "support/http2_client"

class Http2Case < Case
  BIND = "tcp://127.0.0.1:0?h2c=true"

  class << self
    def shared_server(**options)
      super(binds: [BIND], **options)
    end
  end

  def setup
    firebrick_only
  end

  def start(**options)
    super(binds: [BIND], **options)
  end

  # Makes a raw client that is closed after the test.
  def http2(to = server, **options)
    Http2Client.new(to.address, **options).tap { |client| @connections << client }
  end

  # Returns the answer to one request on a new connection.
  def fetch(path, to: server, **options)
    client = http2(to)
    client.get(path, **options)
  ensure
    client&.close
  end

  # Returns the memory of the front, in bytes.
  def front_memory(own = server)
    File.read("/proc/#{own.pid}/status")[/^VmRSS:\s+(\d+) kB/, 1].to_i * 1024
  end

  # The parsed lines of a JSON access log.
  def access_log(own)
    own.stdout.lines.filter_map { |line| JSON.parse(line) if line.start_with?("{") }
  end
end
