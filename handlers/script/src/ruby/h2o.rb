# The rest of the server: `H2O.next`, `H2O.reprocess`, early hints.
module H2O
  # Responds in place of the handler; called like a Rack app.
  class App
    def initialize(op)
      @op = op
    end

    # [status, headers, body]
    def call(env)
      request(env).join
    end

    # The same for several requests at a time: they are sent before the first `join`.
    def request(env)
      AppRequest.new(@op, env)
    end
  end

  # A request within the server.
  class AppRequest
    def initialize(op, env)
      @reply = Rt::Reply.new(Rt.wait!(op, texts(env), body(env['rack.input'], env['CONTENT_LENGTH'])))
    end

    def join
      head = @reply.head
      raise Rt.fault(*@reply.failure) unless head
      head
    end

    private

    # Alternating names and values; objects other than text are left out.
    def texts(env)
      flat = []
      env.each do |name, value|
        value = value.join(name == 'HTTP_COOKIE' ? '; ' : ', ') if value.is_a?(Array)
        value = value.to_s if value.is_a?(Integer)
        flat << name << value if name.is_a?(String) && value.is_a?(String)
      end
      flat
    end

    # The rest of the body that the handler has not read, up to CONTENT_LENGTH.
    def body(input, length)
      text = input.is_a?(Rt::Input) ? input.rest : Rt.text_of(input)
      return text if text.nil? || length.nil?
      length = begin
        Integer(length)
      rescue ArgumentError
        raise ArgumentError, "CONTENT_LENGTH is #{length.inspect}: expected digits"
      end
      length < text.bytesize ? text.byteslice(0, length) : text
    end
  end

  NEXT = App.new(Rt::WAIT_NEXT)
  REPROCESS = App.new(Rt::WAIT_REPROCESS)

  class << self
    # The parts that follow this handler: other handlers of the route, files, the app.
    def next
      NEXT
    end

    # The whole server: for a request to another path.
    def reprocess
      REPROCESS
    end
  end
end

module Rt
  # `rack.early_hints`: sends a 103 response with these fields.
  class Hints
    def call(headers)
      Rt.wait!(Rt::WAIT_HINTS, Rt.pairs(headers))
    end
  end
  HINTS = Hints.new

  # Round-trip times of connections are not measured.
  class Unknown
    def call
      nil
    end
  end
  UNKNOWN = Unknown.new

  # Values that all envs have.
  REQUEST['rack.multithread'] = false
  REQUEST['rack.multiprocess'] = true
  REQUEST['rack.run_once'] = false
  REQUEST['rack.hijack?'] = false
  REQUEST['rack.errors'] = ERRORS
  REQUEST['rack.early_hints'] = HINTS
  REQUEST['h2o.get_rtt'] = UNKNOWN
  REQUEST['h2o.is_ech'] = -> { false }
  REQUEST['h2o.remaining_delegations'] = 5
  REQUEST['h2o.remaining_reprocesses'] = 5
  env(REQUEST)
end
