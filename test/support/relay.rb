# frozen_string_literal: true

require "socket"

# Passes connections on to a server, and cuts them: a network between a browser and the server.
class Relay
  def initialize(address)
    @address = address
    @listener = TCPServer.new("127.0.0.1", 0)
    @pairs = Queue.new
    @accepting = Thread.new { loop { accept } }
  end

  def port = @listener.addr[1]

  def address = ["127.0.0.1", port]

  def url(path) = "http://127.0.0.1:#{port}/#{path}"

  # Ends all connections. With +down+, new ones end at once until #up.
  def cut(down: false)
    @down = down
    @pairs.pop.each(&:close) until @pairs.empty?
  end

  def up
    @down = false
  end

  def close
    @accepting.kill
    @listener.close
    cut
  end

  private

  def accept
    client = @listener.accept
    return client.close if @down

    pair = [client, TCPSocket.new(*@address)]
    @pairs << pair
    [pair, pair.reverse].each { |from, to| Thread.new { pass(from, to) } }
  rescue SystemCallError
    client&.close
  end

  def pass(from, to)
    loop { to.write(from.readpartial(16_384)) }
  rescue SystemCallError, IOError
    [from, to].each { |one| one.close unless one.closed? }
  end
end
