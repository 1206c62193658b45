# Formatting and parsing of times.
class Time
  class << self
    # ISO 8601, or a date as in HTTP or mail.
    def parse(text, _now = nil)
      seconds, microseconds = Rt.call(Rt::TIME_PARSE, text)
      at(seconds, microseconds)
    end
    alias iso8601 parse
    alias xmlschema parse
    alias rfc2822 parse

    def httpdate(text)
      parse(text).utc
    end
  end

  def strftime(format)
    Rt.call(Rt::TIME_FORMAT, to_i, usec, utc?, format)
  end

  def iso8601(digits = 0)
    strftime("%Y-%m-%dT%H:%M:%S#{digits > 0 ? ".%#{digits}N" : ''}#{utc? ? 'Z' : '%:z'}")
  end
  alias xmlschema iso8601

  def httpdate
    Rt.call(Rt::TIME_FORMAT, to_i, usec, true, '%a, %d %b %Y %H:%M:%S GMT')
  end

  def rfc2822
    strftime("%a, %d %b %Y %H:%M:%S #{utc? ? '-0000' : '%z'}")
  end
  alias rfc822 rfc2822

  def to_json(*)
    to_s.to_json
  end
end
