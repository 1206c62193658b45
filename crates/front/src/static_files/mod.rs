//! Files below the app's `public` directory are answered before the app is asked.
//!
//! Why here: a file costs a thread of Ruby far more than it costs the front, and slow readers of large files would
//! hold that thread.
//!
//! Contract:
//! 1. Only GET and HEAD for a readable regular file are answered; everything else is the app's (`None`).
//! 2. No path, and no symbolic link, leads out of the directory. A link with an absolute target counts as leading out.
//! 3. A request whose first name is not in the directory costs at most one system call, once the directory has not
//!    changed for two seconds, and none when there is no directory; that one has come into being is noticed within
//!    a second.
//! 4. An instance belongs to one thread.

mod conditions;
mod path;
mod range;
mod root;

use conditions::{Validators, Verdict};
use handler::{Body, Fields, FileRegion, Request, Response};
use path::FilePath;
use range::Range;
use root::{Found, Root};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::rc::Rc;

/// The files of one directory.
#[derive(Debug)]
pub struct StaticFiles {
    root: Root,
}

impl StaticFiles {
    /// The files below `root`, which need not exist (yet).
    pub fn new(root: impl Into<PathBuf>) -> StaticFiles {
        StaticFiles { root: Root::new(root.into()) }
    }

    /// The answer to a GET or HEAD for a file: 200, 206, 304, 412 or 416; `None` when the app is to answer. The answer
    /// to HEAD has its body, too, so that its length is known; sending it is the protocol side's to omit.
    pub fn answer(&self, request: &Request) -> Option<Response> {
        if self.root.is_absent(request.arrived) || !matches!(request.method(), b"GET" | b"HEAD") {
            return None;
        }
        let path = FilePath::decode(request.path())?;
        let found = self.root.find(&path, request.arrived)?;
        Some(respond(request, found))
    }
}

fn respond(request: &Request, found: Found) -> Response {
    let (metadata, len) = (&found.metadata, found.metadata.len());
    let validators = Validators::new(len, metadata.mtime(), metadata.mtime_nsec(), request.received);
    match validators.judge(&request.fields) {
        Verdict::PreconditionFailed => return bare(412, Fields::default()),
        Verdict::NotModified => return bare(304, version_fields(&validators)),
        Verdict::Proceed => {}
    }
    let mut fields = version_fields(&validators);
    fields.push(b"Accept-Ranges", b"bytes");
    match wanted(request, &validators, len) {
        Range::Unsatisfiable => {
            fields.push(b"Content-Range", format!("bytes */{len}").as_bytes());
            bare(416, fields)
        }
        Range::Full => whole(200, fields, found, 0, len),
        Range::Part { first, last } => {
            fields.push(b"Content-Range", format!("bytes {first}-{last}/{len}").as_bytes());
            whole(206, fields, found, first, last - first + 1)
        }
    }
}

/// Ranges are for GET (RFC 9110 section 14.2); of two Range fields neither counts.
fn wanted(request: &Request, validators: &Validators, len: u64) -> Range {
    let mut values = request.fields.all("range");
    match (values.next(), values.next()) {
        (Some(value), None) if request.method() == b"GET" && validators.range_counts(&request.fields) => {
            range::parse(value, len)
        }
        _ => Range::Full,
    }
}

fn version_fields(validators: &Validators) -> Fields {
    let mut fields = Fields::default();
    fields.push(b"ETag", validators.etag.as_bytes());
    fields.push(b"Last-Modified", httpdate::fmt_http_date(validators.modified).as_bytes());
    fields
}

fn bare(status: u16, fields: Fields) -> Response {
    Response { status, fields, body: Body::Empty, close: false }
}

fn whole(status: u16, mut fields: Fields, found: Found, offset: u64, len: u64) -> Response {
    fields.push(b"Content-Type", content_type(&found.path).as_bytes());
    let body = match len {
        0 => Body::Empty,
        _ => Body::File(FileRegion { file: Rc::new(found.file), offset, len }),
    };
    Response { status, fields, body, close: false }
}

