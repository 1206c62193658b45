//! Runs one site on one front thread: takes a request, returns a response, in the order that `static.json` specifies.

mod finish;
mod pages;
mod path_cache;
mod walk;

pub use finish::ResponseEdits;

use crate::files::compression_cache::CompressionCache;
use crate::files::document::Document;
use crate::files::path::{PathError, SitePath, percent_encode};
use crate::files::presentation::{FileOptions, Presentation, apply};
use crate::files::respond::Responder;
use crate::files::root::Root;
use crate::files::store::{CacheBounds, FileStore};
use crate::page::{redirect, status_page};
use crate::rules::{RequestView, Rules};
use auth::{Authenticator, PasswordClient, TooManyChecks};
use handler::{Failure, PeerAddr, Request, Response};
use path_cache::{CachedPath, PathCache, Target};
use representation::coding::Coding;
use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use walk::WalkResult;

#[derive(Debug, Clone)]
pub struct SiteConfig {
    /// The directory that files come from.
    pub root: PathBuf,
    pub rules: Arc<Rules>,
    /// The users that are admitted; `None` if the site is public.
    pub users: Option<Arc<auth::Users>>,
    /// Requests without a file or rule of the site go to an app.
    pub before_app: bool,
    /// Configuration files at the top of the root, which are not served.
    pub private: Vec<String>,
    /// The limits of the caches of one front thread.
    pub bounds: CacheBounds,
}

/// The result for a request.
pub enum SiteResult {
    Response(Response),
    /// An origin responds; then call [`Site::finish`].
    Proxy(Forwarding),
    /// The app responds; then call [`Site::finish`].
    App(ResponseEdits),
}

/// A request for an origin.
pub struct Forwarding {
    /// An index into the rules' proxies.
    pub id: usize,
    /// The path and query to request.
    pub target: Vec<u8>,
    /// The changes to make to the response.
    pub edits: ResponseEdits,
}

/// The smallest file that is compressed, in bytes; the buildpack's value.
const COMPRESS_FROM: u64 = 512;

/// One site on one front thread.
pub struct Site {
    rules: Arc<Rules>,
    authenticator: Option<Authenticator>,
    before_app: bool,
    private: Vec<String>,
    responder: Responder,
    paths: PathCache,
    log_error: Box<dyn Fn(&str)>,
    /// When a link that leads out of the root was last logged.
    refused: Cell<Option<Instant>>,
}

impl Site {
    /// Creates a site that reports failures to `log_error`.
    pub fn new(config: SiteConfig, log_error: Box<dyn Fn(&str)>) -> Site {
        let rules = &config.rules;
        let options = FileOptions {
            charset: (!rules.encoding().is_empty()).then(|| rules.encoding().to_ascii_lowercase()),
            compat: rules.compat(),
            compress: rules.compress(),
            precompressed: if rules.precompressed() && !rules.compat() {
                vec![Coding::Br, Coding::Zstd, Coding::Gzip]
            } else {
                Vec::new()
            },
        };
        // Before an app, links are followed, as the app would.
        let root = Root::new(config.root);
        let root = if config.before_app { root.following() } else { root };
        let responder = Responder {
            store: FileStore::new(root, config.bounds),
            compressed: CompressionCache::new(config.bounds.bytes / 2, COMPRESS_FROM),
            options,
        };
        Site {
            rules: config.rules,
            authenticator: config.users.map(Authenticator::new),
            before_app: config.before_app,
            private: config.private,
            responder,
            paths: PathCache::new(config.bounds.files),
            log_error,
            refused: Cell::new(None),
        }
    }

    /// Gives back what is kept only to save work, because memory is scarce.
    pub fn give_back(&self) {
        self.responder.give_back();
    }

    /// Responds to a request, or returns its destination.
    pub async fn respond(&self, request: &Request) -> SiteResult {
        if let Some(cached) = self.paths.get(request, &self.responder.store)
            && let Some(outcome) = self.outcome_from_cache(request, &cached).await
        {
            return outcome;
        }
        self.resolve(request).await
    }

