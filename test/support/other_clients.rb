# frozen_string_literal: true

# Checks that other clients are served while slow clients occupy the server.

module OtherClients
  # Requests of other clients are served; an occupied thread would leave them without a response.
  def assert_others_served(situation, to: server)
    3.times do
      connection = connect(to, deadline: 10)
      connection.write(request("GET", "/quick"))
      assert_equal "quick", connection.read_response.body, situation
    rescue Minitest::Assertion => e
      raise e.class, "no response to other clients #{situation}: #{e.message}"
    end
  end
end
