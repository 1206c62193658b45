# frozen_string_literal: true

module Firebrick
  # A server cannot be started, or has ended by itself; the message says why.
  class Error < StandardError; end

  # The app's response violates the Rack SPEC and cannot be sent. The client gets a 500.
  class BadResponse < StandardError; end

  # Raised in the body of a response whose client has disconnected, so that the body can clean up.
  class ClientGone < IOError; end
end
