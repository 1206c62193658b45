//! Tests sites over real directories.

use super::*;
use crate::files::root::RECHECK_AFTER;
use crate::testing::{field, text, wait};
use handler::testing::request;
use std::path::Path;
use std::time::{Duration, SystemTime};

struct Folder {
    dir: tempfile::TempDir,
    site: Site,
}

impl Folder {
    fn new(rules: &str, before_app: bool, files: &[(&str, &str)]) -> Folder {
        let dir = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| write(dir.path(), name, text));
        let parsed =
            Rules::parse("static.json", rules, &|_| None).unwrap_or_else(|errors| panic!("{}", errors[0]));
        let config = SiteConfig {
            root: dir.path().to_owned(),
            rules: Arc::new(parsed.rules),
            users: None,
            before_app,
            private: vec!["static.json".to_owned()],
            bounds: CacheBounds { files: 64, bytes: 1 << 20 },
        };
        let site = Site::new(config, Box::new(|what| panic!("{what}")));
        Folder { dir, site }
    }

    fn ask(&self, method: &str, target: &str, fields: &[(&str, &str)]) -> SiteResult {
        // Waits until the result of the last request must not be reused.
        std::thread::sleep(RECHECK_AFTER);
        wait(self.site.respond(&request(method, target, fields)))
    }

    fn response(&self, method: &str, target: &str, fields: &[(&str, &str)]) -> Response {
        match self.ask(method, target, fields) {
            SiteResult::Response(response) => response,
            SiteResult::Proxy(_) => panic!("{target} is a proxy's"),
            SiteResult::App(_) => panic!("{target} is the app's"),
        }
    }

    fn get(&self, target: &str) -> (u16, String) {
        let response = self.response("GET", target, &[]);
        let what = if response.status < 300 { text(&response) } else { field(&response, "location") };
        (response.status, what)
    }
}

fn write(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
}

/// Makes a file look unchanged for some time, so that its bytes may be cached.
fn settle(path: &Path) {
    let times = std::fs::FileTimes::new().set_modified(SystemTime::now() - Duration::from_secs(60));
    std::fs::File::options().write(true).open(path).unwrap().set_times(times).unwrap();
}

fn ok(text: &str) -> (u16, String) {
    (200, text.to_owned())
}

