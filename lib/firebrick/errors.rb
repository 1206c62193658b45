# frozen_string_literal: true

module Firebrick
  # The app's answer breaks the Rack SPEC in a way that cannot be sent. Becomes a 500.
  class BadResponse < StandardError; end

  # Raised in the body of a response whose client has gone. Nothing is left to be done but to clean up.
  class ClientGone < IOError; end
end
