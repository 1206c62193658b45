//! Sends the files that an app's middleware would send, before the app sees the request.
//!
//! Why here: a file takes a Ruby thread far longer than the front, and a slow reader of a large file would
//! occupy that thread. The app describes its middleware's handling of files ([`app_files`]), and the front
//! sends them in the same way ([`rule`]).
//!
//! Contract:
//! 1. Only GET and HEAD for a readable regular file are served. All other requests go to the app, and so does
//!    a request that the app's middleware might have refused.
//! 2. A request whose first name is not in the directory costs at most one system call once the directory has
//!    not changed for two seconds, and none if there is no directory. A new directory is noticed within a
//!    second.
//! 3. Symbolic links are followed wherever they lead, as the app would: `public/assets` may be a link to a
//!    folder that releases share.
//! 4. A `PublicFiles` belongs to one thread.

mod app_files;
mod path;
mod rule;

pub use app_files::{AppFiles, FilesNote, Wanted};
pub(crate) use rule::Types;

use crate::files::compression_cache::CompressionCache;
use crate::files::document::Document;
use crate::files::path::first_name;
use crate::files::presentation::{FileOptions, Presentation};
use crate::files::respond::Responder;
use crate::files::root::Root;
use crate::files::store::{CacheBounds, FileStore, Lookup};
use crate::media_type;
use app_files::{FileMiddleware, Mount};
use handler::{Request, Response};
use path::FilePath;
use quick_cache::unsync::Cache;
use rule::FileRule;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Smaller files are sent uncompressed.
const COMPRESS_FROM: u64 = 1024;

#[derive(Debug)]
pub struct PublicFiles {
    mounts: Vec<Mounted>,
}

/// The files below a path.
#[derive(Debug)]
struct Mounted {
    location: Box<[u8]>,
    rules: Vec<Rc<Served>>,
}

/// A directory, and how to send its files.
#[derive(Debug)]
struct Served {
    rule: FileRule,
    types: Arc<Types>,
    responder: Responder,
    /// By the document's id.
    presentations: RefCell<Cache<u64, Rc<Presentation>>>,
}

#[derive(Debug)]
pub struct PublicFile {
    document: Rc<Document>,
    presentation: Rc<Presentation>,
    served: Rc<Served>,
    path: FilePath,
}

impl PublicFiles {
    /// Creates the files from an app's description. Directories need not exist yet.
    pub fn new(files: &AppFiles, bounds: CacheBounds) -> PublicFiles {
        let share = files.roots().count().max(1);
        let bounds =
            CacheBounds { files: (bounds.files / share).max(16), bytes: bounds.bytes / share as u64 };
        let rule = |part: &FileMiddleware| match part {
            FileMiddleware::Rule(rule) => {
                Some(Rc::new(Served::new(FileRule::clone(rule), files.types.clone(), bounds)))
            }
            FileMiddleware::App { .. } => None,
        };
        let mounted = |mount: &Mount| Mounted {
            location: mount.location.as_bytes().into(),
            rules: mount.parts.iter().filter_map(rule).collect(),
        };
        let mut mounts: Vec<Mounted> = files.mounts.iter().map(mounted).collect();
        // The longest location comes first, as in Rack::URLMap.
        mounts.sort_by_key(|mount| std::cmp::Reverse(mount.location.len()));
        PublicFiles { mounts }
    }

    /// Gives back what is kept only to save work, because memory is scarce.
    pub fn give_back(&self) {
        self.mounts.iter().flat_map(|mount| &mount.rules).for_each(|served| served.responder.give_back());
    }

    /// Returns the file for a request; `None` if the request is for the app.
    pub fn find(&self, request: &Request) -> Option<PublicFile> {
        if !matches!(request.method(), b"GET" | b"HEAD") {
            return None;
        }
        let path = request.path();
        let below = |mount: &&Mounted| {
            let rest = path.strip_prefix(&*mount.location);
            rest.is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b'/'))
        };
        let mount = self.mounts.iter().find(below)?;
        if mount.rules.iter().all(|served| served.responder.store.root.is_absent(request.arrived)) {
            return None;
        }
        let path = FilePath::decode(&path[mount.location.len()..])?;
        for served in mount.rules.iter().filter(|served| served.rule.concerns(&path)) {
            match served.find(request, &path) {
                Some((document, presentation)) => {
                    let admitted = served.rule.admits(request, &presentation.content_type);
                    let served = served.clone();
                    return admitted.then_some(PublicFile { document, presentation, served, path });
                }
                None if served.rule.falls_through => {}
                None => return None,
            }
        }
        None
    }
}