    /// Uses the cached result for the path; `None` if it does not apply to this request or is outdated.
    async fn outcome_from_cache(&self, request: &Request, cached: &CachedPath) -> Option<SiteResult> {
        let path = cached.path.as_str();
        let only_for_reads = self.before_app || matches!(cached.target, Target::File(..));
        if only_for_reads && !is_read(request) {
            return None;
        }
        if let Some(refused) = self.refuse(request, path).await {
            return Some(refused);
        }
        match &cached.target {
            Target::File(document, presentation) => {
                let document = document.upgrade()?;
                self.responder.respond(request, &document, presentation).await.ok().map(SiteResult::Response)
            }
            Target::Proxy(id, fields) => Some(self.forward(request, path, *id, fields)),
            Target::App(fields) => Some(SiteResult::App(ResponseEdits::app(fields))),
        }
    }

    async fn resolve(&self, request: &Request) -> SiteResult {
        let path = match SitePath::decode(request.path()) {
            Ok(path) => path,
            // However the app handles such a path, it must not bypass the password.
            Err(_) if self.before_app => {
                let path = String::from_utf8_lossy(request.path());
                return self
                    .refuse(request, &path)
                    .await
                    .unwrap_or_else(|| SiteResult::App(ResponseEdits::default()));
            }
            Err(_) if request.path() == b"*" && request.method() == b"OPTIONS" => {
                return SiteResult::Response(allowed(204));
            }
            Err(PathError::Malformed) => return SiteResult::Response(status_page(400)),
            Err(PathError::Ambiguous) => return SiteResult::Response(status_page(404)),
        };
        if let Some(refused) = self.refuse(request, path.as_str()).await {
            return refused;
        }
        // After three changes in a row, give up.
        for _ in 0..3 {
            if let Some(outcome) = self.walk(request, &path).await {
                return outcome;
            }
        }
        self.failed(request, &path, 500, "the file changes faster than it can be read").await
    }

    /// Returns the redirect or the 401 that comes before everything else.
    async fn refuse(&self, request: &Request, path: &str) -> Option<SiteResult> {
        if self.rules.has_gate()
            && let Some(to) = self.rules.gate(&view(request, path))
        {
            return Some(self.with_headers(path, redirect(to.status, &to.location)));
        }
        let authenticator = self.authenticator.as_ref()?;
        let client = || client_of(request);
        match authenticator.authenticate(request.fields.get("authorization"), client).await {
            Ok(Some(_)) => return None,
            Ok(None) => {}
            Err(busy) => return Some(SiteResult::Response(too_busy(busy).into_response())),
        }
        let mut response = status_page(401);
        let (name, value) = auth::challenge("Restricted");
        response.fields.push(name.as_bytes(), value.as_bytes());
        Some(self.with_headers(path, response))
    }

