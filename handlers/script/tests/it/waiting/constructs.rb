# Each row has a name, code that calls `pause` inside a construct, and the code's expected result
# if every `pause` returns its argument. Each row is a request in a new VM.
class Item
  include Comparable
  attr_reader :size

  def initialize(size)
    @size = size
  end

  def <=>(other)
    pause(size) <=> other.size
  end

  def ==(other)
    pause(size) == other.size
  end

  def ===(other)
    pause(true) && other.is_a?(Integer)
  end

  def [](index)
    pause(index)
  end

  def []=(index, value)
    @size = pause(index) + value
  end

  def -@
    pause(-size)
  end

  def doubled
    pause(size * 2)
  end

  def +(other)
    pause(size) + other
  end

  def coerce(other)
    pause([Item.new(other), size])
  end

  def to_proc
    pause(lambda { |one| one + 1 })
  end

  def call(*args)
    pause(args.size)
  end

  def method_missing(name, *args)
    pause(name)
  end

  def respond_to_missing?(name, private)
    pause(true)
  end
end

class Slow
  def each
    yield pause(1)
    yield pause(2)
  end
  include Enumerable
end

class Spelled
  def to_s
    pause("spelled")
  end

  def inspect
    pause("inspected")
  end

  def to_str
    pause("spelled")
  end

  def to_ary
    pause([1, 2])
  end

  def hash
    pause(7)
  end

  def eql?(other)
    pause(true)
  end

  def ==(other)
    pause(true)
  end

  def exception(*)
    pause(RuntimeError.new("made"))
  end

  def initialize_copy(other)
    pause(1)
  end
end

class Added
  def self.inherited(other)
    pause(1)
  end

  def self.method_added(name)
    pause(1)
  end

  def self.const_missing(name)
    pause(name)
  end
end

module Mixed
  def self.included(other)
    pause(1)
  end

  def self.extended(other)
    pause(1)
  end
end

class Defined
  define_method(:slow) { |one| pause(one) }
  def with_default(one = pause(3))
    one
  end

  def with_keyword(one: pause(3))
    one
  end

  def twice
    yield(pause(1)) + yield(pause(2))
  end

  def slow_super
    pause(1)
  end
end

class Derived < Defined
  def slow_super
    super + 1
  end
end

CALLED = "Called by Ruby itself"

