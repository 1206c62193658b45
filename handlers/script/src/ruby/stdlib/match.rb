# MatchData, and the last match: `$~`, `$1`, `$&` and the like are separate for each task.
class MatchData
  attr_reader :regexp, :string

  def initialize(regexp, string, places, kept = false)
    @regexp = regexp
    # A copy: later changes to the text do not affect this match.
    @string = kept ? string : string.dup
    @places = places
  end

  def [](index, length = nil)
    return to_a[index, length] if length
    case index
    when Integer
      index += size if index < 0
      index < 0 ? nil : part(index)
    when String, Symbol then part(number(index))
    else to_a[index]
    end
  end

  def to_a
    all = []
    size.times { |index| all << part(index) }
    all
  end

  def captures
    to_a[1..-1]
  end
  alias deconstruct captures

  def names
    @regexp.names
  end

  def named_captures(options = nil)
    pairs = {}
    symbols = options && options[:symbolize_names]
    names.each { |name| pairs[symbols ? name.to_sym : name] = self[name] }
    pairs
  end

  def values_at(*indexes)
    indexes.map { |index| self[index] }
  end

  # Offsets are in bytes, as everywhere in mruby.
  def begin(group)
    @places[2 * number(group)]
  end

  def end(group)
    @places[2 * number(group) + 1]
  end

  def offset(group)
    [self.begin(group), self.end(group)]
  end
  alias byteoffset offset

  def pre_match
    @string.byteslice(0, @places[0])
  end

  def post_match
    @string.byteslice(@places[1], @string.bytesize - @places[1])
  end

  def size
    @places.size / 2
  end
  alias length size

  def to_s
    part(0)
  end

  def ==(other)
    other.is_a?(MatchData) && other.regexp == @regexp && other.string == @string && other.to_a == to_a
  end
  alias eql? ==

  def inspect
    labels = {}
    @regexp.named_captures.each { |name, numbers| numbers.each { |number| labels[number] = name } }
    parts = captures.each_with_index.map { |text, index| " #{labels[index + 1] || index + 1}:#{text.inspect}" }
    "#<MatchData #{self[0].inspect}#{parts.join}>"
  end

  # The last group that matched.
  def last_group
    index = size - 1
    index -= 1 while index > 0 && @places[2 * index].nil?
    index > 0 ? part(index) : nil
  end

  private

  def part(index)
    from = @places[2 * index]
    from && @string.byteslice(from, @places[2 * index + 1] - from)
  end

  def number(group)
    if group.is_a?(Integer)
      raise IndexError, "index #{group} out of matches" if group < 0 || group >= size
      return group
    end
    numbers = @regexp.named_captures[group.to_s]
    raise IndexError, "undefined group name reference: #{group}" unless numbers
    numbers.reverse.find { |number| @places[2 * number] } || numbers[-1]
  end
end

module Rt
  MATCH_GLOBALS = ['$~', '$&', '$`', "$'", '$+', '$1', '$2', '$3', '$4', '$5', '$6', '$7', '$8', '$9'].map(&:to_sym)
  @match_globals = 0

  class << self
    # Sets the last match, or nil.
    def remember(match)
      return if match.nil? && $~.nil?
      values = match ? [match, match[0], match.pre_match, match.post_match, match.last_group] : []
      group = 1
      while match && group < match.size && group < 10
        values << match[group]
        group += 1
      end
      globals(MATCH_GLOBALS, values, @match_globals)
      @match_globals = values.size
    end

    alias __run_block__ run_block

    def run_block(number)
      remember(nil)
      __run_block__(number)
    end

    # Other tasks match while this one waits.
    def wait!(op, *args)
      match = $~
      given = wait(op, *args)
      remember(match) unless match.equal?($~)
      raise given if given.is_a?(Exception)
      given
    end
  end
end