#[test]
fn cached_paths_are_checked_each_time() {
    let folder = Folder::new(r#"{"clean_urls": true}"#, false, &[("a/index.html", "index"), ("b", "b1")]);
    let path = |name: &str| folder.dir.path().join(name);
    settle(&path("b"));
    for _ in 0..3 {
        assert_eq!((folder.get("/b"), folder.get("/a/")), (ok("b1"), ok("index")));
    }
    write(folder.dir.path(), "b", "b2");
    assert_eq!(folder.get("/b"), ok("b2"), "new content of the same length");
    write(folder.dir.path(), "new", "b3");
    std::fs::rename(path("new"), path("b")).unwrap();
    assert_eq!(folder.get("/b"), ok("b3"), "another file of the same name");
    write(folder.dir.path(), "b.html", "clean");
    assert_eq!(folder.get("/b"), ok("clean"), "a file that takes precedence over the cached one");
    std::fs::remove_file(path("b.html")).unwrap();
    std::fs::remove_file(path("b")).unwrap();
    assert_eq!(folder.get("/b").0, 404);
    assert_eq!(folder.get("/a").1, "/a/");
    write(folder.dir.path(), "a.html", "page");
    assert_eq!(folder.get("/a"), ok("page"));
}

#[test]
fn a_single_page_app() {
    let rules = r#"{"routes": {"/assets/**": "/assets/", "/**": "index.html"}}"#;
    let folder = Folder::new(rules, false, &[("index.html", "app"), ("assets/a.js", "js")]);
    for _ in 0..2 {
        assert_eq!((folder.get("/"), folder.get("/deep/link?x=1")), (ok("app"), ok("app")));
        assert_eq!((folder.get("/assets/a.js"), folder.get("/assets/b.js").0), (ok("js"), 404));
    }
    write(folder.dir.path(), "deep/link", "file");
    assert_eq!(folder.get("/deep/link"), ok("file"));
    assert_eq!(folder.response("POST", "/deep/other", &[]).status, 405);
}

#[test]
fn methods() {
    let folder = Folder::new("{}", false, &[("a.txt", "text")]);
    let post = folder.response("POST", "/a.txt", &[]);
    assert_eq!((post.status, field(&post, "allow").as_str()), (405, "GET, HEAD, OPTIONS"));
    let options = folder.response("OPTIONS", "/a.txt", &[]);
    assert_eq!((options.status, field(&options, "allow").as_str()), (204, "GET, HEAD, OPTIONS"));
    assert_eq!(folder.response("OPTIONS", "*", &[]).status, 204);
    assert_eq!(folder.response("POST", "/missing", &[]).status, 404);
}

#[test]
fn private_files_are_missing() {
    let files =
        [("static.json", "{}"), (".env", "x"), (".well-known/acme", "token"), ("sub/static.json", "shown")];
    let folder = Folder::new("{}", false, &files);
    assert_eq!(
        (folder.get("/static.json").0, folder.get("/.env").0, folder.get("/sub/../.env").0),
        (404, 404, 404)
    );
    assert_eq!((folder.get("/.well-known/acme"), folder.get("/sub/static.json")), (ok("token"), ok("shown")));
    assert_eq!((folder.get("/%00").0, folder.get("/..").0, folder.get("/a%2fb").0), (400, 400, 404));
}

#[test]
fn error_pages_keep_their_status_and_the_rules_of_the_path() {
    let rules = r#"{"error_page": "errors/oops.html", "headers": {"/x": {"X-A": "1"}}}"#;
    let folder = Folder::new(rules, false, &[("errors/oops.html", "oops"), ("404.html", "other")]);
    let missing = folder.response("GET", "/x", &[]);
    assert_eq!(
        (missing.status, text(&missing).as_str(), field(&missing, "x-a").as_str()),
        (404, "oops", "1")
    );
    let folder = Folder::new("{}", false, &[("404.html", "own")]);
    assert_eq!(text(&folder.response("GET", "/x", &[])), "own");
}

#[test]
fn error_pages_and_listings_are_compressed() {
    let page = "<p>nothing is here</p>\n".repeat(200);
    let folder = Folder::new("{}", false, &[("404.html", &page)]);
    let gzip = [("Accept-Encoding", "gzip"), ("Range", "bytes=0-1"), ("If-None-Match", "*")];
    let missing = folder.response("GET", "/x", &gzip);
    assert_eq!((missing.status, field(&missing, "content-encoding").as_str()), (404, "gzip"));
    assert_eq!((field(&missing, "vary").as_str(), field(&missing, "etag").as_str()), ("Accept-Encoding", ""));
    assert!(text(&missing).len() < page.len() / 4);
    let plain = folder.response("GET", "/x", &[]);
    assert_eq!((text(&plain), field(&plain, "vary").as_str()), (page.clone(), "Accept-Encoding"));

    let folder = Folder::new("{}", false, &[("404.html", &page), ("404.html.gz", "beside")]);
    let beside = folder.response("GET", "/x", &gzip);
    assert_eq!(
        (beside.status, text(&beside).as_str(), field(&beside, "content-encoding").as_str()),
        (404, "beside", "gzip")
    );

    let names: Vec<String> = (0..100).map(|n| format!("name-{n}.txt")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "x")).collect();
    let folder = Folder::new(r#"{"directory_listing": true}"#, false, &files);
    let listing = folder.response("GET", "/", &gzip);
    assert_eq!((listing.status, field(&listing, "content-encoding").as_str()), (200, "gzip"));
}

#[test]
fn in_front_of_an_app() {
    let rules = r#"{"redirects": {"/old": {"url": "/new"}}, "headers": {"/**": {"X-A": "1"}}}"#;
    let folder = Folder::new(rules, true, &[("a.txt", "text")]);
    assert_eq!((folder.get("/a.txt"), folder.get("/old").0), (ok("text"), 301));
    for (method, target) in [("GET", "/b"), ("POST", "/a.txt"), ("GET", "/a%2fb"), ("OPTIONS", "*")] {
        let SiteResult::App(edits) = folder.ask(method, target, &[]) else {
            panic!("{method} {target} is the app's")
        };
        let mut response = Response::text(200, "text/plain", "app");
        folder.site.finish(&edits, &mut response);
        assert_eq!(field(&response, "x-a"), if target == "*" { "" } else { "1" });
    }
}

#[test]
fn no_path_bypasses_the_password() {
    let dir = tempfile::tempdir().unwrap();
    let parsed = Rules::parse("static.json", r#"{"basic_auth": true}"#, &|_| None).unwrap();
    let config = SiteConfig {
        root: dir.path().to_owned(),
        rules: Arc::new(parsed.rules),
        users: Some(Arc::new(auth::Users::parse(".htpasswd", "u:{PLAIN}p").unwrap())),
        before_app: true,
        private: Vec::new(),
        bounds: CacheBounds { files: 64, bytes: 1 << 20 },
    };
    let folder = Folder { dir, site: Site::new(config, Box::new(|what| panic!("{what}"))) };
    for (method, target) in [
        ("GET", "/x"),
        ("POST", "/x"),
        ("GET", "/a%2f..%2fx"),
        ("GET", "/%zz"),
        ("GET", "/.."),
        ("OPTIONS", "*"),
    ] {
        assert_eq!(folder.response(method, target, &[]).status, 401, "{method} {target}");
        let known = folder.ask(method, target, &[("Authorization", "Basic dTpw")]);
        assert!(matches!(known, SiteResult::App(_)), "{method} {target}");
    }
}

#[test]
fn a_proxy_gets_the_mapped_target_and_its_location_is_mapped_back() {
    let rules = r#"{"proxies": {"/api": {"origin": "http://127.0.0.1:1/v1/"}}}"#;
    let folder = Folder::new(rules, false, &[("api/file", "file")]);
    assert_eq!(folder.get("/api/file"), ok("file"));
    let SiteResult::Proxy(forwarding) = folder.ask("PUT", "/api/x%20y?q=1", &[]) else {
        panic!("the proxy's")
    };
    assert_eq!((forwarding.id, forwarding.target.as_slice()), (0, &b"/v1/x%20y?q=1"[..]));
    let SiteResult::Proxy(encoded) = folder.ask("GET", "/api/a%2fb", &[]) else { panic!("the proxy's") };
    assert_eq!(encoded.target, b"/v1/a%2fb");
    let mut response = Response::empty(302);
    response.fields.push(b"Location", b"http://127.0.0.1:1/v1/there");
    folder.site.finish(&forwarding.edits, &mut response);
    assert_eq!(field(&response, "location"), "/api/there");
}

#[test]
fn codings() {
    let long = "text ".repeat(500);
    let folder = Folder::new(
        "{}",
        false,
        &[("a.txt", &long), ("b.txt", &long), ("b.txt.gz", "side-car"), ("c.png", &long)],
    );
    let ask = |target, coding| folder.response("GET", target, &[("Accept-Encoding", coding)]);
    let coded = ask("/a.txt", "gzip, br");
    assert_eq!(
        (field(&coded, "content-encoding").as_str(), field(&coded, "vary").as_str()),
        ("br", "Accept-Encoding")
    );
    assert!(field(&coded, "etag").starts_with("W/") && field(&coded, "accept-ranges").is_empty());
    let again = folder.response(
        "GET",
        "/a.txt",
        &[("Accept-Encoding", "br"), ("If-None-Match", &field(&coded, "etag"))],
    );
    assert_eq!((again.status, field(&again, "etag")), (304, field(&coded, "etag")));
    let side_car = ask("/b.txt", "gzip");
    assert_eq!(
        (text(&side_car).as_str(), field(&side_car, "content-type").as_str()),
        ("side-car", "text/plain; charset=utf-8")
    );
    assert!(field(&side_car, "etag").starts_with('"'));
    assert_eq!(field(&ask("/b.txt", "gzip;q=0"), "content-encoding"), "");
    let image = ask("/c.png", "gzip");
    assert_eq!((field(&image, "content-encoding").as_str(), field(&image, "vary").as_str()), ("", ""));
    let range = folder.response("GET", "/a.txt", &[("Accept-Encoding", "br"), ("Range", "bytes=0-3")]);
    assert_eq!((range.status, text(&range).as_str()), (206, "text"));
}

#[test]
fn listings_only_when_enabled() {
    let files = [("docs/b.txt", "b"), ("docs/.hidden", "")];
    assert_eq!(Folder::new("{}", false, &files).get("/docs/").0, 404);
    let folder = Folder::new(r#"{"directory_listing": true}"#, false, &files);
    let (status, page) = folder.get("/docs/");
    assert!(status == 200 && page.contains("b.txt") && !page.contains(".hidden"), "{page}");
    assert_eq!(folder.get("/docs"), (301, "/docs/".to_owned()));
}