ROWS = [
  ["Loops", [
    ["while, until", "i = 0; i = pause(i + 1) while i < 3; i", 3],
    ["loop with break", "loop { break pause(4) }", 4],
    ["Integer#times, upto, downto, step", "s = 0; 2.times { s += pause(1) }; 1.upto(2) { s += pause(1) }; 2.downto(1) { s += pause(1) }; 0.step(2, 2) { s += pause(1) }; s", 8],
    ["for", "s = 0; for i in [1, 2] do s += pause(i) end; s", 3],
    ["Array#each, each_with_index, reverse_each", "s = 0; [1].each { |x| s += pause(x) }; [1].each_with_index { |x, i| s += pause(x) }; [1].reverse_each { |x| s += pause(x) }; s", 3],
    ["Array#map, map!, collect", "[1, 2].map { |x| pause(x) } + [3].map! { |x| pause(x) }", [1, 2, 3]],
    ["Array#select, reject, delete_if", "[1, 2].select { |x| pause(x) > 1 } + [1, 2].reject { |x| pause(x) > 1 } + [1, 2].delete_if { |x| pause(x) > 1 }", [2, 1, 1]],
    ["Array#sort, sort!, sort_by, min_by, max_by with a block", "[[2, 1].sort { |a, b| pause(a) <=> b }, [2, 1].sort_by { |a| pause(a) }, [2, 1].min_by { |a| pause(a) }]", [[1, 2], [1, 2], 1]],
    ["Array#index, find_index, count with a block", "[[1, 2].index { |x| pause(x) == 2 }, [1, 2].count { |x| pause(x) == 2 }]", [1, 1]],
    ["Array#uniq with a block", "[1, 2].uniq { |x| pause(1) }", [1]],
    ["Array#fetch, fill, bsearch with a block", "[[].fetch(1) { |i| pause(i) }, [0, 0].fill { |i| pause(i) }, [1, 2].bsearch { |x| pause(x) >= 2 }]", [1, [0, 1], 2]],
    ["Array#combination, permutation", "s = 0; [1, 2].combination(2) { |a| s += pause(a.size) }; [1, 2].permutation(2) { |a| s += pause(1) }; s", 4],
    ["Array.new(n) { }", "Array.new(2) { |i| pause(i) }", [0, 1]],
    ["Hash#each, map, each_value", "s = 0; { 1 => 2 }.each { |k, v| s += pause(v) }; { 1 => 2 }.each_value { |v| s += pause(v) }; s", 4],
    ["Hash#select, reject, delete_if, sort_by", "[{ 1 => 2 }.select { |k, v| pause(v) }.size, { 1 => 2 }.reject { |k, v| pause(v) }.size]", [1, 0]],
    ["Hash#fetch, delete, merge with a block", "[{}.fetch(1) { |k| pause(k) }, {}.delete(2) { |k| pause(k) }, { 1 => 1 }.merge({ 1 => 2 }) { |k, a, b| pause(a + b) }]", [1, 2, { 1 => 3 }]],
    ["Range#each, map, each_slice", "s = 0; (1..2).each { |x| s += pause(x) }; (1..3).each_slice(2) { |x| s += pause(x.size) }; s + (1..2).map { |x| pause(x) }.size", 8],
    ["String#each_char, each_byte, each_line", "s = []; 'ab'.each_char { |c| s << pause(c) }; 'a'.each_byte { |c| s << pause(c) }; \"a\\nb\".each_line { |l| s << pause(l) }; s", ["a", "b", 97, "a\n", "b"]],
    ["String#gsub, sub with a block", "'aa'.gsub('a') { |x| pause('b') } + 'ab'.sub('a') { |x| pause('c') }", "bbcb"],
    ["Struct#each", "s = 0; Struct.new(:a, :b).new(1, 2).each { |x| s += pause(x) }; s", 3],
    ["Enumerable#inject, group_by, partition, each_slice, zip", "[[1, 2].inject { |a, b| pause(a + b) }, [1].group_by { |x| pause(x) }, [1, 2].partition { |x| pause(x) > 1 }]", [3, { 1 => [1] }, [[2], [1]]]],
    ["Enumerable over your own each", "Slow.new.map { |x| pause(x) } + [Slow.new.include?(2), Slow.new.first]", [1, 2, true, 1]],
    ["Enumerator::Lazy", "(1..3).lazy.map { |x| pause(x) }.select { |x| x > 1 }.first(1)", [2]],
    ["Enumerator#next", "e = [1, 2].map { |x| x }.each; e.next; pause(e.next)", 2],
    ["Enumerator.new { }, next and each", "e = Enumerator.new { |y| y << pause(1); y << pause(2) }; [e.next, e.next, e.to_a]", [1, 2, [1, 2]]],
  ]],
  ["Methods and blocks", [
    ["a method, a block, yield", "Defined.new.twice { |x| pause(x) }", 3],
    ["a proc, a lambda: call, (), [], yield", "l = lambda { |x| pause(x) }; [l.call(1), l.(2), l[3], Proc.new { pause(4) }.call]", [1, 2, 3, 4]],
    ["define_method", "Defined.new.slow(1)", 1],
    ["send, __send__", "Defined.new.send(:slow, 1) + Defined.new.__send__(:slow, 1)", 2],
    ["public_send", "Defined.new.public_send(:slow, 1)", 1],
    ["Method#call, UnboundMethod#bind", "[Defined.new.method(:slow).call(1), Defined.instance_method(:slow).bind(Defined.new).call(2)]", [1, 2]],
    ["Method#to_proc: map(&object.method(:name))", "[1, 2].map(&Defined.new.method(:slow))", [1, 2]],
    ["Symbol#to_proc: map(&:name)", "[Item.new(2)].map(&:doubled)", [4]],
    ["an object's own to_proc: map(&object)", "[1].map(&Item.new(2))", [2]],
    ["Proc#curry, >>, <<", "lambda { |a, b| pause(a + b) }.curry[1][2]", 3],
    ["default and keyword arguments", "Defined.new.with_default + Defined.new.with_keyword", 6],
    ["super", "Derived.new.slow_super", 2],
    ["method_missing", "Item.new(1).anything", :anything],
    ["initialize", "Class.new { def initialize; @a = pause(1); end; attr_reader :a }.new.a", 1],
    ["attribute and index assignment: a[i] = x", "a = Item.new(1); a[1] = 2; a.size + a[4]", 7],
    ["tap, then, instance_eval, instance_exec", "[1.tap { |x| pause(x) }, Object.new.instance_eval { pause(2) }, Object.new.instance_exec(3) { |x| pause(x) }]", [1, 2, 3]],
    ["class_eval, class_exec with a block", "Defined.class_eval { pause(1) }", 1],
    ["the body of class ... end and module ... end", "class Bodied; VALUE = pause(1); end; Bodied::VALUE", 1],
    ["eval of a String", "eval('pause(1)')", 1],
    ["catch and throw", "catch(:a) { pause(1); throw :a, 2 }", 2],
  ]],
  ["Operators", [
    ["your own ==, <=>, +, -@", "[Item.new(1) == Item.new(1), Item.new(1) + 1, -Item.new(1)]", [true, 2, -1]],
    ["Comparable: <, between?, clamp", "[Item.new(1) < Item.new(2), Item.new(2).between?(Item.new(1), Item.new(3))]", [true, true]],
    ["!= of your own ==", "Item.new(1) != Item.new(2)", true],
    ["=== in case and when", "case 1 when Item.new(1) then :yes end", :yes],
    ["sort, min, max of your own <=>", "[[Item.new(2), Item.new(1)].sort.first.size, [Item.new(2), Item.new(1)].min.size]", [1, 1]],
    ["Array#== of elements with your own ==", "[Item.new(1)] == [Item.new(1)]", true],
    ["Array#include?, index, delete, - of your own ==", "[Item.new(1)].include?(Item.new(1))", true],
    ["&&, ||, ||=, ?:, if, unless, case", "a = nil; a ||= pause(1); b = pause(nil) || (pause(true) ? 2 : 3); [a, b]", [1, 2]],
    ["*splat and **keywords of what was waited for", "[*pause([1, 2]), *pause([3])]", [1, 2, 3]],
    ["\"\#{ }\" around a call that waits", "\"a\#{pause(1)}b\"", "a1b"],
  ]],
  ["Exceptions", [
    ["begin, rescue, else, ensure", "begin; pause(1); raise 'x'; rescue => e; pause(2); ensure; pause(3); end", 2],
    ["ensure while an exception passes", "begin; begin; raise 'x'; ensure; pause(1); end; rescue; pause(2); end", 2],
    ["retry", "n = 0; begin; n += 1; raise 'x' if pause(n) < 2; n; rescue; retry; end", 2],
    ["rescue with a modifier", "(raise 'x' rescue pause(1))", 1],
    ["return, next, break through a wait", "[1, 2].each { |x| next if pause(x) == 1; break pause(x) }", 2],
    ["ensure left by return", "lambda { begin; return 1; ensure; pause(2); end }.call", 1],
  ]],
  ["Fibers and tasks", [
    ["your own Fiber", "f = Fiber.new { |x| Fiber.yield(pause(x)); pause(2) }; [f.resume(1), f.resume]", [1, 2]],
    ["a Fiber within a Fiber", "Fiber.new { Fiber.new { pause(1) }.resume + pause(1) }.resume", 2],
    ["task { }.join", "task { pause(1) }.join", 1],
    ["Channel#shift", "c = Channel.new; task { c << pause(1) }; c.shift", 1],
  ]],
  [CALLED, [
    ["Hash.new { } for a missing key", "Hash.new { |h, k| pause(k) }[1]", 1],
    ["a Hash's default_proc by Hash#[] in a method of Ruby", "Hash.new { |h, k| pause(k) }.values_at(1)", [1]],
    ["to_s within \"\#{ }\"", "\"\#{Spelled.new}\"", "spelled"],
    ["to_s by Array#join", "[Spelled.new].join(',')", "spelled"],
    ["inspect by Array#inspect, p", "[Spelled.new].inspect", "[inspected]"],
    ["to_str by String#+", "'a' + Spelled.new", "aspelled"],
    ["to_ary by a, b = object", "a, b = Spelled.new; b", 2],
    ["to_s by format('%s')", "format('%s', Spelled.new)", "spelled"],
    ["hash and eql? of a Hash's key", "h = {}; 20.times { h[Spelled.new] = 1 }; h.size", 1],
    ["const_missing", "Added::NOWHERE", :NOWHERE],
    ["inherited", "Class.new(Added); 1", 1],
    ["method_added", "Added.class_eval('def added; end'); 1", 1],
    ["included", "Class.new.include(Mixed); 1", 1],
    ["extended", "Object.new.extend(Mixed); 1", 1],
    ["initialize_copy by dup, clone", "Spelled.new.dup; 1", 1],
    ["exception by raise", "begin; raise Spelled.new; rescue RuntimeError => e; e.message; end", "made"],
    ["respond_to_missing? by respond_to?", "Item.new(1).respond_to?(:anything)", true],
    ["coerce by Integer#+", "1 + Item.new(2)", 3],
    ["Class.new { }, Module.new { }: their bodies", "Class.new { pause(1) }; Module.new { pause(1) }; 1", 1],
    ["Struct.new { }: its body", "Struct.new(:a) { pause(1) }; 1", 1],
    ["ObjectSpace.each_object { }", "ObjectSpace.each_object(Class) { |c| pause(1); break 1 }", 1],
  ]],
]

