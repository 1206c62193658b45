//! Tests the buildpack's behaviour, feature by feature, with and without `"compat": "heroku"` where both agree.

use super::*;

/// Returns the same file with compat mode on.
fn heroku(json: &str) -> String {
    let comma = if json.trim() == "{}" { "" } else { "," };
    json.replacen('{', &format!("{{\"compat\": \"heroku\"{comma}"), 1)
}

/// Checks with and without compat mode.
fn both(json: &str, files: &str, table: &str) {
    Site::new(json, files).check(table);
    Site::new(&heroku(json), files).check(table);
}

fn both_headers(json: &str, table: &str) {
    Site::new(json, "").check_headers(table);
    Site::new(&heroku(json), "").check_headers(table);
}

#[test]
fn an_empty_object_holds_the_defaults() {
    let site = Site::new("{}", "");
    let rules = site.rules();
    assert_eq!(
        (rules.root(), rules.encoding(), rules.error_page(), rules.index()),
        (None, "UTF-8", None, &["index.html".to_owned()][..])
    );
    assert_eq!(
        (rules.access_log(), rules.error_level(), rules.port(), rules.worker_connections()),
        (None, "error", None, None)
    );
    assert!(
        rules.basic_auth().is_none()
            && rules.proxies().is_empty()
            && !rules.compat()
            && !rules.directory_listing()
    );
    assert!(rules.compress() && rules.precompressed() && !rules.fingerprinted_assets());
    assert!(site.parsed.notes.is_empty());
    both(
        "{}",
        "/index.html /a.html /b/index.html",
        "
        /          | file /index.html
        /a.html    | file /a.html
        /a         | 404
        /b         | move /b/
        /b/        | file /b/index.html
        /a.html/   | 404
        /nope      | 404",
    );
    let defaults = r#"{"root": "public_html/", "clean_urls": false, "https_only": false, "canonical_host": false, "encoding": "UTF-8", "routes": {}, "redirects": {}, "proxies": {},
        "headers": {}, "basic_auth": false, "logging": {"access": true, "error": "error"}}"#;
    both(defaults, "/index.html", "/ | file /index.html");
    assert!(Site::new(defaults, "").notes().is_empty());
}

#[test]
fn without_a_file_urls_are_clean() {
    let site = Site {
        parsed: Rules::from_variables(&|_| None),
        files: vec!["/about.html".into(), "/b/index.html".into()],
    };
    site.check(
        "
        /about      | file /about.html
        /about.html | file /about.html
        /b          | move /b/
        /nope.html  | 404",
    );
    assert!(Rules::without_file().basic_auth().is_none());
}

