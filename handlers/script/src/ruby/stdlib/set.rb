# Set. Some versions of mruby have one; this is the same for all.
Object.__send__(:remove_const, :Set) if Object.const_defined?(:Set)

class Set
  include Enumerable

  def self.[](*values)
    new(values)
  end

  def initialize(values = nil)
    @hash = {}
    return unless values
    values.each { |value| @hash[block_given? ? yield(value) : value] = true }
  end

  def initialize_copy(other)
    @hash = {}
    other.each { |value| @hash[value] = true }
    self
  end

  def add(value)
    @hash[value] = true
    self
  end
  alias << add

  def add?(value)
    include?(value) ? nil : add(value)
  end

  def delete(value)
    @hash.delete(value)
    self
  end

  def delete?(value)
    include?(value) ? delete(value) : nil
  end

  def include?(value)
    @hash.key?(value)
  end
  alias member? include?
  alias === include?
  alias contain? include?

  def each(&block)
    return to_enum(:each) unless block
    @hash.keys.each(&block)
    self
  end

  def size
    @hash.size
  end
  alias length size
  alias count_all size

  def empty?
    @hash.empty?
  end

  def clear
    @hash.clear
    self
  end

  def merge(*others)
    others.each { |other| other.each { |value| add(value) } }
    self
  end

  def |(other)
    dup.merge(other)
  end
  alias + |
  alias union |

  def &(other)
    made = Set.new
    other.each { |value| made.add(value) if include?(value) }
    made
  end
  alias intersection &

  def -(other)
    made = dup
    other.each { |value| made.delete(value) }
    made
  end
  alias difference -

  def ^(other)
    (self | other) - (self & other)
  end

  def subset?(other)
    size <= other.size && all? { |value| other.include?(value) }
  end
  alias <= subset?

  def superset?(other)
    other.subset?(self)
  end
  alias >= superset?

  def proper_subset?(other)
    size < other.size && subset?(other)
  end
  alias < proper_subset?

  def disjoint?(other)
    none? { |value| other.include?(value) }
  end

  def intersect?(other)
    !disjoint?(other)
  end

  def delete_if
    @hash.keys.each { |value| @hash.delete(value) if yield(value) }
    self
  end
  alias reject! delete_if

  def select!
    delete_if { |value| !yield(value) }
  end
  alias keep_if select!

  def to_a
    @hash.keys
  end

  def to_set
    self
  end

  def ==(other)
    other.is_a?(Set) && size == other.size && subset?(other)
  end
  alias eql? ==

  def hash
    to_a.map { |value| value.hash }.sort.hash
  end

  def inspect
    "#<Set: {#{to_a.map { |value| value.inspect }.join(', ')}}>"
  end
  alias to_s inspect

  def to_json(*)
    to_a.to_json
  end
end

module Enumerable
  def to_set
    Set.new(self)
  end
end
