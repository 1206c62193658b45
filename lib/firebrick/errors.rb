# frozen_string_literal: true

module Firebrick
  # A server cannot be started, or has ended by itself; the message says why.
  class Error < StandardError; end

  # The app's response violates the Rack SPEC and cannot be sent. The client gets a 500.
  class BadResponse < StandardError; end

  # What all exceptions are that say that the client has gone; also the Errno::EPIPE and Errno::ECONNRESET of the stream
  # of a streaming body, and of a hijacked socket (DepartedClient). They are neither logged nor counted as a failure of
  # the app, nor is what a library raises because of one.
  module Disconnected; end

  # Raised where a body yields, where a request waits on a fiber, and where the app writes to the client's socket in a
  # block of a library that talks to another server, when the client has disconnected, so that the app can clean up
  # (`ensure`).
  #
  # It is no StandardError, and so no IOError: libraries take those for a failure of the server that they talk to, and
  # ask that again, as Net::HTTP does.
  class ClientGone < Exception # rubocop:disable Lint/InheritException
    include Disconnected
  end
end