impl Served {
    fn new(rule: FileRule, types: Arc<Types>, bounds: CacheBounds) -> Served {
        let options = FileOptions {
            charset: rule.charset.clone(),
            compat: false,
            compress: true,
            precompressed: rule.codings.clone(),
        };
        let store = FileStore::new(Root::with_names(rule.root.clone()).following(), bounds);
        let compressed = CompressionCache::new(bounds.bytes / 2, COMPRESS_FROM);
        Served {
            rule,
            types,
            responder: Responder { store, compressed, options },
            presentations: RefCell::new(Cache::new(bounds.files)),
        }
    }

    fn find(&self, request: &Request, path: &FilePath) -> Option<(Rc<Document>, Rc<Presentation>)> {
        let store = &self.responder.store;
        if store.root.is_absent(request.arrived) || !store.refresh(request.arrived) {
            return None;
        }
        // The path may be mapped to another file name, and with `chomp` a trailing slash need not mean a directory.
        let mapped = !self.rule.exact.is_empty() || self.rule.chomp && path.is_directory();
        if !mapped && path.directory_name().is_some_and(|name| !store.root.may_have(name)) {
            return None;
        }
        let candidates = self.rule.candidates(path, &self.types);
        let mut likely = candidates.iter().filter(|path| store.root.may_have(first_name(path)));
        likely.find_map(|path| match store.find(path, request.arrived, request.received) {
            Lookup::File(document) => Some((document.clone(), self.present(&document))),
            _ => None,
        })
    }

    /// Returns the fields of a file's responses.
    fn present(&self, document: &Document) -> Rc<Presentation> {
        if let Some(known) = self.presentations.borrow().get(&document.id) {
            return known.clone();
        }
        let options = &self.responder.options;
        let file = &document.path;
        let content_type = match self.rule.content_type(file, &self.types) {
            Some(own) => media_type::with_charset(own, options.charset.as_deref()),
            None => media_type::content_type(file, options.charset.as_deref(), false),
        };
        let fields = self.rule.fields(file, &content_type);
        let presentation =
            Rc::new(Presentation::of_type(document.id, document, content_type, fields, options));
        self.presentations.borrow_mut().insert(document.id, presentation.clone());
        presentation
    }
}

