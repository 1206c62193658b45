# frozen_string_literal: true

# An app that holds requests until the test lets them pass, to fill a server.

module Gate
  APP = <<~'RUBY'
    run lambda { |env|
      if env["PATH_INFO"] == "/gate"
        File.write("entered#{env["QUERY_STRING"]}.log", "")
        sleep 0.02 until File.exist?("gate.log")
      end
      [200, { "content-type" => "text/plain" }, [env["PATH_INFO"]]]
    }
  RUBY

  # Makes the app hold a request of each connection. Returns the connections. The server needs a thread for each.
  def hold(own, connections)
    connections.each_with_index { |connection, i| connection.write(request("GET", "/gate?#{i}")) }
    wait_until("all requests are in progress") { Dir[own.path("entered*.log")].size == connections.size }
    connections
  end

  # Lets the requests pass, and reads the response of each.
  def open_gate(own, held)
    File.write(own.path("gate.log"), "open")
    held.each { |connection| assert_status 200, connection.read_response }
  end
end
