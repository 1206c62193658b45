# Ruby's core methods that mruby lacks and handlers commonly use.
module Rt
  # Defines a method unless it exists.
  def self.missing(type, name, &body)
    type.define_method(name, &body) unless type.method_defined?(name)
  end
end

# Replaces the class of some versions of mruby, whose `throw` breaks tasks that wait.
Object.__send__(:remove_const, :UncaughtThrowError) if Object.const_defined?(:UncaughtThrowError)

class UncaughtThrowError < Exception
  attr_reader :tag, :value

  def initialize(tag, value)
    @tag = tag
    @value = value
    super("uncaught throw #{tag.inspect}")
  end
end

module Kernel
  def public_send(name, *args, &block)
    __send__(name, *args, &block)
  end

  def catch(tag = Object.new)
    yield tag
  rescue UncaughtThrowError => e
    raise e unless e.tag.equal?(tag) || (tag.is_a?(Symbol) && e.tag == tag)
    e.value
  end

  def throw(tag, value = nil)
    raise UncaughtThrowError.new(tag, value)
  end
end

Rt.missing(Kernel, :then) { |&block| block.call(self) }
Rt.missing(Kernel, :yield_self) { |&block| block.call(self) }
Rt.missing(Kernel, :itself) { self }

Rt.missing(Hash, :dig) { |key, *rest| (value = self[key]).nil? || rest.empty? ? value : value.dig(*rest) }
Rt.missing(Array, :dig) { |index, *rest| (value = self[index]).nil? || rest.empty? ? value : value.dig(*rest) }
Rt.missing(Hash, :slice) { |*keys| keys.each_with_object({}) { |key, made| made[key] = self[key] if key?(key) } }
Rt.missing(Hash, :except) { |*keys| reject { |key, _| keys.include?(key) } }
Rt.missing(Hash, :transform_keys) { |&block| each_with_object({}) { |(key, value), made| made[block.call(key)] = value } }
Rt.missing(Hash, :transform_values) { |&block| each_with_object({}) { |(key, value), made| made[key] = block.call(value) } }
Rt.missing(Hash, :compact) { reject { |_, value| value.nil? } }
Rt.missing(Hash, :sum) { |from = 0, &block| to_a.sum(from, &block) }
Rt.missing(Hash, :filter_map) { |&block| to_a.filter_map(&block) }
Rt.missing(Hash, :sort_by) { |&block| to_a.sort_by(&block) }
Rt.missing(Hash, :key) { |value| (found = find { |_, one| one == value }) && found[0] }
Rt.missing(Hash, :values_at) { |*keys| keys.map { |key| self[key] } }
Rt.missing(Hash, :fetch_values) { |*keys| keys.map { |key| fetch(key) } }
Rt.missing(Hash, :any?) { |&block| block ? !find(&block).nil? : !empty? }
Rt.missing(Hash, :compare_by_identity) { raise NotImplementedError, 'Hash#compare_by_identity is not there on mruby' }

Rt.missing(Enumerable, :sum) { |from = 0, &block| inject(from) { |sum, value| sum + (block ? block.call(value) : value) } }
Rt.missing(Enumerable, :filter_map) do |&block|
  each_with_object([]) { |value, made| (mapped = block.call(value)) && made << mapped }
end
Rt.missing(Enumerable, :tally) { each_with_object({}) { |value, made| made[value] = (made[value] || 0) + 1 } }
Rt.missing(Enumerable, :each_with_object) do |made, &block|
  each { |*value| block.call(value.size > 1 ? value : value[0], made) }
  made
end
Rt.missing(Enumerable, :to_h) { |&block| map { |pair| block ? block.call(pair) : pair }.each_with_object({}) { |(key, value), made| made[key] = value } }
Rt.missing(Array, :sum) { |from = 0, &block| inject(from) { |sum, value| sum + (block ? block.call(value) : value) } }
Rt.missing(Array, :take) { |count| self[0, count] }
Rt.missing(Array, :excluding) { |*values| self - values }
Rt.missing(Array, :intersect?) { |other| !(self & other).empty? }

# `keyword_init: true`
class Struct
  class << self
    alias __define__ new

    def new(*names, &block)
      return __define__(*names, &block) unless names[-1].is_a?(Hash)
      options = names.pop
      made = __define__(*names)
      made.include(Keywords) if options[:keyword_init]
      made.class_eval(&block) if block
      made
    end
  end

  module Keywords
    def initialize(values = {})
      unknown = values.keys - members
      raise ArgumentError, "unknown keywords: #{unknown.join(', ')}" unless unknown.empty?
      super(*members.map { |name| values[name] })
    end
  end
end

Rt.missing(Comparable, :clamp) do |low, high = nil|
  low, high = low.first, low.last if low.is_a?(Range)
  next low if low && self < low
  high && self > high ? high : self
end

