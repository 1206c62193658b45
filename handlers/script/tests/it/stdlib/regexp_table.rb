# Writes regexp_table.tsv: Ruby code that uses a pattern, and CRuby's result for it as JSON. Run it with the
# reference Ruby: ruby regexp_table.rb > regexp_table.tsv
require "json"

I = Regexp::IGNORECASE
X = Regexp::EXTENDED
M = Regexp::MULTILINE

# Pattern, options, subject.
MATCHES = [
  ["a", 0, "banana"], ["", 0, "ab"], ["b*", 0, "abbc"], ["a+?", 0, "aaa"], ["(a)(b)?", 0, "ac ab"],
  ["^", 0, "a\nb\n"], ["$", 0, "a\nb\n"], ["^.*$", 0, "a\nb\n"], ["^.*$", 0, "a\nb"], ["^\\s*$", 0, "a\n\nb\n"], ["^a|b$", 0, "ab\nab\n"],
  ["\\Aa", 0, "a\na"], ["a\\z", 0, "a\na"], ["a\\Z", 0, "a\na\n"], ["\\A\\s*\\z", 0, " \n"],
  ["a.b", 0, "a\nb axb"], ["a.b", M, "a\nb axb"], ["(?m:a.)b", 0, "a\nb"], ["(?-m:a.)b", M, "a\nb axb"],
  ["AB", I, "xab"], ["a(?i)b|c", 0, "aB C c aC"], ["a(?i:b)c", 0, "aBc aBC"], ["(?i)a(?-i)b", 0, "Ab AB"],
  [" a b # c\n d", X, "abd"], ["a\\ b", X, "a b"], ["[ ]b", X, "a b"], ["a + b", X, "aab"], ["(?x: a b )c", 0, "abc"],
  ["\\h+", 0, "xyz12AFg"], ["\\H+", 0, "12xyz"], ["\\d+", 0, "a12b3"], ["\\D+", 0, "a12b3"], ["\\w+", 0, "foo_1 bar-2"], ["\\W+", 0, "foo_1 bar-2"],
  ["\\s+", 0, "a \t\n b\v"], ["\\S+", 0, "a b"], ["\\R", 0, "a\r\nb\nc\r"], ["\\bfoo\\b", 0, "foo foobar foo"], ["\\Boo", 0, "foo oo"],
  ["(?<y>\\d+)-(?<m>\\d+)", 0, "on 2024-05"], ["(?<q>['\"]).*?\\k<q>", 0, "say 'a\"b' ok"], ["(.)\\1", 0, "abccd"], ["(?'n'a)\\k'n'", 0, "aa"],
  ["(a)(?<n>b)", 0, "ab"], ["(?<a>.)(?<a>.)", 0, "xy"], ["(a|b)\\k<-1>", 0, "abb"],
  ["(?>a+)ab", 0, "aaab"], ["a++b", 0, "aaab"], ["a*+a", 0, "aaa"], ["a?+a", 0, "aa a"], ["a{2}+b", 0, "aaaab"], ["a{,2}", 0, "aaa"], ["a{2,}", 0, "a aa aaa"], ["a{1,2}?", 0, "aaa"],
  ["a{2}?b", 0, "aab b"], ["x{", 0, "x{"], ["x{a}", 0, "x{a}"], ["x{,}", 0, "x{,}"], ["a**", 0, "aaa"], ["(?:a|b)+?c", 0, "abc"],
  ["foo(?=bar)", 0, "foobaz foobar"], ["foo(?!bar)", 0, "foobar foobaz"], ["(?<=\\$)\\d+", 0, "$12 13"], ["(?<!\\$)\\b\\d+", 0, "$12 13"], ["(?<=a|bc)d", 0, "ad bcd cd"],
  ["[a-c]+", 0, "xabcd"], ["[^a-c]+", 0, "xabcd"], ["[]a]+", 0, "]a"], ["[a\\]]+", 0, "]a"], ["[a-]+", 0, "a-b"], ["[-a]+", 0, "a-b"], ["[+--]+", 0, "+,-."],
  ["[a-z&&[^aeiou]]+", 0, "hello"], ["[a[bc]]+", 0, "abcd"], ["[\\w.]+@[\\w.]+", 0, "to me@example.org now"], ["[^\\s,]+", 0, "a, b c"], ["[\\d\\-]+", 0, "1-2"],
  ["[[:alpha:]]+", 0, "abc1é"], ["[[:digit:][:space:]]+", 0, "a1 2b"], ["[[:^alpha:]]+", 0, "ab12"], ["[[:punct:]]+", 0, "a,$+b"], ["[[:upper:]][[:lower:]]", 0, "xAb"], ["[[:xdigit:]]+", 0, "xyzAF09"], ["[[:word:]]+", 0, "a_1 é"],
  ["\\p{Alpha}+", 0, "abc1"], ["\\p{L}+", 0, "aé1"], ["\\P{L}+", 0, "aé12"], ["\\p{^L}+", 0, "a12"], ["\\p{Han}", 0, "a漢"], ["\\p{Lu}", 0, "aB"], ["\\p{Digit}+", 0, "a12"],
  ["\\w+", 0, "é a"], [".", 0, "é漢"], ["é+", 0, "caféé"], ["É", I, "café"], ["[à-ü]", 0, "aé"], ["\\u00e9", 0, "é"], ["\\u{e9}", 0, "é"], ["\\xC3\\xA9", 0, "é"], ["\\x41\\101", 0, "AA"],
  ["\\t|\\n|\\e|\\0", 0, "a\tb\nc\e\0"], ["\\/\\.\\-\\@\\y", 0, "/.-@y"], ["a\\Kb", 0, "ab"], ["(?#note)a(?#x)*", 0, "aa"], ["(a(b(c)))", 0, "abc"], ["(?:a)(b)", 0, "ab"], ["()", 0, "a"], ["(a)|(b)", 0, "b"],
  ["(?<p>\\((?:[^()]|\\g<p>)*\\))", 0, "x(a(b)c)y"], ["(?<d>\\d)\\g<d>", 0, "a12"], ["(a)?(?(1)b|c)", 0, "ab c"], ["\\G\\d", 0, "12a3"],
  ["#", 0, "a#b"], ["a&&b", 0, "a&&b"], ["a~b", 0, "a~b"], ["[a&b]+", 0, "a&b"], ["[~]", 0, "~"], ["[a||b]+", 0, "a|b"], ["<a>", 0, "<a>"], ["\\<a\\>", 0, "<a>"], ["[#]", X, "#"],
  ["\\cA", 0, "\u0001"], ["\\C-a", 0, "\u0001"], ["[\\b]", 0, "\b"], ["[\\n\\t]+", 0, "a\n\tb"], ["[[:blank:]]+", 0, "a \tb"], ["[[:cntrl:]]", 0, "a\u0001"], ["[[:graph:]]+", 0, "ab c"], ["[[:print:]]+", 0, "ab c\n"],
  ["^(?:[a-z0-9]+(?:\\.[a-z0-9]+)*)@([a-z]+)$", I, "Joe.X@Example"], ["(\\d{1,3})\\.(\\d{1,3})", 0, "10.255"], ["\\A/users/(?<id>\\d+)(?:/(?<tab>\\w+))?\\z", 0, "/users/42/posts"], ["\\A/users/(?<id>\\d+)(?:/(?<tab>\\w+))?\\z", 0, "/users/42"],
  ["\\A(?:Bearer|Token)\\s+(.+)\\z", I, "bearer abc"], ["([^&=]+)=([^&]*)", 0, "a=1&b=&c=3"], ["[,;]\\s*", 0, "a, b;c,"], ["\\s*,\\s*", 0, " a , b ,c "]
].freeze

