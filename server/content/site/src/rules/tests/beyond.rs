//! Tests features beyond the buildpack's.

use super::*;
use crate::rules::OriginScheme;
use handler::proxying::{Balance, HostPolicy, Via};
use std::time::Duration;

#[test]
fn redirect_globs_captures_and_queries() {
    let json = r#"{"redirects": {
        "/blog/*/*": {"url": "/posts/$2-$1", "status": 308},
        "/blog/**": {"url": "https://blog.example/$1", "query": "keep"},
        "/blog/2020/exact": {"url": "/exact"},
        "/search": {"url": "/find?in=all#top", "query": "keep", "status": 307},
        "/u/*.html": {"url": "/users/$1", "status": 303},
        "/drop": {"url": "/find?in=all", "query": "drop"},
        "/to/**": {"url": "/$1"}
    }}"#;
    let site = Site::new(json, "");
    site.check(
        "
        /blog/2020/hello   | redirect 308 /posts/hello-2020
        /blog/2020/exact   | redirect 301 /exact
        /blog/a/b/c        | redirect 301 https://blog.example/a/b/c
        /blog/ü ?          | redirect 301 https://blog.example/%C3%BC%20%3F
        /to/\\evil.example | redirect 301 /%5Cevil.example
        /to/               | redirect 301 /
        /to/50%            | redirect 301 /50%25
        /u/ada.html        | redirect 303 /users/ada
        /u/a/b.html        | 404
        /blog              | 404",
    );
    let keep = |path: &str| site.ask(path, |request| request.query = b"q=%20a");
    assert_eq!(keep("/blog/x"), "redirect 301 https://blog.example/x?q=%20a");
    assert_eq!(keep("/search"), "redirect 307 /find?in=all&q=%20a#top");
    assert_eq!(keep("/to/x"), "redirect 301 /x");
    assert_eq!(keep("/drop"), "redirect 301 /find?in=all");
    assert_eq!(site.get("/search"), "redirect 307 /find?in=all#top");
}

#[test]
fn header_rules_may_merge() {
    let json = r#"{"header_rules": "merge", "headers": {
        "/**": {"X-All": "1", "Cache-Control": "no-cache"}, "/assets/*": {"cache-control": "max-age=60", "X-Env": "${NAME:-none}"}}}"#;
    let site = Site::with(json, "", &[("NAME", "prod")]);
    site.check_headers(
        "
        /a         | X-All: 1; Cache-Control: no-cache
        /assets/a  | cache-control: max-age=60; X-Env: prod; X-All: 1",
    );
    assert_eq!(Site::new(json, "").headers("/assets/a"), "cache-control: max-age=60; X-Env: none; X-All: 1");
    let last = Site::new(&json.replace("merge", "last"), "");
    assert_eq!(last.headers("/assets/a"), "cache-control: max-age=60; X-Env: none");
}

#[test]
fn trailing_slash_policies() {
    let files = "/index.html /about.html /team/index.html /both.html /both/index.html /app.js";
    Site::new(r#"{"clean_urls": true, "trailing_slash": "never"}"#, files).check(
        "
        /           | file /index.html
        /about      | file /about.html
        /about/     | move /about
        /team       | file /team/index.html
        /team/      | move /team
        /both/      | move /both
        /app.js/    | move /app.js
        /nope/      | 404",
    );
    Site::new(r#"{"clean_urls": true, "trailing_slash": "always"}"#, files).check(
        "
        /           | file /index.html
        /about      | move /about/
        /about/     | file /about.html
        /team       | move /team/
        /team/      | file /team/index.html
        /both       | move /both/
        /both/      | file /both/index.html
        /app.js     | file /app.js
        /app.js/    | 404
        /about.html | file /about.html
        /nope       | 404",
    );
    Site::new(r#"{"trailing_slash": "never"}"#, files).check(
        "
        /team       | file /team/index.html
        /team/      | move /team
        /about      | 404",
    );
}

