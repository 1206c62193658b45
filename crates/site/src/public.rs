//! Files below an app's `public` directory, served before the app sees the request.
//!
//! Why here: a file takes a Ruby thread far longer than it takes the front, and a slow reader of a large file would occupy
//! that thread.
//!
//! Contract:
//! 1. Only GET and HEAD for a readable regular file are served; everything else goes to the app.
//! 2. A request whose first name is not in the directory costs at most one system call once the directory has not changed
//!    for two seconds, and none when there is no directory. A directory that is created is noticed within a second.
//! 3. A `PublicFiles` belongs to one thread.

use crate::files::compression_cache::CompressionCache;
use crate::files::document::Document;
use crate::files::path::first_name;
use crate::files::presentation::{FileOptions, Presentation};
use crate::files::respond::Responder;
use crate::files::root::Root;
use crate::files::store::{Bounds, Lookup, Store};
use crate::public_path::FilePath;
use handler::{Request, Response};
use std::path::PathBuf;
use std::rc::Rc;

/// Smaller files are sent uncompressed.
const COMPRESS_FROM: u64 = 1024;

/// The files of one directory.
#[derive(Debug)]
pub struct PublicFiles {
    responder: Responder,
}

/// A file found for a request.
#[derive(Debug)]
pub struct PublicFile(Rc<Document>);

impl PublicFiles {
    /// The files below `root`, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>, bounds: Bounds) -> PublicFiles {
        let options = FileOptions {
            charset: Some("utf-8".to_owned()),
            compat: false,
            compress: true,
            precompressed: true,
        };
        let store = Store::new(Root::with_names(root.into()), bounds);
        PublicFiles {
            responder: Responder {
                store,
                compressed: CompressionCache::new(bounds.bytes / 2, COMPRESS_FROM),
                options,
            },
        }
    }

    /// The file for a request; `None` when the request is for the app.
    pub fn find(&self, request: &Request) -> Option<PublicFile> {
        let store = &self.responder.store;
        if store.root.is_absent(request.arrived) || !matches!(request.method(), b"GET" | b"HEAD") {
            return None;
        }
        let path = FilePath::decode(request.path())?;
        if !store.refresh(request.arrived) {
            return None;
        }
        if path.directory_name().is_some_and(|name| !store.root.may_have(name)) {
            return None;
        }
        let mut likely = path.candidates().filter(|path| store.root.may_have(first_name(path)));
        likely.find_map(|path| match store.find(&path, request.arrived, request.received) {
            Lookup::File(document) => Some(PublicFile(document)),
            _ => None,
        })
    }

    /// The response: 200, 206, 304, 412 or 416; `None` when the file is gone. The response to HEAD has a body, too, so that its
    /// length is known; the protocol layer omits it.
    pub async fn respond(&self, request: &Request, mut file: PublicFile) -> Option<Response> {
        for _ in 0..3 {
            let presentation = Presentation::new(file.0.id, &file.0, Vec::new(), &self.responder.options);
            if let Ok(response) = self.responder.respond(request, &file.0, &presentation).await {
                return Some(response);
            }
            file = self.find(request)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::root::RECHECK_AFTER;
    use crate::testing::{field, request, text, wait};
    use handler::Body;

    const BOUNDS: Bounds = Bounds { files: 16, bytes: 1 << 20 };

    fn site() -> (tempfile::TempDir, PublicFiles) {
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
        let files = PublicFiles::new(dir.path(), BOUNDS);
        (dir, files)
    }

    fn ask(files: &PublicFiles, method: &str, target: &str, fields: &[(&str, &str)]) -> Option<Response> {
        // Later than the result of the last check may be reused.
        std::thread::sleep(RECHECK_AFTER);
        let request = request(method, target, fields);
        let file = files.find(&request)?;
        wait(files.respond(&request, file))
    }

    #[test]
    fn pages_are_found_like_rails_does() {
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
    fn everything_else_goes_to_the_app() {
        let (_dir, files) = site();
        for target in ["/missing", "/docs", "/about/", "/.env", "/%2e%2e/x", "*", "/docs/missing"] {
            assert!(ask(&files, "GET", target, &[]).is_none(), "{target}");
        }
        for method in ["POST", "PUT", "OPTIONS", "DELETE", "get"] {
            assert!(ask(&files, method, "/about", &[]).is_none(), "{method}");
        }
        assert!(ask(&PublicFiles::new("/nonexistent", BOUNDS), "GET", "/", &[]).is_none());
    }

    #[test]
    fn head_has_the_fields_of_get() {
        let (_dir, files) = site();
        let [get, head] =
            ["GET", "HEAD"].map(|method| ask(&files, method, "/app.js", &[("Range", "bytes=0-1")]).unwrap());
        assert_eq!((get.status, head.status), (206, 200));
        assert_eq!((text(&head).len(), field(&head, "etag")), (10, field(&get, "etag")));
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
        let several = ask(&files, "GET", "/app.js", &[("Range", "bytes=0-1,4-5")]).unwrap();
        assert_eq!((several.status, matches!(several.body, Body::Stream(_))), (206, true));
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
    fn an_empty_file_is_served() {
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
