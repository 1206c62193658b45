# Methods of String and Symbol that take patterns.
class String
  alias __sub__ sub
  alias __gsub__ gsub
  alias __index__ index
  alias __rindex__ rindex
  alias __aref__ []
  alias __aset__ []=
  alias __slice__ slice!
  alias __split__ split
  alias __partition__ partition
  alias __rpartition__ rpartition
  alias __start_with__ start_with?

  def =~(other)
    raise TypeError, "wrong argument type String (expected Regexp)" if other.is_a?(String)
    other =~ self
  end

  def match(pattern, from = 0, &block)
    pattern = Regexp.new(pattern) unless pattern.is_a?(Regexp)
    pattern.match(self, from, &block)
  end

  def match?(pattern, from = 0)
    pattern = Regexp.new(pattern) unless pattern.is_a?(Regexp)
    pattern.match?(self, from)
  end

  def sub(pattern, *with, &block)
    return __sub__(pattern, *with, &block) unless pattern.is_a?(Regexp) || with[0].is_a?(Hash)
    replaced(pattern, with, false, &block) || dup
  end

  def gsub(pattern, *with, &block)
    return __gsub__(pattern, *with, &block) unless pattern.is_a?(Regexp) || with[0].is_a?(Hash)
    return to_enum(:gsub, pattern) if with.empty? && !block
    replaced(pattern, with, true, &block) || dup
  end

  def sub!(pattern, *with, &block)
    replace_by(replaced(pattern.is_a?(Regexp) ? pattern : Regexp.new(Regexp.escape(pattern)), with, false, &block))
  end

  def gsub!(pattern, *with, &block)
    return to_enum(:gsub!, pattern) if with.empty? && !block
    replace_by(replaced(pattern.is_a?(Regexp) ? pattern : Regexp.new(Regexp.escape(pattern)), with, true, &block))
  end

  def scan(pattern)
    pattern = Regexp.new(Regexp.escape(pattern)) unless pattern.is_a?(Regexp)
    found = []
    last = nil
    pattern.each_match(self) do |match|
      last = match
      part = match.size > 1 ? match.captures : match[0]
      if block_given?
        Rt.remember(match)
        yield part
      else
        found << part
      end
    end
    Rt.remember(last)
    block_given? ? self : found
  end

  def index(pattern, from = 0)
    return __index__(pattern, from) unless pattern.is_a?(Regexp)
    found = pattern.find(self, from)
    Rt.remember(found)
    found && found.begin(0)
  end

  def rindex(pattern, from = bytesize)
    return __rindex__(pattern, from) unless pattern.is_a?(Regexp)
    from += bytesize if from < 0
    found = from < 0 ? nil : pattern.find_last(self, from > bytesize ? bytesize : from)
    Rt.remember(found)
    found && found.begin(0)
  end

  def [](index, *length)
    return __aref__(index, *length) unless index.is_a?(Regexp)
    found = index.find(self, 0)
    Rt.remember(found)
    found && found[length[0] || 0]
  end
  alias slice []

  def []=(index, *rest)
    return __aset__(index, *rest) unless index.is_a?(Regexp)
    found = index.find(self, 0)
    Rt.remember(found)
    raise IndexError, 'regexp not matched' unless found
    group = rest.size > 1 ? rest[0] : 0
    from, to = found.offset(group)
    raise IndexError, "regexp group #{group} not matched" unless from
    replace(byteslice(0, from) + rest[-1] + byteslice(to, bytesize - to))
    rest[-1]
  end

  def slice!(index, *length)
    return __slice__(index, *length) unless index.is_a?(Regexp)
    found = index.find(self, 0)
    Rt.remember(found)
    return nil unless found
    group = length[0] || 0
    from, to = found.offset(group)
    return nil unless from
    replace(byteslice(0, from) + byteslice(to, bytesize - to))
    found[group]
  end

  def split(pattern = nil, limit = 0)
    return limit == 0 ? __split__(pattern) : __split__(pattern, limit) unless pattern.is_a?(Regexp)
    return [] if empty?
    return [dup] if limit == 1
    parts = []
    at = 0
    cuts = 0
    pattern.each_match(self) do |match|
      from, to = match.offset(0)
      # An empty match splits between characters, but not at the ends.
      next if from == to && (from == at || from >= bytesize)
      parts << byteslice(at, from - at)
      parts.concat(match.captures.compact)
      at = to
      cuts += 1
      break if limit > 0 && cuts >= limit - 1
    end
    parts << byteslice(at, bytesize - at)
    parts.pop while limit == 0 && parts[-1] && parts[-1].empty?
    parts
  end

  def partition(pattern)
    return __partition__(pattern) unless pattern.is_a?(Regexp)
    found = pattern.find(self, 0)
    Rt.remember(found)
    found ? [found.pre_match, found[0], found.post_match] : [dup, '', '']
  end

  def rpartition(pattern)
    return __rpartition__(pattern) unless pattern.is_a?(Regexp)
    found = pattern.find_last(self, bytesize)
    Rt.remember(found)
    found ? [found.pre_match, found[0], found.post_match] : ['', '', dup]
  end

  def start_with?(*prefixes)
    prefixes.any? do |prefix|
      next __start_with__(prefix) unless prefix.is_a?(Regexp)
      found = prefix.find(self, 0, true)
      Rt.remember(found)
      found ? true : false
    end
  end

  private

  def replace_by(text)
    return nil unless text
    replace(text)
  end

  # The text with its matches replaced; nil if there are none.
  def replaced(pattern, with, all, &block)
    raise ArgumentError, "wrong number of arguments (given #{with.size + 1}, expected 1..2)" if with.size > 1 || (with.empty? && !block)
    pattern = Regexp.new(Regexp.escape(pattern)) unless pattern.is_a?(Regexp)
    table = with[0]
    unless table.nil? || table.is_a?(Hash)
      text, places = Rt.call(Rt::REGEXP_REPLACE, pattern.key, self, table.to_str, all)
      Rt.remember(text && MatchData.new(pattern, self, places))
      return text
    end
    replaced_one_by_one(pattern, table, all, &block)
  end

  def replaced_one_by_one(pattern, table, all)
    text = ''
    at = 0
    last = nil
    pattern.each_match(self) do |match|
      last = match
      from, to = match.offset(0)
      Rt.remember(match)
      with = table ? table[match[0]] : yield(match[0])
      text << byteslice(at, from - at) << with.to_s
      at = to
      break unless all
    end
    Rt.remember(last)
    last && text << byteslice(at, bytesize - at)
  end
end

class Symbol
  def =~(other)
    to_s =~ other
  end

  def match(*args, &block)
    to_s.match(*args, &block)
  end

  def match?(*args)
    to_s.match?(*args)
  end

  def [](*args)
    to_s[*args]
  end
end

class NilClass
  def =~(_other)
    nil
  end
end

module Kernel
  def !~(other)
    (self =~ other) ? false : true
  end
end