module Kernel
  def pause(value)
    $begun += 1
    sleep 0
    $ended += 1
    value
  end
end

# One word for the outcome, and the message.
def outcome(group, code, wanted)
  said = tried(code, wanted)
  # CRuby would call it; mruby does not.
  group == CALLED && $begun == 0 && said[0] == "odd" ? ["unused", ""] : said
end

def tried(code, wanted)
  $begun = $ended = 0
  got = eval(code)
  return ["odd", "gives #{got.inspect} instead of #{wanted.inspect}"] unless got == wanted
  return ["odd", "never came to its wait"] if $begun == 0
  return ["odd", "did not come back from a wait"] unless $begun == $ended
  ["waits", ""]
rescue FiberError => e
  ["refused", e.message]
rescue NoMethodError, NameError => e
  ["absent", e.message]
rescue StandardError, SystemStackError, ScriptError => e
  ["odd", "#{e.message} (#{e.class})"]
end

FLAT = ROWS.inject([]) { |all, (group, rows)| all + rows.map { |row| [group, *row] } }

# /7 tries row 7; /7/name returns its name.
lambda do |env|
  number, what = env["PATH_INFO"].split("/")[1, 2]
  row = FLAT[number.to_i]
  return [404, {}, []] unless row
  group, name, code, wanted = row
  said = what ? [group, name, code] : outcome(group, code, wanted)
  [200, {}, [said.join("\t").gsub("\n", " ")]]
end
