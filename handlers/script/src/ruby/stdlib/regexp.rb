# Regexp. mruby has the literals, which call `Regexp.compile`; the server matches.
RegexpError = Class.new(StandardError) unless Object.const_defined?(:RegexpError)

class Regexp
  IGNORECASE = 1
  EXTENDED = 2
  MULTILINE = 4

  # A literal is compiled each time it is evaluated: equal ones are the same object.
  CACHE = { nil => {} }
  MAX_CACHED = 500

  class << self
    def compile(source, options = nil, _encoding = nil)
      return new(source, options) unless source.is_a?(String)
      cache = CACHE[options] ||= {}
      found = cache[source]
      return found if found
      compiled = new(source, options)
      cache.clear if cache.size >= MAX_CACHED
      cache[source.dup] = compiled
    end

    def escape(text)
      text = text.to_s
      escaped = ''
      text.each_char { |c| escaped << (ESCAPES[c] || c) }
      escaped
    end
    alias quote escape

    def union(*patterns)
      patterns = patterns[0] if patterns.size == 1 && patterns[0].is_a?(Array)
      return new('(?!)') if patterns.empty?
      if patterns.size == 1
        only = patterns[0]
        return only.is_a?(Regexp) ? only : new(escape(only))
      end
      new(patterns.map { |pattern| pattern.is_a?(Regexp) ? pattern.to_s : escape(pattern) }.join('|'))
    end

    def last_match(group = nil)
      group && $~ ? $~[group] : $~
    end

    def try_convert(object)
      object.is_a?(Regexp) ? object : nil
    end
  end

  ESCAPES = { "\n" => '\\n', "\t" => '\\t', "\r" => '\\r', "\f" => '\\f', "\v" => '\\v', ' ' => '\\ ' }
  '.*?+^$|\\()[]{}-#'.each_char { |c| ESCAPES[c] = "\\#{c}" }

  attr_reader :source, :options, :key

  def initialize(source, options = nil, _encoding = nil)
    if source.is_a?(Regexp)
      options = source.options
      source = source.source
    end
    raise TypeError, "no implicit conversion of #{source.class} into String" unless source.is_a?(String)
    @source = source.dup.freeze
    @options = bits(options)
    @key = "#{@options}#{source}".freeze
    @groups, @names = Rt.call(Rt::REGEXP_CHECK, @key)
  end

  def match(text, from = 0)
    found = text.nil? ? nil : find(text_of(text), from)
    Rt.remember(found)
    found && block_given? ? yield(found) : found
  end

  def match?(text, from = 0)
    return false if text.nil?
    text = text_of(text)
    from += text.bytesize if from < 0
    Rt.call(Rt::REGEXP_TEST, @key, text, from)
  end

  def =~(text)
    found = text.nil? ? nil : find(text_of(text), 0)
    Rt.remember(found)
    found && found.begin(0)
  end

  def ===(text)
    return false unless text.is_a?(String) || text.is_a?(Symbol)
    found = find(text.to_s, 0)
    Rt.remember(found)
    found ? true : false
  end

  # The match at `from` or later. The caller remembers it as the last match.
  def find(text, from, anchored = false)
    from += text.bytesize if from < 0
    places = Rt.call(Rt::REGEXP_FIND, @key, text, from, anchored)
    places && MatchData.new(self, text, places)
  end

  def find_last(text, from)
    places = Rt.call(Rt::REGEXP_LAST, @key, text, from)
    places && MatchData.new(self, text, places)
  end

  # All matches in turn, found in batches of growing size. Changes to the text meanwhile have no effect.
  def each_match(text)
    from = 0
    most = 16
    text = text.dup
    while from
      from, *found = Rt.call(Rt::REGEXP_ALL, @key, text, from, most)
      found.each { |places| yield MatchData.new(self, text, places, true) }
      most = 4096
    end
  end

  def names
    @names.keys
  end

  def named_captures
    @names
  end

  def casefold?
    @options & IGNORECASE != 0
  end

  def ==(other)
    other.is_a?(Regexp) && other.key == @key
  end
  alias eql? ==

  def hash
    @key.hash
  end

  def to_s
    on = letters(true)
    off = letters(false)
    "(?#{on}#{off.empty? ? '' : "-#{off}"}:#{@source})"
  end

  def inspect
    shown = ''
    escaped = false
    @source.each_char do |c|
      shown << '\\' if c == '/' && !escaped
      escaped = c == '\\' && !escaped
      shown << c
    end
    "/#{shown}/#{letters(true)}"
  end

  private

  def letters(on)
    [['m', MULTILINE], ['i', IGNORECASE], ['x', EXTENDED]].select { |_, bit| (@options & bit != 0) == on }.map(&:first).join
  end

  def bits(options)
    case options
    when nil, false then 0
    when Integer then options & 7
    when String
      bits = 0
      bits |= IGNORECASE if options.include?('i')
      bits |= EXTENDED if options.include?('x')
      bits |= MULTILINE if options.include?('m')
      bits
    else IGNORECASE
    end
  end

  def text_of(text)
    return text if text.is_a?(String)
    return text.to_s if text.is_a?(Symbol)
    return text.to_str if text.respond_to?(:to_str)
    raise TypeError, "no implicit conversion of #{text.class} into String"
  end
end