impl PublicFile {
    /// Returns the response: 200, 206, 304, 412 or 416; `None` if the file is gone. The response to HEAD has
    /// a body too, so that its length is known; the protocol layer omits it.
    pub async fn respond(mut self, request: &Request) -> Option<Response> {
        for _ in 0..3 {
            let responder = &self.served.responder;
            if let Ok(response) = responder.respond(request, &self.document, &self.presentation).await {
                return Some(response);
            }
            (self.document, self.presentation) = self.served.find(request, &self.path)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::root::RECHECK_AFTER;
    use crate::testing::{field, text, wait};
    use handler::Body;
    use handler::testing::request;
    use std::path::Path;

    const BOUNDS: CacheBounds = CacheBounds { files: 16, bytes: 1 << 20 };

    /// The files of a directory that an operator has named.
    fn asked(dir: &Path) -> PublicFiles {
        let (files, _) = AppFiles::default().settle(Wanted::Named(dir), |one, other| one == other);
        PublicFiles::new(&files, BOUNDS)
    }

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
        let files = asked(dir.path());
        (dir, files)
    }

    fn ask(files: &PublicFiles, method: &str, target: &str, fields: &[(&str, &str)]) -> Option<Response> {
        // Waits until the result of the last check must not be reused.
        std::thread::sleep(RECHECK_AFTER);
        let request = request(method, target, fields);
        let file = files.find(&request)?;
        wait(file.respond(&request))
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
        assert!(ask(&asked(Path::new("/nonexistent")), "GET", "/", &[]).is_none());
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

    /// The files of an app that has sent these lines; `ROOT` stands for the directory.
    fn told(dir: &Path, lines: &[&str]) -> PublicFiles {
        let lines: Vec<String> =
            lines.iter().map(|line| line.replace("ROOT", &dir.display().to_string())).collect();
        let app = AppFiles::read(lines.iter().map(String::as_str));
        PublicFiles::new(&app.settle(Wanted::Auto(dir), |one, other| one == other).0, BOUNDS)
    }

    const RAILS: [&str; 8] = [
        "mount\t",
        "rule\tActionDispatch::Static\tROOT",
        "chomp",
        "typed",
        "next",
        "try\t.html",
        "try\t/index.html",
        "default-type\ttext/plain",
    ];

    #[test]
    fn files_are_sent_as_rails_would() {
        let (dir, _) = site();
        let fields =
            ["header\tall\tCache-Control\tpublic, max-age=9", "types\thtml=text/html\tjs=text/javascript"];
        let files = told(dir.path(), &[&RAILS[..], &fields].concat());
        for (target, wanted) in
            [("/", "home"), ("/about", "about"), ("/about/", "about"), ("/docs", "docs"), ("/docs/", "docs")]
        {
            let response = ask(&files, "GET", target, &[]).unwrap_or_else(|| panic!("{target}"));
            assert_eq!(
                (text(&response).as_str(), field(&response, "content-type").as_str()),
                (wanted, "text/html")
            );
            assert_eq!(field(&response, "cache-control"), "public, max-age=9", "{target}");
        }
        assert_eq!(field(&ask(&files, "GET", "/logo.png", &[]).unwrap(), "content-type"), "text/plain");
        std::fs::write(dir.path().join("x.js.html"), "not for x.js").unwrap();
        assert!(ask(&files, "GET", "/x.js", &[]).is_none());
    }

    #[test]
    fn requests_that_the_app_may_refuse_are_its_own() {
        let (dir, _) = site();
        let with = |lines: &[&str]| told(dir.path(), &[&RAILS[..], lines].concat());
        let asks =
            |files: &PublicFiles, fields: &[(&str, &str)]| ask(files, "GET", "/app.js", fields).is_some();
        assert!(!asks(&with(&["https"]), &[]) && !asks(&with(&["behind\tRack::Auth::Basic"]), &[]));
        // The requests are for example.org.
        for (host, ours) in
            [("example.org", true), (".org", true), (".example.org", true), ("other.org", false)]
        {
            assert_eq!(asks(&with(&[&format!("host\t{host}")]), &[]), ours, "{host}");
        }
        let forwarded = with(&["host\texample.org", "unless\tX-Forwarded-Host"]);
        assert!(asks(&forwarded, &[]) && !asks(&forwarded, &[("X-Forwarded-Host", "evil")]));
        let typed = with(&["unless\tReferer\ttext/plain", "spoofing"]);
        assert!(asks(&typed, &[]) && !asks(&typed, &[("Referer", "http://x/")]));
        let named = [("X-Forwarded-For", "192.0.2.1, 192.0.2.2"), ("X-Real-IP", "192.0.2.2")];
        assert!(asks(&typed, &named) && !asks(&typed, &[named[0], ("X-Real-IP", "192.0.2.3")]));
    }

    #[test]
    fn paths_prefixes_and_mounts() {
        let (dir, _) = site();
        let files = told(
            dir.path(),
            &[
                "mount\t",
                "rule\tRack::Static\tROOT",
                "prefix\t/docs",
                "index\tindex.html",
                "mount\t/files",
                "rule\tRack::Files\tROOT",
            ],
        );
        assert_eq!(text(&ask(&files, "GET", "/docs/", &[]).unwrap()), "docs");
        assert_eq!(text(&ask(&files, "GET", "/files/about.html", &[]).unwrap()), "about");
        for target in ["/about.html", "/docs", "/docsy", "/files", "/files/about", "/filesabout.html"] {
            assert!(ask(&files, "GET", target, &[]).is_none(), "{target}");
        }
        let map = ["mount\t", "rule\tRack::Static\tROOT", "map\t/\t/index.html"];
        assert_eq!(text(&ask(&told(dir.path(), &map), "GET", "/", &[]).unwrap()), "home");
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