BAD = ["*", "(", ")", "a{2,1}[", "[b-a]", "\\1x(", "(?<n>a)\\1", "(?<>a)", "[[:foo:]]", "\\p{Foo}", "(?z)", "\\k<none>", "\\xE9", "[", "(?<=a*)b", "[]"].freeze

OPERATIONS = [
  "%<s>s =~ %<r>s", "%<r>s.match(%<s>s).to_a", "%<s>s.scan(%<r>s)", "%<s>s.gsub(%<r>s, '<\\\\0>')", "%<s>s.split(%<r>s)"
].freeze

ROWS = [
  "'a1b2'.gsub(/\\d/) { |d| (d.to_i + 1).to_s }", "'hello'.gsub(/[el]/, 'e' => '3', 'l' => '1')", "'hello'.gsub('l', 'l' => 'L')", "'hello'.sub(/l/) { $&.upcase }",
  "'John Smith'.sub(/(?<f>\\w+) (?<l>\\w+)/, '\\k<l> \\k<f>')", "'ab'.gsub(/(a)(b)/, '\\2\\1\\3')", "'ab'.sub(/b/, '[\\`|\\&|\\\\\\\\|\\']')", "'a.b'.gsub('.', '-')", "'aaa'.gsub(/a*/, 'x')", "'abc'.gsub(/x*/, '-')", "'abc'.gsub(/b/, '\\\\z')",
  "s = 'abc'; [s.sub!(/x/, 'y'), s.sub!(/b/, 'y'), s]", "s = 'abab'; [s.gsub!(/z/, ''), s.gsub!(/b/) { |x| x.upcase }, s]", "s = 'a.a'; s.gsub!('.', '_'); s",
  "'foobar'[/o+/]", "'foobar'[/(o+)(b)/, 2]", "'foobar'[/(?<x>b)/, 'x']", "'foobar'[/(?<x>b)/, :x]", "'foobar'[/z/]", "'foobar'.slice(/o./)", "s = 'foobar'; s[/o+/] = '0'; s", "s = 'foobar'; s[/(f)(o)/, 2] = 'x'; s", "s = 'foobar'; [s.slice!(/o+/), s]", "s = 'foobar'; [s.slice!(/z/), s]",
  "'a,b;c'.partition(/[,;]/)", "'a,b;c'.rpartition(/[,;]/)", "'abc'.partition(/x/)", "'abc'.rpartition(/x/)", "'foobar'.index(/o/)", "'foobar'.index(/o/, 2)", "'foobar'.index(/o/, -3)", "'foobar'.rindex(/o/)", "'foobar'.rindex(/o/, 1)", "'foobar'.rindex(/o+/)", "'foobar'.index(/z/)", "'foobar'.start_with?(/fo+/)", "'foobar'.start_with?(/o/)", "'foobar'.start_with?('x', 'foo')",
  "'a1b2c3'.scan(/([a-z])(\\d)/)", "r = []; 'a1b2'.scan(/\\d/) { |d| r << [d, $~.begin(0)] }; r", "'cat'.scan(/./)", "'cat'.scan('a')", "'abc'.scan(/(?=(.))/)",
  "'a b  c'.split(/ /)", "'a b  c'.split(/\\s+/)", "'a1b2c'.split(/(\\d)/)", "'abc'.split(//)", "'abc'.split(//, 2)", "'a,b,c'.split(/,/, 2)", "'a,b,,'.split(/,/)", "'a,b,,'.split(/,/, -1)", "',a'.split(/,/)", "''.split(/,/)", "'a1b2c3d'.split(/(\\d)/, 3)", "' a b '.split(/ /)", "'héé'.split(//)",
  "case 'v1.2' when /\\Av(\\d+)/ then $1 else 0 end", "case :sym when /y/ then 1 else 0 end", "case 5 when /5/ then 1 else 0 end", "case nil when /x/ then 1 else 0 end", "[/a/ === 'cat', /a/ === :cat, /a/ === nil]", "%w[apple bob cat].grep(/a/)", "%w[apple bob cat].grep(/(a.)/) { $1 }", "%w[apple bob].reject { |x| x =~ /^a/ }", "%w[a b].select { |x| x.match?(/a/) }",
  "'abc' =~ /(b)(x)?/; [$~.to_a, $1, $2, $3, $&, $`, $', $+]", "'abc' =~ /x/; [$~, $1, $&]", "'a' =~ /(a)/; 'b' =~ /b/; $1", "'abc'.match?(/b/); $~", "/b/.match('abc') { |m| m.begin(0) }", "/b/.match('abcb', 2).begin(0)", "/b/.match(nil)", "(/b/ =~ nil)", "('abc' !~ /b/)", "(:abc =~ /c/)", "nil =~ /x/", "Regexp.last_match.nil?", "'ab' =~ /(.)(.)/; [Regexp.last_match(1), Regexp.last_match(2)]",
  "m = /(?<a>.)(?<b>.)?/.match('x'); [m[:a], m['b'], m.names, m.captures, m.named_captures, m.size]", "m = /(.)(.)/.match('xyz'); [m.pre_match, m.post_match, m.begin(1), m.end(2), m.offset(2), m.values_at(0, 2), m.to_s, m[-1], m[5], m[0, 2], m[1..2]]", "/(?<a>.)/.match('x')[:zz]", "m = /(.)(.)?/.match('a'); m.inspect", "m = /(?<n>.)/.match('a'); m.inspect",
  "Regexp.escape('a.b*c [x] {y} #\\n-^$')", "Regexp.union('a.b', /c|d/i).source", "Regexp.union(%w[a b]).source", "Regexp.union.source", "/a b/mix.to_s", "/ab/.to_s", "/a/i.inspect", "/a\\/b/.inspect", "Regexp.new('a/b').inspect", "/a/mi.options", "/a/.source", "Regexp.new('a', true).options", "Regexp.new(/a/i) == /a/i", "/a/ == /a/i", "/(?<x>a)(?<y>b)/.names", "/(?<x>a)(?<y>b)/.named_captures", "x = 'b.'; /a\#{Regexp.escape(x)}/.match?('ab.')", "r = /b/i; /a\#{r}/.match?('aB')", "/a/.hash == /a/.hash", "{ /a/ => 1 }[/a/]", "3.times.map { |i| /\#{i}/o.source }", "/a/.casefold?", "'x'.gsub(/x/, 'x' => nil)", "'Content-Type'.gsub(/-/, '_').upcase", "'HTTP_X_FOO'.sub(/\\AHTTP_/, '').split('_').map(&:capitalize).join('-')", "'a%20b'.gsub(/%(\\h\\h)/) { $1.hex.chr }", "'CamelCaseWord'.gsub(/([a-z])([A-Z])/, '\\1_\\2').downcase", "'1234567'.gsub(/(\\d)(?=(\\d{3})+$)/, '\\1,')", "'a-b_c'.split(/[-_]/).map(&:capitalize).join"
].freeze

def rows
  all = MATCHES.flat_map do |pattern, options, subject|
    regexp = "Regexp.new(#{pattern.inspect}, #{options})"
    operations = subject.ascii_only? ? OPERATIONS : OPERATIONS.drop(1)
    operations.map { |operation| format(operation, r: regexp, s: subject.inspect) }
  end
  all + BAD.map { |pattern| "Regexp.new(#{pattern.inspect}).source" } + ROWS
end

$stderr = File.open(File::NULL, "w")
rows.each do |row|
  value = begin
    JSON.generate([eval("$~ = nil; #{row}")]) # rubocop:disable Security/Eval, Style/EvalWithLocation
  rescue StandardError => e
    e.class.to_s
  end
  puts "#{row}\t#{value}"
end
