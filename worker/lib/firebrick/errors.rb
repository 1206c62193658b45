# frozen_string_literal: true

module Firebrick
  # Raised when a server cannot be started, or has ended by itself; the message says why.
  class Error < StandardError; end

  # The app's response violates the Rack SPEC and cannot be sent. The client gets a 500.
  class BadResponse < StandardError; end

  # Marks all exceptions that report a disconnected client, including the Errno::EPIPE and Errno::ECONNRESET of the
  # stream of a streaming body and of a hijacked socket (DepartedClient). They are neither logged nor counted as
  # failures of the app, and neither are exceptions that a library raises because of one.
  module Disconnected; end

  # Raised when the client has disconnected, so that the app can clean up (`ensure`): where a body yields, where a
  # request waits on a fiber, and where the app writes to the client's socket in a block of a library that talks to
  # another server.
  #
  # It is not a StandardError, and so not an IOError: libraries such as Net::HTTP take those for a failure of the server
  # that they talk to, and retry.
  class ClientGone < Exception # rubocop:disable Lint/InheritException
    include Disconnected
  end
end