Rt.missing(Integer, :digits) { |base = 10| to_s(base).chars.reverse.map { |digit| digit.to_i(base) } }
Rt.missing(Integer, :even?) { self % 2 == 0 }
Rt.missing(Integer, :odd?) { self % 2 != 0 }
Rt.missing(Integer, :pow) { |by, mod = nil| mod ? (self**by) % mod : self**by }
Rt.missing(Integer, :pred) { self - 1 }
Rt.missing(Integer, :positive?) { self > 0 }
Rt.missing(Integer, :negative?) { self < 0 }
Rt.missing(Integer, :fdiv) { |other| to_f / other }
Rt.missing(Integer, :ord) { self }
Rt.missing(Float, :positive?) { self > 0 }
Rt.missing(Float, :negative?) { self < 0 }
Rt.missing(Float, :zero?) { self == 0 }

# Strings are bytes here: encodings are names without an effect.
class Encoding
  attr_reader :name
  alias to_s name

  def initialize(name)
    @name = name
  end

  def inspect
    "#<Encoding:#{@name}>"
  end

  UTF_8 = new('UTF-8')
  BINARY = new('ASCII-8BIT')
  ASCII_8BIT = BINARY
  US_ASCII = new('US-ASCII')
end

Rt.missing(String, :force_encoding) { |_name| self }
Rt.missing(String, :encode) { |*_names| dup }
Rt.missing(String, :encoding) { Encoding::UTF_8 }
Rt.missing(String, :b) { dup }
# Some versions of mruby have it, but always return true.
String.define_method(:valid_encoding?) { Rt.call(Rt::UTF8, self) }
Rt.missing(String, :scrub) { |with = "\xEF\xBF\xBD"| Rt.call(Rt::SCRUB, self, with) }
Rt.missing(String, :ascii_only?) { bytes.all? { |byte| byte < 128 } }
Rt.missing(String, :unpack1) { |format| unpack(format)[0] }
Rt.missing(String, :delete_prefix) { |prefix| start_with?(prefix) ? byteslice(prefix.bytesize, bytesize) : dup }
Rt.missing(String, :delete_suffix) { |suffix| end_with?(suffix) ? byteslice(0, bytesize - suffix.bytesize) : dup }
Rt.missing(String, :casecmp?) { |other| downcase == other.downcase }
Rt.missing(String, :each_line) { |&block| lines.each(&block) }
Rt.missing(String, :prepend) { |*texts| replace(texts.join + self) }
Rt.missing(String, :insert) { |at, text| at < 0 ? replace(self[0..at] + text + self[(bytesize + at + 1)..-1]) : replace(self[0, at] + text + self[at..-1]) }
Rt.missing(String, :crypt) { |_salt| raise NotImplementedError, 'String#crypt is not there on mruby: use Digest or Htpasswd' }
Rt.missing(String, :unicode_normalize) { |_form = :nfc| raise NotImplementedError, 'String#unicode_normalize is not there on mruby' }
Rt.missing(String, :to_str) { self }
Rt.missing(String, :+@) { frozen? ? dup : self }
Rt.missing(String, :-@) { frozen? ? self : dup.freeze }
Rt.missing(Symbol, :to_proc) { ->(object, *args) { object.__send__(self, *args) } }
Rt.missing(Symbol, :start_with?) { |*prefixes| to_s.start_with?(*prefixes) }
Rt.missing(Symbol, :end_with?) { |*suffixes| to_s.end_with?(*suffixes) }

Rt.missing(Exception, :full_message) { |*_options| "#{(backtrace || [])[0]}: #{message} (#{self.class})" }

# Clocks and the process id. Methods that start or end processes do not exist.
module Process
  CLOCK_REALTIME = 0
  CLOCK_MONOTONIC = 1

  def self.clock_gettime(clock, unit = :float_second)
    nanoseconds = Rt.call(Rt::CLOCK, clock)
    case unit
    when :nanosecond then nanoseconds
    when :microsecond then nanoseconds / 1000
    when :millisecond then nanoseconds / 1_000_000
    when :second then nanoseconds / 1_000_000_000
    when :float_millisecond then nanoseconds / 1_000_000.0
    else nanoseconds / 1_000_000_000.0
    end
  end

  def self.pid
    Rt.call(Rt::PID)
  end
end

# The environment of the process at its start, read-only. Handlers can read all of it.
ENV = Object.new
class << ENV
  include Enumerable

  def [](name)
    to_h[name]
  end

  def fetch(name, *default, &block)
    to_h.fetch(name, *default, &block)
  end

  def key?(name)
    to_h.key?(name)
  end
  alias include? key?
  alias has_key? key?

  def keys
    to_h.keys
  end

  def values
    to_h.values
  end

  def each(&block)
    to_h.each(&block)
    self
  end

  def slice(*names)
    to_h.slice(*names)
  end

  def to_h
    @variables ||= Rt.call(Rt::ENVIRONMENT).freeze
  end
  alias to_hash to_h

  def []=(name, _value)
    raise FrozenError, "ENV is read-only for handlers: #{name} cannot be set"
  end
  alias store []=

  def delete(name)
    raise FrozenError, "ENV is read-only for handlers: #{name} cannot be deleted"
  end

  def inspect
    'ENV'
  end
  alias to_s inspect
end