    /// Returns `None` if a file changed between being found and being read.
    async fn walk(&self, request: &Request, path: &SitePath) -> Option<SiteResult> {
        let mut misses = Vec::new();
        let reads = is_read(request);
        self.responder.store.refresh(request.arrived);
        Some(match self.first(request, path, &mut misses) {
            WalkResult::File(_) | WalkResult::Listing(_) if request.method() == b"OPTIONS" => {
                self.with_headers(path.as_str(), allowed(204))
            }
            WalkResult::File(_) | WalkResult::Listing(_) if !reads => {
                self.with_headers(path.as_str(), allowed(405))
            }
            WalkResult::File(document) => {
                let presentation = self.present(path.as_str(), &document);
                let response = self.responder.respond(request, &document, &presentation).await.ok()?;
                self.paths.insert(
                    request,
                    path,
                    Target::File(Rc::downgrade(&document), presentation),
                    misses,
                );
                SiteResult::Response(response)
            }
            WalkResult::MoveTo(to) => {
                let mut location = percent_encode(&to).into_bytes();
                if !request.query().is_empty() {
                    location.push(b'?');
                    location.extend_from_slice(request.query());
                }
                self.with_headers(path.as_str(), redirect(301, &location))
            }
            WalkResult::Listing(directory) => match self.listing(request, &directory, path.as_str()) {
                Ok(response) => self.with_headers(path.as_str(), response),
                Err(error) => self.failed(request, path, 500, &format!("{directory}: {error}")).await,
            },
            WalkResult::Proxy(id) => {
                let fields = self.fields(path.as_str());
                let outcome = self.forward(request, path.as_str(), id, &fields);
                self.paths.insert(request, path, Target::Proxy(id, fields), misses);
                outcome
            }
            WalkResult::Redirect(id, captures) => {
                let to = self.rules.redirect(id, &captures, &view(request, path.as_str()));
                self.with_headers(path.as_str(), redirect(to.status, &to.location))
            }
            WalkResult::Forbidden => self.error_page(request, path, 403).await,
            WalkResult::Missing if self.before_app => {
                let fields = self.fields(path.as_str());
                let outcome = SiteResult::App(ResponseEdits::app(&fields));
                if reads {
                    self.paths.insert(request, path, Target::App(fields), misses);
                }
                outcome
            }
            WalkResult::Missing => self.error_page(request, path, 404).await,
            WalkResult::Failed(why) => self.failed(request, path, 500, &why).await,
        })
    }

    fn present(&self, path: &str, document: &Document) -> Presentation {
        let mut fields = self.fields(path).to_vec();
        if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("cache-control"))
            && let Some(value) = self.rules.cache_control(&format!("/{}", document.path))
        {
            fields.push(("Cache-Control".to_owned(), value.to_owned()));
        }
        Presentation::new(self.responder.store.next_id(), document, fields, &self.responder.options)
    }

    fn fields(&self, path: &str) -> Rc<[(String, String)]> {
        self.rules
            .headers(path)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    fn with_headers(&self, path: &str, mut response: Response) -> SiteResult {
        apply(&mut response.fields, self.rules.headers(path).into_iter());
        SiteResult::Response(response)
    }
}

/// Returns whether a request only reads: files accept no other requests.
fn is_read(request: &Request) -> bool {
    matches!(request.method(), b"GET" | b"HEAD")
}

fn view<'a>(request: &'a Request, path: &'a str) -> RequestView<'a> {
    RequestView {
        path,
        raw_path: request.path(),
        query: request.query(),
        host: request.authority(),
        https: request.https,
        forwarded_proto: request.fields.get("x-forwarded-proto"),
        remote: &request.peer.remote_text,
        fields: &request.fields,
    }
}

/// Returns a 204 for OPTIONS, or a 405 for methods that files do not support.
fn allowed(status: u16) -> Response {
    let mut response = if status == 204 { Response::empty(204) } else { status_page(status) };
    response.fields.push(b"Allow", b"GET, HEAD, OPTIONS");
    response
}

/// Identifies the client in the queue of password checks.
fn client_of(request: &Request) -> PasswordClient {
    let peer = &request.peer;
    match peer.remote {
        PeerAddr::Inet(address) => {
            PasswordClient::new(peer.remote_text.as_bytes(), &address.port().to_ne_bytes())
        }
        // Each connection has its own peer.
        PeerAddr::Unix => PasswordClient::new(b"", &(Rc::as_ptr(peer) as usize).to_ne_bytes()),
    }
}

fn too_busy(busy: TooManyChecks) -> Failure {
    match busy {
        TooManyChecks::Client => Failure {
            retry: Some(1),
            ..Failure::client(429, "too many passwords of this connection wait to be checked")
        },
        TooManyChecks::Server => Failure::busy("too many passwords wait to be checked"),
    }
}

#[cfg(test)]
mod tests;