#[test]
fn root_encoding_logging_and_limits() {
    let site = Site::with(
        r#"{"root": "dist", "encoding": "latin1", "logging": {"access": false, "error": "warn"}, "port": 8080, "error_page": "errors/oops.html"}"#,
        "",
        &[("WORKER_CONNECTIONS", "2048")],
    );
    let rules = site.rules();
    assert_eq!((rules.root(), rules.encoding(), rules.port()), (Some("dist"), "latin1", Some(8080)));
    assert_eq!(
        (rules.access_log(), rules.error_level(), rules.worker_connections()),
        (Some(false), "warn", Some(2048))
    );
    assert_eq!(rules.error_page(), Some("/errors/oops.html"));
    // Merged over the defaults; the file wins over the variable.
    let site = Site::with(
        r#"{"logging": {"error": "info"}, "worker_connections": 64}"#,
        "",
        &[("WORKER_CONNECTIONS", "2048")],
    );
    assert_eq!(
        (site.rules().access_log(), site.rules().error_level(), site.rules().worker_connections()),
        (None, "info", Some(64))
    );
    assert_eq!(Site::new(r#"{"compat": "heroku"}"#, "").rules().access_log(), Some(true));
    assert_eq!(Site::with("{}", "", &[("STATIC_DEBUG", "1")]).rules().error_level(), "debug");
}

#[test]
fn clean_urls() {
    let json = r#"{"clean_urls": true}"#;
    both(
        json,
        "/about.html /team/index.html /plain /plain.html",
        "
        /about         | file /about.html
        /about.html    | file /about.html
        /team          | move /team/
        /team/         | file /team/index.html
        /plain         | file /plain.html
        /abou          | 404
        /gone.html     | 404",
    );
    // The page wins over the folder of the same name.
    both(
        json,
        "/docs.html /docs/start.html",
        "
        /docs       | file /docs.html
        /docs/start | file /docs/start.html",
    );
}

#[test]
fn with_clean_urls_html_paths_are_files_or_404() {
    let json = r#"{"clean_urls": true, "routes": {"/**": "index.html"}, "redirects": {"/old.html": {"url": "/new"}},
        "proxies": {"/api": {"origin": "http://api.example"}}}"#;
    both(
        json,
        "/index.html /here.html",
        "
        /here.html     | file /here.html
        /old.html      | 404
        /api/doc.html  | 404
        /gone.html     | 404
        /gone          | file /index.html",
    );
}

#[test]
fn routes() {
    both(
        r#"{"routes": {"/*.html": "index.html", "/way/**": "way.html", "/a.c": "way.html", "/x*z/*": "index.html"}}"#,
        "/index.html /way.html /bar/index.html",
        "
        /foo.html     | file /index.html
        /a/foo.html   | 404
        /way/x        | file /way.html
        /way/x/y      | file /way.html
        /way/         | file /way.html
        /way          | 404
        /a.c          | file /way.html
        /abc          | 404
        /a.c/d        | 404
        /xyz/q        | file /index.html
        /xz/          | file /index.html
        /xyz/q/r      | 404
        /foo.htmlx    | 404
        /bar          | move /bar/
        /bar/         | file /bar/index.html",
    );
}

#[test]
fn routes_apply_in_file_order_and_a_target_that_is_not_a_file_gives_404() {
    let json = r#"{"routes": {"/assets/**": "/assets/", "/api/**": "api", "/**": "index.html"}}"#;
    both(
        json,
        "/index.html /assets/app.js /api/index.html",
        "
        /assets/app.js   | file /assets/app.js
        /assets/gone.js  | 404
        /api/x           | 404
        /deep/link       | file /index.html
        /                | file /index.html",
    );
}

#[test]
fn a_route_hides_directory_indexes_without_clean_urls() {
    let files = "/index.html /bar/index.html /foo.html";
    both(
        r#"{"routes": {"/**": "index.html"}}"#,
        files,
        "
        /bar/     | file /index.html
        /bar      | file /index.html
        /foo.html | file /foo.html
        /foo      | file /index.html",
    );
    both(
        r#"{"routes": {"/**": "index.html"}, "clean_urls": true}"#,
        files,
        "
        /bar/     | file /bar/index.html
        /bar      | move /bar/
        /foo      | file /foo.html
        /x/y      | file /index.html",
    );
}

#[test]
fn redirects_are_exact_and_default_to_301() {
    let json = r#"{"redirects": {"/old/gone": {"url": "/", "status": 302}, "/moved": {"url": "https://new.example/a?b"}}}"#;
    Site::new(json, "/index.html").check(
        "
        /old/gone   | redirect 302 /
        /old/gone/  | 404
        /old/gone/x | 404
        /old        | 404
        /MOVED      | 404
        /moved      | redirect 301 https://new.example/a?b",
    );
    let site = Site::new(&heroku(json), "/index.html");
    assert_eq!(site.get("/old/gone"), "redirect 302 http://site.example/");
    assert_eq!(site.get("/moved"), "redirect 301 https://new.example/a?b");
    // The query is not carried over.
    assert_eq!(site.ask("/moved", |request| request.query = b"x=1"), "redirect 301 https://new.example/a?b");
}

#[test]
fn variables_in_the_three_keys_of_the_buildpack() {
    let json = r#"{"canonical_host": "${NAME}", "redirects": {"/a": {"url": "${TO}/${TO}/${NOPE}", "status": 302}},
        "proxies": {"/api/": {"origin": "http://${API}/foo"}}}"#;
    let environment = [("NAME", "www.example"), ("TO", "/to"), ("API", "api.example")];
    for json in [json.to_owned(), heroku(json)] {
        let site = Site::with(&json, "", &environment);
        let on_host = |path: &str| site.ask(path, |request| request.host = b"www.example");
        assert_eq!(on_host("/a").replace("http://www.example", ""), "redirect 302 /to//to/${NOPE}");
        assert_eq!(on_host("/api/bar/"), "proxy 0 /foo/bar/");
        assert_eq!(site.rules().proxies()[0].origins[0].host, "api.example");
        assert!(
            site.notes().iter().any(|note| note.contains("the variable NOPE is not set")),
            "{:?}",
            site.notes()
        );
    }
}

