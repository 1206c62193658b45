# frozen_string_literal: true

# Somebody else's request, which has to be answered whatever the slow clients do.

module Bystander
  # Answered although others hold back; a held thread would leave it without an answer for good.
  def assert_quick(situation, to: server)
    3.times do
      connection = connect(to, deadline: 10)
      connection.write(request("GET", "/quick"))
      assert_equal "quick", connection.read_response.body, situation
    rescue Minitest::Assertion => e
      raise e.class, "no answer for others #{situation}: #{e.message}"
    end
  end
end
