//! Time, URI, CGI, Rack::Utils, StringIO, StringScanner, Set.

use super::vm::assert_rows;

#[test]
fn times() {
    assert_rows(&[
        ("Time.at(1714979289).utc.strftime('%Y-%m-%d %H:%M:%S %z')", r#""2024-05-06 07:08:09 +0000""#),
        ("Time.at(1714979289, 5060).utc.iso8601(3)", r#""2024-05-06T07:08:09.005Z""#),
        ("Time.at(1714979289).utc.iso8601", r#""2024-05-06T07:08:09Z""#),
        ("Time.at(1714979289).httpdate", r#""Mon, 06 May 2024 07:08:09 GMT""#),
        ("Time.at(1714979289).utc.rfc2822", r#""Mon, 06 May 2024 07:08:09 -0000""#),
        ("Time.parse('2024-05-06T09:08:09+02:00').to_i", "1714979289"),
        ("Time.httpdate('Mon, 06 May 2024 07:08:09 GMT').to_i", "1714979289"),
        (
            "Time.parse('soon')",
            "ArgumentError: no time information in \"soon\": expected a time such as 2024-05-06T07:08:09Z or Mon, 06 May \
             2024 07:08:09 GMT",
        ),
    ]);
}

#[test]
fn uris() {
    assert_rows(&[
        (
            "u = URI.parse('https://me:pw@Example.org:8443/a/b?x=1#top'); [u.scheme, u.user, u.password, u.host, u.port, u.path, u.query, u.fragment]",
            r#"["https", "me", "pw", "Example.org", 8443, "/a/b", "x=1", "top"]"#,
        ),
        ("URI('http://h').port", "80"),
        ("URI('http://h').request_uri", r#""/""#),
        ("URI('http://[::1]:80/x').hostname", r#""::1""#),
        ("URI('https://h:443/a?b#c').to_s", r#""https://h/a?b#c""#),
        ("URI('http://h').class", "URI::HTTP"),
        ("URI.parse('http://a b')", r#"URI::InvalidURIError: bad URI(is not URI?): "http://a b""#),
        ("URI.join('http://h/a/b/c', '../d').to_s", r#""http://h/a/d""#),
        ("URI.join('http://h/a/b', '?x=1').to_s", r#""http://h/a/b?x=1""#),
        ("URI.join('http://h:81/a', '/x', 'y').to_s", r#""http://h:81/y""#),
        ("URI.join('http://h/a', '//other/x').to_s", r#""http://other/x""#),
        ("URI.encode_www_form_component('a b&c/*~é')", r#""a+b%26c%2F*%7E%C3%A9""#),
        ("URI.decode_www_form_component('a+b%26')", r#""a b&""#),
        ("URI.decode_www_form_component('%zz')", "ArgumentError: invalid %-encoding (%zz)"),
        ("URI.encode_www_form(a: 1, b: [2, 3], c: nil)", r#""a=1&b=2&b=3&c""#),
        ("URI.decode_www_form('a=1&b=%20x&c')", r#"[["a", "1"], ["b", " x"], ["c", ""]]"#),
        ("CGI.escapeHTML(%q(<a href=\"x\">&'))", r#""&lt;a href=&quot;x&quot;&gt;&amp;&#39;""#),
        ("CGI.unescapeHTML('&lt;&amp;&#39;')", r#""<&'""#),
        ("Rack::Utils.parse_query('a=1&a=2&b=x+y&c')", r#"{"a"=>["1", "2"], "b"=>"x y", "c"=>nil}"#),
        ("Rack::Utils.build_query('a' => [1, 2], 'b' => nil)", r#""a=1&a=2&b""#),
        ("Rack::Utils.parse_cookies('HTTP_COOKIE' => 'a=1; b=x%20y; a=2')", r#"{"a"=>"1", "b"=>"x y"}"#),
        ("ERB::Util.url_encode('a b~')", r#""a%20b~""#),
    ]);
}

#[test]
fn texts_as_files() {
    assert_rows(&[
        (r#"io = StringIO.new("a\nb"); [io.gets, io.gets, io.gets, io.eof?]"#, r#"["a\n", "b", nil, true]"#),
        ("io = StringIO.new('abc'); [io.read(2), io.read, io.read, io.read(1)]", r#"["ab", "c", "", nil]"#),
        ("io = StringIO.new; io << 'a'; io.puts 1, [2]; io.print('x', 'y'); io.string", r#""a1\n2\nxy""#),
        (r#"StringIO.new("a\nb\n").each_line.to_a"#, r#"["a\n", "b\n"]"#),
        (
            "s = StringScanner.new('a1 b'); [s.scan(/\\w/), s.scan(/z/), s.scan_until(/ /), s.rest, s.eos?]",
            r#"["a", nil, "1 ", "b", false]"#,
        ),
    ]);
}

#[test]
fn sets() {
    assert_rows(&[
        ("Set.new([1, 2, 2]).size", "2"),
        ("(Set[1, 2] | [3]).to_a", "[1, 2, 3]"),
        ("(Set[1, 2] & [2, 3]).to_a", "[2]"),
        ("(Set[1, 2] - [2]).inspect", r##""#<Set: {1}>""##),
        ("Set[1, 2] == Set[2, 1]", "true"),
        ("[Set[1].subset?(Set[1, 2]), Set[1].add?(1), Set[1, 2].include?(2)]", "[true, nil, true]"),
        ("[1, 1].to_set.map { |x| x + 1 }", "[2]"),
        ("a = Set[1]; b = a.dup; b << 2; a.size", "1"),
    ]);
}