#[test]
fn listings_and_index_names() {
    let site = Site::new(
        r#"{"directory_listing": true, "index": ["index.htm", "home.html"]}"#,
        "/home.html /a/index.htm /a/home.html /b/x.txt /c/index.html",
    );
    site.check(
        "
        /   | file /home.html
        /a/ | file /a/index.htm
        /b  | move /b/
        /b/ | list /b
        /c/ | list /c",
    );
    assert_eq!(Site::new(r#"{"index": "home.html"}"#, "").rules().index(), ["home.html"]);
}

#[test]
fn root_and_canonical_host_take_defaults() {
    let site = Site::new(r#"{"root": "${OUT:-_site}", "canonical_host": "${HOST:-}"}"#, "/index.html");
    assert_eq!(site.rules().root(), Some("_site"));
    assert_eq!(site.get("/"), "file /index.html");
    let site = Site::new(r#"{"canonical_host": "www.example:8080"}"#, "");
    assert_eq!(site.ask("/", |request| request.host = b"www.example:8080"), "404");
    assert_eq!(site.ask("/", |request| request.host = b"www.example"), "gate 301 http://www.example:8080/");
}

#[test]
fn one_redirect_leads_to_https_and_the_canonical_host_and_none_follows_it() {
    for (canonical, host) in [
        ("www.example", "www.example"),
        ("WWW.example", "www.example"),
        // The request of a browser that follows the redirect: without the scheme's default port.
        ("www.example:443", "www.example"),
        ("www.example:443", "www.example:443"),
        ("www.example:8443", "www.example:8443"),
        ("[::1]:443", "[::1]"),
    ] {
        let site =
            Site::new(&format!(r#"{{"https_only": true, "canonical_host": "{canonical}"}}"#), "/index.html");
        let host_of = |from: &'static str| from.split(':').next().unwrap_or_default();
        for from in ["site.example", "site.example:8080", "", "www.example.", "www.example:1"] {
            let first = site.ask("/x", |request| request.host = from.as_bytes());
            let same = host_of(from) == canonical.to_ascii_lowercase();
            let to = if same { host_of(from).to_owned() } else { canonical.to_ascii_lowercase() };
            assert_eq!(first, format!("gate 301 https://{to}/x"), "{canonical} from {from}");
        }
        let followed = site.ask("/", |request| (request.https, request.host) = (true, host.as_bytes()));
        assert_eq!(followed, "file /index.html", "{canonical} as {host}");
    }
    // Over http, with its own port.
    let site = Site::new(r#"{"canonical_host": "www.example:80"}"#, "/index.html");
    assert_eq!(site.ask("/", |request| request.host = b"www.example"), "file /index.html");
    let secure = site.ask("/", |request| (request.https, request.host) = (true, b"www.example"));
    assert_eq!(secure, "gate 301 https://www.example:80/");
}

#[test]
fn https_behind_several_proxies() {
    let site = Site::new(r#"{"https_only": true}"#, "");
    assert_eq!(site.ask("/", |request| request.forwarded_proto = Some(b"HTTPS, http")), "404");
    assert_eq!(
        site.ask("/", |request| request.forwarded_proto = Some(b"http, https")),
        "gate 301 https://site.example/"
    );
}

#[test]
fn fingerprints_get_their_cache_control() {
    let site = Site::new(r#"{"fingerprinted_assets": true}"#, "");
    assert_eq!(site.rules().cache_control("/app-3f2a9c81.js"), Some("public, max-age=31536000, immutable"));
    assert_eq!(site.rules().cache_control("/app.js"), None);
    assert_eq!(Site::new("{}", "").rules().cache_control("/app-3f2a9c81.js"), None);
}

#[test]
fn every_option_of_a_proxy() {
    let json = r#"{"proxies": {"/api": {"origin": ["http://a.example:81/v1", "https://[::1]/v1/", "unix:/run/app.sock:/v1"], "balance": "least_connections",
        "connect_timeout": 2.5, "read_timeout": "500ms", "send_timeout": "1m", "retries": 0, "max_idle": 4, "host": "client", "tls_verify": false,
        "tls_ca": "ca.pem", "forwarded": false, "via": "requests", "websocket": false, "health": {"path": "/healthz", "interval": "10s", "healthy": 1}}}}"#;
    let site = Site::new(json, "");
    let rule = &site.rules().proxies()[0];
    let origins: Vec<_> = rule
        .origins
        .iter()
        .map(|o| (o.url.as_str(), o.scheme, o.host.as_str(), o.port, o.base.as_str()))
        .collect();
    assert_eq!(
        origins,
        [
            ("http://a.example:81/v1", OriginScheme::Http, "a.example", Some(81), "/v1"),
            ("https://[::1]/v1", OriginScheme::Https, "::1", None, "/v1"),
            ("unix:/run/app.sock:/v1", OriginScheme::Unix, "/run/app.sock", None, "/v1"),
        ]
    );
    assert_eq!(
        (rule.balance, rule.host, rule.line, rule.prefix.as_str()),
        (Balance::LeastConnections, HostPolicy::Client, 1, "/api")
    );
    assert_eq!(rule.connect_timeout, Duration::from_millis(2500));
    assert_eq!((rule.read_timeout, rule.send_timeout), (Duration::from_millis(500), Duration::from_secs(60)));
    assert_eq!(
        (rule.retries, rule.max_idle, rule.tls_verify, rule.tls_ca.as_deref()),
        (0, 4, false, Some("ca.pem"))
    );
    assert!(!rule.forwarded && rule.via == Via::Requests && !rule.websocket);
    let health = rule.health.as_ref().unwrap();
    assert_eq!(
        (health.path.as_str(), health.interval, health.timeout),
        ("/healthz", Duration::from_secs(10), Duration::from_secs(2))
    );
    assert_eq!((health.healthy, health.unhealthy), (1, 3));
}

#[test]
fn the_raw_path_goes_to_the_origin() {
    let site = Site::new(
        r#"{"proxies": {"/api/v1": {"origin": "http://a.example/base"}, "/": {"origin": "http://b.example"}}}"#,
        "",
    );
    let target = |path: &str, raw: &[u8], query: &'static [u8]| {
        let fields = Fields::default();
        let mut request = request(path, &fields);
        (request.raw_path, request.query) = (raw, query);
        let (_, found) = walk(site.rules(), path, &site);
        let StepResult::Proxy(id) = found else { panic!("{found:?}") };
        String::from_utf8(site.rules().upstream_target(id, &request)).unwrap()
    };
    for (path, raw, expected) in [
        ("/api/v1/a b", "/api/v1/a%20b", "/base/a%20b"),
        ("/api/v1/a/b", "/%61pi//v1//a//b", "/base//a//b"),
        ("/api/v1/é;x", "/api/v1/%c3%A9;x", "/base/%c3%A9;x"),
        ("/api/v1/x", "/api/v2/../v1/./x", "/base/x"),
        ("/api/v1/x", "/api/v1/y/%2e%2E/x", "/base/x"),
        ("/api/v1/", "/api/v1/x/..", "/base/"),
        ("/api/v1/", "/api/v1/", "/base/"),
        ("/api/v1", "/api/v1", "/base"),
        ("/", "/", "/"),
        ("/x", "/x", "/x"),
        ("/x/y", "//x/y", "//x/y"),
    ] {
        assert_eq!(target(path, raw.as_bytes(), b""), expected, "{raw}");
    }
    assert_eq!(target("/api/v1", b"/api/v1", b"q=1&r"), "/base?q=1&r");
}

#[test]
fn an_origin_cannot_redirect_clients_to_another_host() {
    let site = Site::new(
        r#"{"proxies": {"/": {"origin": "http://a.example/base"}, "/u": {"origin": "unix:/s"}}}"#,
        "",
    );
    let back = |id: usize, location: &str| {
        site.rules().location_back(id, location.as_bytes()).map(|path| String::from_utf8(path).unwrap())
    };
    assert_eq!(back(0, "http://a.example/base//evil.example/").as_deref(), Some("/evil.example/"));
    assert_eq!(back(0, "http://a.example/base?x").as_deref(), Some("/?x"));
    assert_eq!(back(1, "http://localhost/login").as_deref(), Some("/u/login"));
    assert_eq!(back(1, "/login"), None);
}

#[test]
fn explanations_name_rules_and_lines() {
    let json = "{\n  \"clean_urls\": true,\n  \"basic_auth\": true,\n  \"canonical_host\": \"site.example\",\n  \"routes\": {\n    \"/app/**\": \"app.html\"\n  },\n  \
        \"headers\": {\n    \"/app/**\": {\"X-App\": \"yes\"}\n  },\n  \"error_page\": \"oops.html\"\n}";
    let site = Site::new(json, "/app.html /oops.html /docs/index.html");
    let fields = Fields::default();
    let explained = |path: &str| explain(site.rules(), &request(path, &fields), &site).to_string();
    assert_eq!(
        explained("/app/x"),
        "/app/x\n\n\
         \x20 1. canonical_host (static.json:4): passes, the request is for site.example\n\
         \x20 2. basic_auth: 401 without a password; users of .htpasswd\n\
         \x20 3. the file /app/x.html, by clean_urls (static.json:2): not found\n\
         \x20 4. the file /app/x: not found\n\
         \x20 5. the directory /app/x: not found\n\
         \x20 6. routes \"/app/**\" (static.json:6): its target /app.html: found\n\n\
         response: 200, the file /app.html\n\
         headers by rules:\n  X-App: yes  from headers \"/app/**\" (static.json:9)\n"
    );
    assert!(
        explained("/docs").contains("response: 301 to /docs/\nheaders by rules: none"),
        "{}",
        explained("/docs")
    );
    assert!(explained("/gone.html").contains("a path that ends in .html is a file or 404"));
    assert!(explained("/gone.html").contains("response: 404, with the page /oops.html"));
    assert!(explained("/.git/config").contains("a name that begins with a dot"));
    let proxied = Site::new(r#"{"proxies": {"/u": {"origin": "unix:/s.sock:/base"}}}"#, "");
    let shown = explain(proxied.rules(), &request("/u/x", &fields), &proxied);
    assert_eq!(shown.response(), "from unix:/s.sock, target /base/x");
    // After a redirect to https or to another host, the explanation continues.
    let json = r#"{"https_only": true, "canonical_host": "www.example", "proxies": {"/u": {"origin": "http://u.example"}}}"#;
    let gated = Site::new(json, "");
    let mut request = request("/u/x", &fields);
    let shown = explain(gated.rules(), &request, &gated);
    assert_eq!(
        shown.steps(),
        [
            "https_only (static.json:1): the request uses http: 301 to https://www.example/u/x",
            "canonical_host (static.json:1): passes, the request is for www.example",
            "the file /u/x: not found",
            "the directory /u/x: not found",
            "proxies \"/u\" (static.json:1): the path is below the prefix",
        ]
    );
    assert_eq!(shown.response(), "301 to https://www.example/u/x; then: from http://u.example, target /x");
    request.https = true;
    let shown = explain(gated.rules(), &request, &gated);
    assert_eq!(shown.steps()[0], "https_only (static.json:1): passes, the request uses https");
    assert!(shown.response().starts_with("301 to https://www.example/u/x; then: "));
}
