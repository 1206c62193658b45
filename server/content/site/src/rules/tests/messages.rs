//! Tests messages about files with mistakes or warnings.

use super::*;
use crate::rules::lint;

#[test]
fn a_message_shows_file_position_line_and_caret() {
    let site = Site::new("{\n  \"clean_url\": true,\n  \"root\": \"x\"\n}", "");
    assert_eq!(
        site.notes(),
        [
            "static.json:2:3: unknown key \"clean_url\"; did you mean \"clean_urls\"?\n    \"clean_url\": true,\n    ^^^^^^^^^^^"
        ]
    );
    assert_eq!(
        mistakes("{\"clean_urls\": \"yes\"}"),
        [
            "static.json:1:16: clean_urls: expected true or false, found the string \"yes\"\n  {\"clean_urls\": \"yes\"}\n                 ^^^^^"
        ]
    );
}

#[test]
fn every_wrong_type_is_reported_with_its_key() {
    let cases = [
        (
            r#"{"root": 1}"#,
            "root: expected the path of a directory, such as \"public_html/\", found the number 1",
        ),
        (r#"{"root": ""}"#, "root: expected the path of a directory"),
        (r#"{"https_only": "true"}"#, "https_only: expected true or false, found the string \"true\""),
        (
            r#"{"canonical_host": true}"#,
            "canonical_host: expected a host name such as \"www.example.com\", or false, found true",
        ),
        (r#"{"canonical_host": "https://x/"}"#, "without https:// and /"),
        (r#"{"encoding": "a b"}"#, "encoding: expected the name of a character set"),
        (
            r#"{"error_page": {}}"#,
            "error_page: expected a path below the root, such as \"index.html\", found an object",
        ),
        (r#"{"error_page": "../x"}"#, "leads out of the root"),
        (r#"{"logging": true}"#, "logging: expected an object"),
        (r#"{"logging": {"access": 0}}"#, "logging.access: expected true or false, found the number 0"),
        (r#"{"logging": {"error": "warning"}}"#, "did you mean \"warn\"?"),
        (
            r#"{"routes": ["/"]}"#,
            "routes: expected an object such as {\"/**\": \"index.html\"}, found a list",
        ),
        (
            r#"{"routes": {"/**": {"path": "index.html", "excepts": ["/api/**"]}}}"#,
            "\"excepts\" is not supported",
        ),
        (r#"{"routes": {"/**": 1}}"#, "routes \"/**\": expected a path below the root"),
        (
            r#"{"redirects": {"/a": "/b"}}"#,
            "redirects \"/a\": expected an object such as {\"url\": \"/new\", \"status\": 302}, found the string \"/b\"",
        ),
        (r#"{"redirects": {"/a": {}}}"#, "redirects \"/a\": \"url\" is missing"),
        (
            r#"{"redirects": {"/a": {"url": 1}}}"#,
            "redirects \"/a\": url: expected a path or a URL, found the number 1",
        ),
        (r#"{"redirects": {"/a": {"url": "/$hsot"}}}"#, "unknown variable $hsot; did you mean $host?"),
        (r#"{"redirects": {"/a": {"url": "/b\r\nSet-Cookie: x"}}}"#, "a control character"),
        (
            r#"{"redirects": {"/a": {"url": "/b", "status": 304}}}"#,
            "expected 301, 302, 303, 307 or 308, found the number 304",
        ),
        (
            r#"{"redirects": {"/a": {"url": "/b", "status": "302"}}}"#,
            "expected a whole number from 301 to 308, found the string \"302\"",
        ),
        (
            r#"{"redirects": {"/a": {"url": "/b", "query": true}}}"#,
            "expected \"keep\" or \"drop\", found true",
        ),
        (r#"{"redirects": {"/a": {"url": "/$1"}}}"#, "the key has none"),
        (
            r#"{"proxies": {"/api": "http://x"}}"#,
            "proxies \"/api\": expected an object such as {\"origin\": \"http://localhost:3000\"}",
        ),
        (r#"{"proxies": {"/api": {}}}"#, "\"origin\" is missing"),
        (
            r#"{"proxies": {"/api": {"origin": "ftp://x"}}}"#,
            "http, https or unix:/path.sock, found \"ftp://x\"",
        ),
        (r#"{"proxies": {"/api": {"origin": "http://u:p@x"}}}"#, "user and password are not supported"),
        (r#"{"proxies": {"/api": {"origin": "http://x:99999"}}}"#, "expected a URL"),
        (r#"{"proxies": {"/api": {"origin": "http://x?y"}}}"#, "an origin has no ?"),
        (r#"{"proxies": {"/api": {"origin": "unix:run.sock"}}}"#, "expected \"unix:/path/to.sock\""),
        (r#"{"proxies": {"/api": {"origin": ["http://x/a", "http://x/b"]}}}"#, "must have the same path"),
        (
            r#"{"proxies": {"/api": {"origin": []}}}"#,
            "expected a URL such as \"http://localhost:3000\", found a list",
        ),
        (
            r#"{"proxies": {"/api": {"origin": "http://x", "read_timeout": "5 weeks"}}}"#,
            "expected a duration above 0",
        ),
        (
            r#"{"proxies": {"/api": {"origin": "http://x", "retries": -1}}}"#,
            "expected a whole number from 0 to 10",
        ),
        (
            r#"{"proxies": {"/api": {"origin": "http://x", "health": {"path": "up"}}}}"#,
            "health.path: expected a path such as \"/up\"",
        ),
        (r#"{"headers": {"/**": {"X Y": "z"}}}"#, "\"X Y\" is not the name of a header"),
        (r#"{"headers": {"/**": {"X": "a\nb"}}}"#, "a control character"),
        (r#"{"headers": {"/**": {"X": []}}}"#, "expected a string, a number, true or false, found a list"),
        (r#"{"basic_auth": "yes"}"#, "basic_auth: expected true or false"),
        (r#"{"port": 0}"#, "port: expected a whole number from 1 to 65535, found the number 0"),
        (r#"{"port": 1.5}"#, "found the number 1.5"),
        (
            r#"{"compat": "herokku"}"#,
            "compat: expected \"heroku\", found \"herokku\"; did you mean \"heroku\"?",
        ),
        (r#"{"header_rules": "first"}"#, "expected \"last\" or \"merge\""),
        (
            r#"{"trailing_slash": true}"#,
            "trailing_slash: expected \"keep\" or \"always\" or \"never\", found true",
        ),
        (r#"{"index": []}"#, "index: expected the name of a file"),
        (r#"{"index": "a/b"}"#, "a name without /"),
    ];
    for (json, expected) in cases {
        let mistakes = mistakes(json);
        assert_eq!(mistakes.len(), 1, "{json}: {mistakes:?}");
        assert!(mistakes[0].contains(expected), "{json}: {}", mistakes[0]);
        assert_eq!(mistakes[0].lines().count(), 3, "{}", mistakes[0]);
    }
    assert_eq!(mistakes(r#"{"port": "x", "root": 1, "routes": 2}"#).len(), 3);
}

#[test]
fn the_reference_lists_every_key_and_its_examples_work() {
    let reference = include_str!("../../../../../../docs/static-json.md");
    let keys = crate::rules::parse::keys().chain(crate::rules::proxy_options::keys());
    for key in keys {
        assert!(reference.contains(&format!("`{key}`")), "{key} is not in docs/static-json.md");
    }
    let mut examples: Vec<String> = Vec::new();
    let (_, fenced) = reference.split_once("```json\n").unwrap();
    examples.push(fenced.split_once("```").unwrap().0.to_owned());
    for block in reference.split("\n\n").filter(|block| block.starts_with("    \"")) {
        examples.push(format!("{{{block}}}"));
    }
    assert!(examples.len() > 6);
    for example in examples {
        let parsed = Rules::parse("static.json", &example, &|_| None);
        assert!(parsed.as_ref().is_ok_and(|parsed| parsed.notes.is_empty()), "{example}: {parsed:?}");
    }
}

#[test]
fn large_files_do_not_take_quadratic_time() {
    let entries: Vec<String> =
        (0..20_000).map(|number| format!("\"/{number}\": {{\"url\": \"/\", \"x\": 1}}")).collect();
    let site = Site::new(&format!("{{\"redirects\": {{{}}}}}", entries.join(",")), "");
    assert_eq!((site.get("/19999").as_str(), site.notes().len()), ("redirect 301 /", 100));
}

/// Checks notes against expected substrings, in order.
fn check_notes(notes: &[String], expected: &[&str]) {
    assert_eq!(notes.len(), expected.len(), "{notes:#?}");
    for (note, expected) in notes.iter().zip(expected) {
        assert!(note.contains(expected), "{expected}: {note}");
    }
}

#[test]
fn notes_of_parsing() {
    let json = r#"{
        "https_only": false,
        "https_only": true,
        "debug": true,
        "logging": {"acess": true},
        "routes": {"app/**": "index.html", "/a%20b": "index.html"},
        "redirects": {"/a?b": {"url": "/", "stauts": 302}, "/u": {"url": "https://${host}/${GONE}"}},
        "proxies": {"/api": {"origin": "http://x", "heath": {}}, "/api/": {"origin": "http://y"}, "/x/*": {"origin": "http://${GONE}"}},
        "headers": {"/**": {"Connection": "close"}, "/a//b": {}}
    }"#;
    let site = Site::new(json, "");
    check_notes(
        &site.notes(),
        &[
            "static.json:2:9: duplicate key \"https_only\": the one in line 3 is used",
            "set the variable STATIC_DEBUG",
            "logging: unknown key \"acess\"; did you mean \"access\"?",
            "routes \"app/**\" never matches: a path begins with /",
            "routes \"/a%20b\" never matches: paths are compared decoded",
            "redirects \"/a?b\" never matches: the query is not part of the path",
            "redirects \"/a?b\": unknown key \"stauts\"; did you mean \"status\"?",
            "the variable GONE is not set, so ${GONE} is left unchanged; to give a default, write ${GONE:-…}",
            "proxies \"/api\": unknown key \"heath\"; did you mean \"health\"?",
            "a prefix has no wildcards",
            "the variable GONE is not set",
            "proxies \"/api/\" has the same prefix as \"/api\" in line 8",
            "Connection is set by the server",
            "headers \"/a//b\" never matches: a path has no empty segments",
        ],
    );
    assert_eq!(site.headers("/"), "");
    let partly = Site::with("{}", "", &[("BASIC_AUTH_USERNAME", "x")]);
    assert!(partly.notes()[0].starts_with("static.json: BASIC_AUTH_USERNAME is set but"));
}

#[test]
fn lint_finds_rules_without_effect() {
    let json = r#"{
        "clean_urls": true,
        "error_page": "oops.html",
        "routes": {
            "/assets/**": "/assets/",
            "/app/**": "app.html",
            "/folder/**": "docs",
            "/**": "index.html",
            "/late/*": "index.html"
        },
        "redirects": {
            "/about": {"url": "/team"},
            "/docs/": {"url": "/team"},
            "/api": {"url": "/team"},
            "/old.html": {"url": "/old"},
            "/loop": {"url": "/loop"},
            "/fine": {"url": "/team"},
            "/b/**": {"url": "/$1"},
            "/b/*": {"url": "/$1"},
            "/api/*": {"url": "/$1"}
        },
        "proxies": {
            "/api": {"origin": "http://api.example"},
            "/.hidden": {"origin": "http://api.example"}
        },
        "headers": {
            "/a/*": {"X": "1"},
            "/**": {"X": "2"},
            "/b": {"Y": "3"}
        }
    }"#;
    let site = Site::new(json, "/index.html /about.html /docs/index.html");
    let notes = |site: &Site| lint(site.rules(), site).iter().map(ToString::to_string).collect::<Vec<_>>();
    check_notes(
        &notes(&site),
        &[
            "static.json:3:23: error_page \"/oops.html\": there is no such file",
            "its target \"/app.html\" does not exist, so the route ends in 404",
            "its target \"/docs\" is a directory",
            "routes \"/late/*\" is never reached: routes \"/**\" in line 8 comes first",
            "redirects \"/about\" is never reached: the file /about.html comes first",
            "redirects \"/docs/\" is never reached: the file /docs/index.html comes first",
            "redirects \"/api\" is never reached: proxies \"/api\" in line 23 comes first",
            "redirects \"/old.html\" is never reached: with clean_urls",
            "redirects \"/loop\" leads to itself",
            "redirects \"/b/*\" is never reached: redirects \"/b/**\" in line 18 comes first",
            "redirects \"/api/*\" is never reached: proxies \"/api\" in line 23 comes first",
            "proxies \"/.hidden\" is never reached",
            "headers \"/a/*\" is never used: headers \"/**\" in line 28 comes later and replaces it; put it after that one, or set \"header_rules\": \"merge\"",
        ],
    );
    let merged = Site::new(
        r#"{"header_rules": "merge", "headers": {"/a/*": {"x": 1, "Y": 2}, "/**": {"X": 2}}}"#,
        "/index.html",
    );
    check_notes(
        &notes(&merged),
        &["headers \"/a/*\": x is never used: headers \"/**\" in line 1 comes later"],
    );
    let rootless = Site::new(r#"{"root": "dist", "error_page": "x.html"}"#, "");
    check_notes(&notes(&rootless), &["static.json:1:10: root: the directory \"dist\" does not exist"]);
    let clean = Site::new(r#"{"routes": {"/assets/**": "/assets/", "/**": "index.html"}}"#, "/index.html");
    check_notes(&notes(&clean), &[]);
    let fileless = Site { parsed: Rules::from_variables(&|_| None), files: Vec::new() };
    check_notes(&notes(&fileless), &["root: the directory \"public_html/\" does not exist"]);
}
