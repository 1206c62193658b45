# Converts a Rack response for the server. The usual shape (Integer, Hash of Strings and Integers, Array of Strings) is
# converted without Ruby (`Rt.plain`); everything else here.
module Rt
  class << self
    # `request` is 2 if some values of the env have to be converted first.
    def respond(app, env, request)
      # The last match is that of another request.
      remember(nil) if $~
      complete(env) if request == 2
      response = app.call(env)
      plain(response) || odd(response)
    end

    private

    def complete(env)
      env['h2o.remaining_delegations'] = env['h2o.remaining_delegations'].to_i
      env['h2o.remaining_reprocesses'] = env['h2o.remaining_reprocesses'].to_i
      env['rack.input'] = Input.new(env['rack.input']) if env.key?('rack.input')
    end

    def odd(response)
      # A pending request may be returned as its response.
      response = response.join if response.is_a?(H2O::HttpRequest) || response.is_a?(H2O::AppRequest)
      unless response.respond_to?(:to_ary) || response.is_a?(Array)
        raise TypeError, "a handler returned #{response.inspect} instead of [status, headers, body]"
      end
      status, headers, body = *response
      raise TypeError, "the status #{status.inspect} is not a number such as 200" unless status.respond_to?(:to_i)
      unless headers.nil? || headers.respond_to?(:each)
        raise TypeError, "the headers #{headers.inspect} are not a Hash; expected one such as {\"content-type\" => \"text/plain\"}"
      end
      status = status.to_i
      fields = flat(headers)
      return [status, fields, []] if body.nil? || status == 399
      return [status, fields, body.map { |part| String(part) }] if body.is_a?(Array)
      return [status, fields, [body.join]] if body.is_a?(H2O::HttpInputStream::Message)
      return [status, fields, body.untouched] if body.is_a?(H2O::HttpInputStream) && body.untouched
      unless body.respond_to?(:each)
        raise TypeError, "the body #{body.inspect} does not respond to each; expected an Array of Strings such as [\"text\"]"
      end
      stream(status, fields, body)
    end

    # Alternating names and values, from a Hash, pairs, or anything else with `each`.
    def flat(headers)
      fields = []
      return fields if headers.nil?
      headers.each do |name, value|
        next if value.nil?
        value = value.join("\n") if value.is_a?(Array)
        fields << name.to_s << value.to_s
      end
      fields
    end

    def stream(status, fields, body)
      wait!(WAIT_HEAD, status, fields)
      body.each { |part| wait!(WAIT_CHUNK, part.to_s) }
      wait!(WAIT_CHUNK)
      nil
    ensure
      body.close if body.respond_to?(:close)
    end
  end

  # `rack.errors`.
  class Errors
    def puts(*lines)
      lines = [''] if lines.empty?
      lines.each { |line| Rt.call(LOG, line.to_s) }
      nil
    end

    def write(text)
      Rt.call(LOG, text.to_s)
      text.to_s.size
    end
    alias << write

    def flush
      self
    end
  end
  ERRORS = Errors.new

  # `rack.input`: the whole body, read like a file.
  class Input
    include Enumerable

    def initialize(body)
      @body = body
      @at = 0
    end

    # The unread rest. The position does not change.
    def rest
      @body.byteslice(@at, @body.bytesize - @at)
    end

    def read(length = nil, buffer = nil)
      raise ArgumentError, "negative length #{length} given" if length && length < 0
      left = @body.bytesize - @at
      part = length.nil? ? left : [length, left].min
      given = @body.byteslice(@at, part)
      @at += part
      given = nil if length && length > 0 && given.empty?
      return given unless buffer
      buffer.replace(given || '')
      given && buffer
    end

    def gets
      return nil if @at >= @body.bytesize
      stop = @body.index("\n", @at)
      stop = stop ? stop + 1 : @body.bytesize
      line = @body.byteslice(@at, stop - @at)
      @at = stop
      line
    end

    def each
      while (line = gets)
        yield line
      end
      self
    end

    def rewind
      @at = 0
    end

    def byteindex(*args)
      @body.index(*args)
    end

    def close; end
  end
end