/// By the name's extension; text is taken for UTF-8.
fn content_type(path: &str) -> String {
    let mime = mime_guess::from_path(path).first_or_octet_stream();
    let text = mime.type_() == mime_guess::mime::TEXT || mime.subtype() == "javascript";
    if text && mime.get_param("charset").is_none() {
        format!("{mime}; charset=utf-8")
    } else {
        mime.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log::request_for_tests::request;
    use std::os::unix::fs::FileExt;

    fn site() -> (tempfile::TempDir, StaticFiles) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("docs")).unwrap();
        let files = [
            ("index.html", "home"),
            ("about.html", "about"),
            ("docs/index.html", "docs"),
            ("app.js", "0123456789"),
            ("logo.png", "png"),
            ("empty.txt", ""),
            (".env", "SECRET=1"),
        ];
        files.iter().for_each(|(name, text)| std::fs::write(dir.path().join(name), text).unwrap());
        let files = StaticFiles::new(dir.path());
        (dir, files)
    }

    fn ask(files: &StaticFiles, method: &str, target: &str, fields: &[(&str, &str)]) -> Option<Response> {
        files.answer(&request(method, target, fields))
    }

    fn text(response: &Response) -> String {
        match &response.body {
            Body::File(region) => {
                let mut bytes = vec![0; region.len as usize];
                region.file.read_exact_at(&mut bytes, region.offset).unwrap();
                String::from_utf8(bytes).unwrap()
            }
            _ => String::new(),
        }
    }

    fn field(response: &Response, name: &str) -> String {
        String::from_utf8_lossy(response.fields.get(name).unwrap_or_default()).into_owned()
    }

    #[test]
    fn pages_are_found_as_rails_finds_them() {
        let (_dir, files) = site();
        let pages = [
            ("/", "home"),
            ("/index.html", "home"),
            ("/about", "about"),
            ("/about?x=/../", "about"),
            ("/docs/", "docs"),
        ];
        for (target, wanted) in pages {
            let response = ask(&files, "GET", target, &[]).unwrap();
            assert_eq!((response.status, text(&response).as_str()), (200, wanted), "{target}");
            assert_eq!(field(&response, "content-type"), "text/html; charset=utf-8");
        }
    }

    #[test]
    fn the_rest_is_the_apps() {
        let (_dir, files) = site();
        for target in ["/missing", "/docs", "/about/", "/.env", "/%2e%2e/x", "*", "/docs/missing"] {
            assert!(ask(&files, "GET", target, &[]).is_none(), "{target}");
        }
        for method in ["POST", "PUT", "OPTIONS", "DELETE", "get"] {
            assert!(ask(&files, method, "/about", &[]).is_none(), "{method}");
        }
        assert!(ask(&StaticFiles::new("/nonexistent"), "GET", "/", &[]).is_none());
    }

    #[test]
    fn head_says_what_get_would() {
        let (_dir, files) = site();
        let [get, head] =
            ["GET", "HEAD"].map(|method| ask(&files, method, "/app.js", &[("Range", "bytes=0-1")]).unwrap());
        assert_eq!((get.status, head.status), (206, 200));
        assert_eq!((text(&head).len(), field(&head, "etag")), (10, field(&get, "etag")));
    }

    #[test]
    fn types_and_charsets() {
        let types = ["a.css", "a.js", "a.json", "a.svg", "a.png", "a.txt", "a", "a.unheard-of", "a.wasm"]
            .map(content_type);
        assert_eq!(
            types,
            [
                "text/css; charset=utf-8",
                "text/javascript; charset=utf-8",
                "application/json",
                "image/svg+xml",
                "image/png",
                "text/plain; charset=utf-8",
                "application/octet-stream",
                "application/octet-stream",
                "application/wasm",
            ]
        );
    }

    #[test]
    fn ranges() {
        let (_dir, files) = site();
        let part = ask(&files, "GET", "/app.js", &[("Range", "bytes=2-4")]).unwrap();
        assert_eq!(
            (part.status, text(&part).as_str(), field(&part, "content-range").as_str()),
            (206, "234", "bytes 2-4/10")
        );
        let beyond = ask(&files, "GET", "/app.js", &[("Range", "bytes=10-")]).unwrap();
        assert_eq!((beyond.status, field(&beyond, "content-range").as_str()), (416, "bytes */10"));
        assert!(matches!(beyond.body, Body::Empty));
        let several = ask(&files, "GET", "/app.js", &[("Range", "bytes=0-1,3-4")]).unwrap();
        assert_eq!((several.status, text(&several).len()), (200, 10));
        let stale =
            ask(&files, "GET", "/app.js", &[("Range", "bytes=0-1"), ("If-Range", "\"old\"")]).unwrap();
        assert_eq!(stale.status, 200);
    }

    #[test]
    fn conditions() {
        let (dir, files) = site();
        let first = ask(&files, "GET", "/logo.png", &[]).unwrap();
        let (etag, modified) = (field(&first, "etag"), field(&first, "last-modified"));
        let fresh = ask(&files, "GET", "/logo.png", &[("If-None-Match", &etag)]).unwrap();
        assert_eq!((fresh.status, field(&fresh, "etag")), (304, etag.clone()));
        assert!(matches!(fresh.body, Body::Empty) && fresh.fields.get("content-length").is_none());
        assert_eq!(
            ask(&files, "HEAD", "/logo.png", &[("If-Modified-Since", &modified)]).unwrap().status,
            304
        );
        assert_eq!(ask(&files, "GET", "/logo.png", &[("If-Match", "\"other\"")]).unwrap().status, 412);
        std::fs::write(dir.path().join("logo.png"), "another").unwrap();
        assert_eq!(ask(&files, "GET", "/logo.png", &[("If-None-Match", &etag)]).unwrap().status, 200);
    }

    #[test]
    fn an_empty_file_is_a_file() {
        let (_dir, files) = site();
        let empty = ask(&files, "GET", "/empty.txt", &[]).unwrap();
        assert_eq!(
            (empty.status, field(&empty, "content-type").as_str()),
            (200, "text/plain; charset=utf-8")
        );
        assert!(matches!(empty.body, Body::Empty));
        assert_eq!(ask(&files, "GET", "/empty.txt", &[("Range", "bytes=0-")]).unwrap().status, 416);
    }
}
