# frozen_string_literal: true

# Connections that the app has taken over occupy no thread, but keep their worker: they spread over all workers.

require "support/case"

class WebsocketSpreadTest < Case
  parallel!

  SOCKETS = 200
  APP = <<~'RUBY'
    # Holds the socket until the client ends it.
    hold = ->(io) { Thread.new { io.read; io.close } }
    run(lambda do |env|
      case env["PATH_INFO"]
      when "/full"
        io = env["rack.hijack"].call
        io.write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nX-Pid: #{Process.pid}\r\n\r\n")
        hold.(io)
        [200, {}, []]
      when "/partial"
        [101, { "connection" => "upgrade", "upgrade" => "websocket", "x-pid" => Process.pid.to_s, "rack.hijack" => hold }, []]
      else [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
      end
    end)
  RUBY

  %w[/full /partial].each do |path|
    it "spreads 200 sockets over 4 workers (#{path})" do
      firebrick_only
      own = start(workers: 4, threads: "1:5", app: APP)
      sockets = open_sockets(own, path, SOCKETS)
      counts = sockets.map(&:last).tally
      assert_equal 4, counts.size, counts.inspect
      counts.each_value { |count| assert_in_delta 50, count, 5, counts.inspect }
      # The connections of one worker end; new ones go to it.
      first = counts.keys.first
      sockets.each { |connection, pid| connection.close if pid == first }
      # The worker notices the ends one by one, later on a busy machine.
      wait_until("new sockets to go to the worker without any") do
        opened = open_sockets(own, path, 20)
        opened.map(&:last).tally.fetch(first, 0) >= 18 || opened.each { |connection, _| connection.close } && false
      end
    end
  end

  private

  def open_sockets(own, path, count)
    Array.new(count) do
      connection = connect(own)
      connection.write(request("GET", path, "Connection" => "Upgrade", "Upgrade" => "websocket"))
      [connection, connection.read_through("\r\n\r\n")[/x-pid: (\d+)/i, 1]]
    end
  end
end
