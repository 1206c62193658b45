//! Tests of core methods, of methods that handlers cannot use, and of ENV and Logger.

use super::vm::{assert_rows, load};
use std::path::Path;

/// Methods that handlers commonly use.
const NAMES: &[(&str, &str)] = &[
    (
        "Hash",
        "dig slice except transform_keys transform_values compact any? all? sum filter_map sort_by to_a key values_at fetch merge select reject each_with_object group_by partition min_by sum count find map to_h invert delete_if key? fetch_values",
    ),
    (
        "Array",
        "dig sum take first last flatten compact uniq each_slice each_with_index each_with_object zip group_by partition tally filter_map flat_map inject sort_by min_by max_by rotate sample shuffle combination product transpose pack include? intersect? to_h any? all? none? each_cons cycle",
    ),
    (
        "String",
        "strip lstrip rstrip chomp chop start_with? end_with? delete_prefix delete_suffix tr delete squeeze count center ljust rjust upcase downcase capitalize swapcase unpack1 unpack bytes chars lines each_char each_byte each_line hex oct ord to_i to_f to_sym intern casecmp casecmp? force_encoding encode encoding b scrub valid_encoding? ascii_only? byteslice bytesize getbyte setbyte insert prepend replace reverse succ % * + <=> between? freeze dup partition",
    ),
    (
        "Integer",
        "digits pred succ times upto downto step clamp positive? negative? zero? even? odd? fdiv to_s chr ord floor ceil round abs divmod pow",
    ),
    ("Float", "round floor ceil to_i nan? infinite? finite? positive? negative? zero? divmod abs clamp"),
    ("Symbol", "to_proc to_s length start_with? end_with? <=> upcase =~ match?"),
    (
        "Object",
        "then tap itself public_send send respond_to? instance_variable_get instance_variable_set is_a? nil? freeze frozen? dup clone method extend catch throw loop format sprintf rand Integer Float String Array require require_relative __dir__ raise puts print p warn lambda proc block_given? caller instance_of? singleton_class define_singleton_method methods object_id hash to_enum enum_for",
    ),
    (
        "Module",
        "attr_accessor define_method alias_method include prepend extend const_get const_set const_defined? instance_methods method_defined? module_function class_eval instance_method remove_method undef_method",
    ),
    ("Exception", "message backtrace full_message"),
];

#[test]
fn common_methods_exist() {
    let mut code = String::from("missing = []\n");
    for (class, names) in NAMES {
        code.push_str(&format!(
            "%w[{names}].each {{ |n| missing << \"{class}#\\#{{n}}\" unless {class}.method_defined?(n.to_sym) || {class}.instance_methods.include?(n.to_sym) }}\n"
        ).replace("\\#", "#"));
    }
    code.push_str("Rt.call(Rt::LOG, missing.inspect)\n");
    let Some(lines) = load(&code, Path::new("handlers/names.rb")) else { return };
    assert_eq!(lines.unwrap(), ["[]"]);
}

#[test]
fn gaps_are_filled() {
    assert_rows(&[
        ("{a: [{b: 1}]}.dig(:a, 0, :b)", "1"),
        ("{a: nil}.dig(:a, :b)", "nil"),
        ("catch(:done) { [1, 2].each { |x| throw :done, x if x == 2 }; 9 }", "2"),
        ("catch(:a) { catch(:b) { throw :a, 1 }; 2 }", "1"),
        ("catch(:a) { begin; throw :a, 1; rescue => e; 5; end }", "1"),
        ("[1, 2].sum { |x| x * 2 }", "6"),
        ("%w[a b a].tally", r#"{"a"=>2, "b"=>1}"#),
        ("[1, 2, 3].filter_map { |x| x * 2 if x > 1 }", "[4, 6]"),
        ("{a: 1}.transform_values { |v| v + 1 }", "{:a=>2}"),
        ("{a: 1, b: 2}.except(:a)", "{:b=>2}"),
        ("15.clamp(1, 10)", "10"),
        ("1.public_send(:+, 2)", "3"),
        ("'abc'.unpack1('a2')", r#""ab""#),
        (r#""a\xff".scrub('?')"#, r#""a?""#),
        (r#"["a", "\xff"].map { |s| s.valid_encoding? }"#, "[true, false]"),
        ("120.digits", "[0, 2, 1]"),
        ("Process.clock_gettime(Process::CLOCK_MONOTONIC) >= 0", "true"),
        ("Process.pid > 1", "true"),
    ]);
}

#[test]
fn the_environment_can_be_read() {
    assert_rows(&[
        ("ENV['PATH'] == ENV.fetch('PATH')", "true"),
        ("ENV['FIREBRICK_NO_SUCH_VARIABLE']", "nil"),
        ("ENV.fetch('FIREBRICK_NO_SUCH_VARIABLE', 'x')", r#""x""#),
        ("ENV.key?('PATH')", "true"),
        ("ENV.to_h.class", "Hash"),
        ("ENV['A'] = 'b'", "FrozenError: ENV is read-only for handlers: A cannot be set"),
    ]);
}

#[test]
fn blocking_and_exiting_methods_do_not_exist() {
    for (code, why) in [
        ("IO.read('x')", "uninitialized constant IO: handlers have no files, sockets, processes or threads"),
        ("File.open('x')", "uninitialized constant File: handlers have no"),
        ("TCPSocket.new('h', 1)", "uninitialized constant TCPSocket: handlers have no"),
        ("ObjectSpace.each_object {}", "uninitialized constant ObjectSpace: handlers have no"),
        ("Thread.new {}", "uninitialized constant Thread: handlers have no"),
        ("system('true')", "undefined method 'system'"),
        ("`true`", "undefined method '`'"),
        ("open('x')", "undefined method 'open'"),
        ("exec('true')", "undefined method 'exec'"),
        ("fork", "undefined method 'fork'"),
        ("Process.kill(9, 1)", "undefined method 'kill'"),
        ("Nowhere", "uninitialized constant Nowhere ("),
    ] {
        let Some(loaded) = load(code, Path::new("handlers/escape.rb")) else { return };
        let error = loaded.unwrap_err();
        assert!(error.contains(why), "{code}: {error}");
    }
}

#[test]
fn output_goes_to_the_log() {
    let code = "
      puts 'one', ['two']
      p 3
      warn 'four'
      $stderr.puts 'five'
      log = Logger.new($stderr, progname: 'app')
      log.info('six')
      log.debug { 'seven' }
      log.level = :warn
      log.info('never')
      log.error(RuntimeError.new('eight'))
      log.formatter = ->(severity, _time, _name, message) { \"#{severity}|#{message}\" }
      log.fatal('nine')
      io = StringIO.new
      Logger.new(io).warn('ten')
      puts io.string.match?(/\\AW, \\[\\d{4}-\\d\\d-\\d\\dT[\\d:.]+\\]  WARN -- : ten\\n\\z/)
    ";
    let Some(lines) = load(code, Path::new("handlers/log.rb")) else { return };
    let expected = [
        "one",
        "two",
        "3",
        "four",
        "five",
        "INFO -- app: six",
        "DEBUG -- app: seven",
        "ERROR -- app: eight (RuntimeError)",
        "FATAL|nine",
        "true",
    ];
    assert_eq!(lines.unwrap(), expected);
}