#[test]
fn order_files_clean_urls_proxies_redirects_routes() {
    let json = r#"{"routes": {"/**": "index.html"}, "redirects": {"/old": {"url": "/new", "status": 302}, "/api/old": {"url": "/new"}, "/page": {"url": "/new"}},
        "proxies": {"/api": {"origin": "http://api.example"}, "/assets": {"origin": "http://cdn.example"}}, "clean_urls": true}"#;
    let table = "
        /assets/app.js | file /assets/app.js
        /assets/x.js   | proxy 1 /x.js
        /page          | file /page.html
        /api/old       | proxy 0 /old
        /other         | file /index.html";
    both(json, "/index.html /assets/app.js /page.html", table);
    both(
        &json.replace("\"/**\": \"index.html\"", ""),
        "/index.html /assets/app.js /page.html",
        &table.replace("/other         | file /index.html", "/other | 404"),
    );
    both(
        &json.replace(", \"clean_urls\": true", ""),
        "/index.html /assets/app.js",
        "
        /assets/app.js | file /assets/app.js
        /api/old       | proxy 0 /old
        /other         | file /index.html",
    );
    assert_eq!(Site::new(json, "/index.html").get("/old"), "redirect 302 /new");
}

#[test]
fn https_only_comes_first() {
    let json = r#"{"https_only": true, "canonical_host": "www.example", "redirects": {"/old": {"url": "/new"}}, "proxies": {"/api": {"origin": "http://a.example"}}}"#;
    for (json, host) in [(json.to_owned(), "www.example"), (heroku(json), "site.example")] {
        let site = Site::new(&json, "/index.html");
        for path in ["/", "/old", "/api/x"] {
            assert_eq!(site.get(path), format!("gate 301 https://{host}{path}"));
        }
        let query = site.ask("/old", |request| {
            (request.query, request.forwarded_proto) = (b"a=%0d%0a", Some(&b"http"[..]))
        });
        assert_eq!(query, format!("gate 301 https://{host}/old?a=%0d%0a"));
        let secure = site.ask("/old", |request| request.forwarded_proto = Some(b"https"));
        assert_eq!(secure, "gate 301 https://www.example/old");
        let right = site.ask("/", |request| {
            (request.forwarded_proto, request.host) = (Some(&b"https"[..]), b"WWW.example:443")
        });
        assert_eq!(right, "file /index.html");
    }
    // Nothing from a request can break out of the Location.
    let site = Site::new(r#"{"https_only": true}"#, "");
    let evil =
        site.ask("/", |request| (request.raw_path, request.host) = (b"/\r\nSet-Cookie:\t1", b"h\r\nx: y/"));
    assert_eq!(evil, "gate 301 https://hx/%0D%0ASet-Cookie:%091");
}

#[test]
fn canonical_host_false_is_off() {
    both(r#"{"canonical_host": false}"#, "/index.html", "/ | file /index.html");
    both(r#"{"canonical_host": null, "root": null}"#, "/index.html", "/ | file /index.html");
}

#[test]
fn quirks_are_fixed_and_compat_brings_them_back() {
    let ours = |json: &str| Site::new(json, "");
    let old = |json: &str| Site::new(&heroku(json), "");
    // The server's own TLS is https without any header field.
    let json = r#"{"https_only": true}"#;
    assert_eq!(ours(json).ask("/x", |request| request.https = true), "404");
    assert_eq!(old(json).ask("/x", |request| request.https = true), "gate 301 https://site.example/x");
    // The scheme of canonical_host.
    let json = r#"{"canonical_host": "www.example"}"#;
    assert_eq!(ours(json).get("/x"), "gate 301 http://www.example/x");
    assert_eq!(ours(json).ask("/x", |request| request.https = true), "gate 301 https://www.example/x");
    assert_eq!(old(json).get("/x"), "gate 301 ://www.example/x");
    assert_eq!(
        old(json).ask("/x", |request| request.forwarded_proto = Some(b"https")),
        "gate 301 https://www.example/x"
    );
    // Prefixes and segments.
    let json = r#"{"proxies": {"/api": {"origin": "https://a.example/v1/"}}}"#;
    assert_eq!(
        (ours(json).get("/apifoo"), old(json).get("/apifoo")),
        ("404".to_owned(), "proxy 0 /v1/foo".to_owned())
    );
    ours(json).check("/api-x | 404\n/api.json | 404\n/APi/x | 404");
    assert_eq!(
        (ours(json).get("/api"), old(json).get("/api")),
        ("proxy 0 /v1".to_owned(), "proxy 0 /v1/".to_owned())
    );
    let options = |site: &Site| {
        let rule = &site.rules().proxies()[0];
        (rule.forwarded, rule.tls_verify, rule.websocket)
    };
    assert_eq!((options(&ours(json)), options(&old(json))), ((true, true, true), (false, false, false)));
    // A directory without an index.
    assert_eq!(Site::new("{}", "/a/b.txt").get("/a/"), "404");
    assert_eq!(Site::new(&heroku("{}"), "/a/b.txt").get("/a/"), "403");
    // Bare host names.
    let json = r#"{"proxies": {"/api": {"origin": "api.example:3000"}}}"#;
    assert_eq!(ours(json).rules().proxies()[0].origins[0].url, "http://api.example:3000");
    assert!(mistakes(&heroku(json))[0].contains("expected a URL"));
    // Keys that the buildpack did not have.
    let site = old(r#"{"trailing_slash": "never", "precompressed": true}"#);
    assert!(
        !site.rules().precompressed()
            && site.notes().len() == 2
            && site.notes()[0].contains("only the buildpack's keys apply")
    );
}

#[test]
fn only_the_last_matching_header_rule_applies() {
    both_headers(
        r#"{"headers": {"/": {"Cache-Control": "no-cache"}, "/foo.html": {"X-Foo": "true"}}}"#,
        "
        /          | Cache-Control: no-cache
        /foo.html  | X-Foo: true
        /foo       |
        /index.html |",
    );
    both_headers(
        r#"{"headers": {"/": {"A": "1"}, "/**": {"X-Foo": "false", "X-Bar": 7}, "/foo.html": {"X-Foo": true}}}"#,
        "
        /foo.html  | X-Foo: true
        /          | X-Foo: false; X-Bar: 7
        /a/b       | X-Foo: false; X-Bar: 7",
    );
    // A later rule replaces a more specific one.
    both_headers(
        r#"{"headers": {"/foo.html": {"X-Foo": true}, "/**": {"X-Bar": 31536000, "X-Float": 0.5}}}"#,
        "/foo.html | X-Bar: 31536000; X-Float: 0.5",
    );
    both_headers(
        r#"{"headers": {"/cache/*": {"Cache-Control": "max-age=38400"}}}"#,
        "
        /cache/    | Cache-Control: max-age=38400
        /cache/a   | Cache-Control: max-age=38400
        /cache/a/b |
        /cache     |",
    );
}

#[test]
fn header_rules_match_the_requested_path() {
    let json =
        r#"{"clean_urls": true, "headers": {"/foo": {"X": "clean"}}, "routes": {"/app/**": "index.html"}}"#;
    both(json, "/foo.html /index.html", "/foo | file /foo.html");
    both_headers(
        json,
        "
        /foo      | X: clean
        /foo.html |
        /app/x    |",
    );
}

#[test]
fn basic_auth_and_its_variables() {
    let auth = |json: &str, environment: &[(&str, &str)]| {
        Site::with(json, "", environment).rules().basic_auth().cloned()
    };
    let hash = "$apr1$salt$abcdefghijklmnopqrstuv";
    let both = [("BASIC_AUTH_USERNAME", "ann"), ("BASIC_AUTH_PASSWORD", hash)];
    let user = Some(("ann".to_owned(), hash.to_owned()));
    assert_eq!(auth("{}", &[]), None);
    assert_eq!(auth(r#"{"basic_auth": false}"#, &[]), None);
    let file_only = auth(r#"{"basic_auth": true}"#, &[]).unwrap();
    assert_eq!((file_only.htpasswd_path, file_only.user), (None, None));
    // The variable wins over an explicit false.
    assert_eq!(auth(r#"{"basic_auth": false}"#, &both).unwrap().user, user);
    assert_eq!(auth("{}", &both[..1]).unwrap().user, None);
    assert_eq!(auth("{}", &both[1..]), None);
    let path = auth(r#"{"basic_auth_htpasswd_path": "/etc/users"}"#, &both).unwrap();
    assert_eq!((path.htpasswd_path.as_deref(), path.user), (Some("/etc/users"), user.clone()));
    // Also without static.json.
    let parsed = Rules::from_variables(&|name| {
        both.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    });
    assert_eq!(parsed.rules.basic_auth().unwrap().user, user);
}

#[test]
fn slashes_of_prefix_and_origin_make_no_difference() {
    for key in ["/api", "/api/"] {
        for origin in ["http://o.example/foo", "http://o.example/foo/"] {
            let json = format!(r#"{{"proxies": {{"{key}": {{"origin": "{origin}"}}}}}}"#);
            both(
                &json,
                "",
                "
                /api/hello  | proxy 0 /foo/hello
                /api/bar/   | proxy 0 /foo/bar/
                /api/       | proxy 0 /foo/",
            );
            let site = Site::new(&json, "");
            let back = |location: &str| {
                site.rules()
                    .location_back(0, location.as_bytes())
                    .map(|path| String::from_utf8(path).unwrap())
            };
            for location in [
                "http://o.example/foo/to?x#y",
                "https://O.example/foo/to?x#y",
                "https://o.example:443/foo/to?x#y",
                "/foo/to?x#y",
            ] {
                assert_eq!(back(location).as_deref(), Some("/api/to?x#y"), "{location}");
            }
            assert_eq!(back("http://o.example/foo").as_deref(), Some("/api"));
            for location in [
                "http://o.example/bar",
                "http://o.example/foobar",
                "http://other.example/foo/",
                "http://o.example:81/foo/",
                "to",
                "/login",
                "//o.example/foo",
            ] {
                assert_eq!(back(location), None, "{location}");
            }
        }
    }
}

#[test]
fn the_longest_prefix_wins() {
    let json = r#"{"proxies": {"/a": {"origin": "http://1.example"}, "/a/b/": {"origin": "http://2.example"}, "/a/bc": {"origin": "http://3.example"}}}"#;
    both(
        json,
        "",
        "
        /a/x    | proxy 0 /x
        /a/b/x  | proxy 1 /x
        /a/bc/x | proxy 2 /x",
    );
    Site::new(json, "").check("/a/b | proxy 1 /");
}
