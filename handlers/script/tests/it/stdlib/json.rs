//! JSON.

use super::vm::{assert_rows, assert_rows_after};

#[test]
fn values_are_written() {
    assert_rows(&[
        (r#"JSON.generate({foo: "bar"})"#, r#""{\"foo\":\"bar\"}""#),
        (r"JSON.generate([1, -2, 1.5, nil, true, false, :sym])", r#""[1,-2,1.5,null,true,false,\"sym\"]""#),
        (r"JSON.generate({1 => 2, nil => 3, 1.5 => 4})", r#""{\"1\":2,\"\":3,\"1.5\":4}""#),
        (r"JSON.generate(1e20)", r#""1.0e+20""#),
        (r#"JSON.generate("a\"\\\n\u00e9\x01")"#, r#""\"a\\\"\\\\\\n\xc3\xa9\\u0001\"""#),
        (r"JSON.generate(nil)", r#""null""#),
        (r"{a: [1]}.to_json", r#""{\"a\":[1]}""#),
        (r"[nil, 1, 'x', :y, true].map { |v| v.to_json }", r#"["null", "1", "\"x\"", "\"y\"", "true"]"#),
        (
            r"JSON.pretty_generate({a: [], b: {}, c: [1, {d: 2}]})",
            r#""{\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    1,\n    {\n      \"d\": 2\n    }\n  ]\n}""#,
        ),
        (r"JSON.dump([1])", r#""[1]""#),
        (r"JSON[[1]]", r#""[1]""#),
    ]);
}

#[test]
fn other_objects_are_converted_by_to_json() {
    let setup = "class Point; def to_json(*a); {x: 1}.to_json(*a); end; end\nclass Plain; def to_s; 'plain'; end; end\n";
    assert_rows_after(
        setup,
        &[
            (r"JSON.generate([Point.new, {p: Point.new}])", r#""[{\"x\":1},{\"p\":{\"x\":1}}]""#),
            (r"JSON.generate([Plain.new, :json, {json: 'x'}])", r#""[\"plain\",\"json\",{\"json\":\"x\"}]""#),
            (r"JSON.generate(1..2)", r#""\"1..2\"""#),
        ],
    );
}

#[test]
fn invalid_json_is_rejected() {
    assert_rows(&[
        ("JSON.generate(0.0 / 0)", r"JSON::GeneratorError: NaN not allowed in JSON"),
        ("JSON.generate([1.0 / 0])", r"JSON::GeneratorError: Infinity not allowed in JSON"),
        (
            r#"JSON.generate("\xff")"#,
            r"JSON::GeneratorError: source sequence is illegal/malformed utf-8: \xff",
        ),
        (
            "a = []; a << a; JSON.generate(a).size",
            "JSON::NestingError: nesting of more than 99 is too deep: value is nested too deeply",
        ),
        ("JSON.parse('[1,')", "JSON::ParserError: EOF while parsing a value at line 1 column 3: [1,"),
        (
            r#"JSON.parse("{\n \"a\": x}")"#,
            r#"JSON::ParserError: expected value at line 2 column 7:  "a": x}"#,
        ),
        ("JSON.parse('')", "JSON::ParserError: EOF while parsing a value at line 1 column 0"),
        ("JSON.parse(nil)", "TypeError: no implicit conversion of nil into String"),
        ("JSON.parse('[' * 101 + ']' * 101)", "JSON::NestingError: nesting of 101 is too deep"),
        ("JSON.parse('[[1]]', max_nesting: 1)", "JSON::NestingError: nesting of 2 is too deep"),
        (
            "JSON.parse('[' * 300)",
            "JSON::NestingError: nesting is too deep: recursion limit exceeded at line 1 column 128",
        ),
    ]);
}

#[test]
fn texts_are_parsed() {
    assert_rows(&[
        (r#"JSON.parse('{"a": [1, 2.5, null, true, "x\n"]}')"#, r#"{"a"=>[1, 2.5, nil, true, "x\n"]}"#),
        (r#"JSON.parse('{"a": {"b": 1}}', symbolize_names: true)"#, "{:a=>{:b=>1}}"),
        (r"JSON.parse('2')", "2"),
        (r"JSON.parse('9223372036854775807')", "9223372036854775807"),
        (r"JSON.generate(JSON.parse('9223372036854775808'))", r#""9.223372036854776e+18""#),
        (r#"JSON.parse('{"a": 1, "a": 2}')"#, r#"{"a"=>2}"#),
        (r"JSON.parse(('[' * 100) + (']' * 100)).flatten", "[]"),
        (r"JSON.load(nil)", "nil"),
        (r"JSON.load('[1]')", "[1]"),
        (r#"JSON.parse('"\u00e9"').bytes"#, "[195, 169]"),
    ]);
}
