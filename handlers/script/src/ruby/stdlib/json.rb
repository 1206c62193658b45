# JSON. Values of core classes are converted by the server; others first by their `to_json`.
module JSON
  class JSONError < StandardError; end
  class ParserError < JSONError; end
  class NestingError < ParserError; end
  class GeneratorError < JSONError; end

  # The one Symbol that the server gets after `to_json` was called: its Hash holds JSON text.
  WRITTEN = :json

  class << self
    def generate(object, options = nil)
      return pretty_generate(object) if options.is_a?(Hash) && options[:indent].is_a?(String) && !options[:indent].empty?
      write(object, false)
    end

    def pretty_generate(object, _options = nil)
      write(object, true)
    end

    def dump(object, io = nil, _limit = nil)
      text = write(object, false)
      return text unless io
      io.write(text)
      io
    end

    def parse(text, options = nil)
      text = text.to_str if !text.is_a?(String) && text.respond_to?(:to_str)
      raise TypeError, "no implicit conversion of #{text.nil? ? 'nil' : text.class} into String" unless text.is_a?(String)
      return Rt.call(Rt::JSON_PARSE, text) unless options
      nesting = options.fetch(:max_nesting, 100)
      Rt.call(Rt::JSON_PARSE, text, options[:symbolize_names] ? true : false, nesting || 100)
    end
    alias parse! parse

    # Like parse, for a text or an object with `read`; nil for an empty one.
    def load(source, _proc = nil, options = nil)
      source = source.read if source.respond_to?(:read)
      return nil if source.nil? || source.empty?
      parse(source, options)
    end

    def [](object, options = nil)
      object.is_a?(String) ? parse(object, options) : generate(object)
    end

    private

    def write(object, pretty)
      Rt.call(Rt::JSON_GENERATE, object, pretty)
    rescue TypeError
      Rt.call(Rt::JSON_GENERATE, plain(object, 0), pretty, true)
    rescue ArgumentError => e
      raise NestingError, "nesting of more than 99 is too deep: #{e.message}"
    end

    # A copy without Symbols, in which `to_json` has replaced objects of other classes by JSON text.
    def plain(object, depth)
      raise ArgumentError, 'value is nested too deeply' if depth > 99
      case object
      when String, Integer, Float, nil, true, false then object
      when Symbol then object.to_s
      when Array then object.map { |part| plain(part, depth + 1) }
      when Hash
        pairs = {}
        object.each { |key, value| pairs[key.to_s] = plain(value, depth + 1) }
        pairs
      else
        { WRITTEN => object.to_json.to_s }
      end
    end
  end
end

class Object
  def to_json(*)
    to_s.to_json
  end
end

[NilClass, TrueClass, FalseClass, Integer, Float, String, Symbol, Array, Hash].each do |type|
  type.class_eval do
    def to_json(*)
      JSON.generate(self)
    end
  end
end
