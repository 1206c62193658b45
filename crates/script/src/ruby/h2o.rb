# The rest of the server: `H2O.next`, `H2O.reprocess`, early hints.
module H2O
  # What answers instead of a handler, called as a Rack app is.
  class App
    def initialize(op)
      @op = op
    end

    # [status, headers, body]
    def call(env)
      request(env).join
    end

    # The same for several at a time: they are on their way before the first `join`.
    def request(env)
      AppRequest.new(@op, env)
    end
  end

  # A request within the server.
  class AppRequest
    def initialize(op, env)
      @reply = Rt::Reply.new(Rt.wait!(op, texts(env), body(env['rack.input'])))
    end

    def join
      head = @reply.head
      raise Rt.fault(*@reply.failure) unless head
      head
    end

    private

    def texts(env)
      flat = []
      env.each { |name, value| flat << name << value if name.is_a?(String) && value.is_a?(String) }
      flat
    end

    # What the handler has read of it is sent again.
    def body(input)
      return input.body if input.is_a?(Rt::Input)
      input.rewind if input.respond_to?(:rewind)
      Rt.text_of(input)
    end
  end

  NEXT = App.new(:next)
  REPROCESS = App.new(:reprocess)

  class << self
    # Those who come after this handler: other handlers of the route, files, the app.
    def next
      NEXT
    end

    # The server from the beginning: for a request to another path.
    def reprocess
      REPROCESS
    end
  end
end

module Rt
  # `rack.early_hints`: sends a 103 with these fields.
  class Hints
    def call(headers)
      Rt.wait!(:hints, Rt.pairs(headers))
    end
  end
  HINTS = Hints.new

  # Of the connection nothing is measured.
  class Unknown
    def call
      nil
    end
  end
  UNKNOWN = Unknown.new

  # Frozen keys are not copied when a Hash takes them.
  EARLY_HINTS = 'rack.early_hints'.freeze
  GET_RTT = 'h2o.get_rtt'.freeze
  DELEGATIONS = 'h2o.remaining_delegations'.freeze
  REPROCESSES = 'h2o.remaining_reprocesses'.freeze
end
