//! One site on one front thread: a request goes in, an answer comes out, in the order that `static.json` prescribes.

use crate::auth::{self, Gatekeeper};
use crate::coding::{self, Coding, Preferences};
use crate::files::coder::Coder;
use crate::files::document::Document;
use crate::files::path::{Malformed, SitePath, has_hidden_name, percent_encode};
use crate::files::presentation::{Presentation, Style, apply};
use crate::files::respond::Responder;
use crate::files::root::{Glance, Root};
use crate::files::store::{Bounds, Found, READ_BELOW, Store};
use crate::files::wishes::{Wishes, preferences};
use crate::listing;
use crate::page::{redirect, status_page};
use crate::rules::{self, Asked, Rules, Step};
use handler::{Body, Fields, FileRegion, Request, Response};
use quick_cache::unsync::Cache;
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Instant;

/// What a site is made of.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The directory that files come from.
    pub root: PathBuf,
    /// The rules.
    pub rules: Arc<Rules>,
    /// Who may come in; `None` when everybody may.
    pub users: Option<Arc<auth::Users>>,
    /// An app answers what the site does not.
    pub before_app: bool,
    /// Files at the top of the root that are not shown: configuration.
    pub private: Vec<String>,
    /// What one front thread may keep.
    pub bounds: Bounds,
}

/// What becomes of a request.
pub enum Answer {
    /// The response.
    Response(Response),
    /// An origin answers; then [`Site::finish`].
    Proxy(Forwarding),
    /// The app answers; then [`Site::finish`].
    App(After),
}

/// A request for an origin.
pub struct Forwarding {
    /// Index into the rules' proxies.
    pub id: usize,
    /// Path and query to ask for.
    pub target: Vec<u8>,
    /// What is to be done to the response.
    pub after: After,
}

/// What is still to be done to a response that somebody else makes.
#[derive(Default)]
pub struct After {
    fields: Vec<(String, String)>,
    proxy: Option<usize>,
    codings: Option<Preferences>,
}

/// Paths that are remembered with what they lead to.
const PATHS: usize = 16_384;
/// Longer paths are not remembered.
const MAX_PATH: usize = 512;
/// From how many bytes on a file is compressed, in the buildpack and here.
const COMPRESS_FROM: u64 = 512;
/// Names in a listing.
const MAX_LISTED: usize = 10_000;

/// One site on one front thread.
pub struct Site {
    rules: Arc<Rules>,
    gatekeeper: Option<Gatekeeper>,
    before_app: bool,
    private: Vec<String>,
    responder: Responder,
    resolved: RefCell<Cache<Box<[u8]>, Rc<Resolved>>>,
    complain: Box<dyn Fn(&str)>,
}

/// What a path led to.
struct Resolved {
    /// The path, decoded.
    path: SitePath,
    document: Weak<Document>,
    presentation: Presentation,
    /// What was looked for first, and was not a file: it still has to be so.
    before: Vec<(Box<str>, Glance)>,
    checked: Cell<Instant>,
    /// The epoch of the watches in which all of it is covered.
    covered: Cell<Option<u64>>,
}

impl Resolved {
    fn cover(&self, store: &Store, now: Instant) -> Option<u64> {
        let mut epoch = None;
        for (path, _) in &self.before {
            epoch = Some(store.cover(path, None, now).filter(|_| !store.root.is_link(path))?);
        }
        epoch
    }
}

/// What a walk through the steps found.
enum Outcome {
    File(Rc<Document>),
    MoveTo(String),
    Listing(String),
    Proxy(usize),
    Redirect(usize, Vec<String>),
    Forbidden,
    Missing,
    Failed(String),
}

impl Site {
    /// A site whose failures are told to `complain`.
    pub fn new(plan: Plan, complain: Box<dyn Fn(&str)>) -> Site {
        let rules = &plan.rules;
        let style = Style {
            charset: (!rules.encoding().is_empty()).then(|| rules.encoding().to_ascii_lowercase()),
            compat: rules.compat(),
            compress: rules.compress(),
            precompressed: rules.precompressed() && !rules.compat(),
        };
        let responder = Responder {
            store: Store::new(Root::new(plan.root), plan.bounds),
            coder: Coder::new(plan.bounds.bytes / 2, COMPRESS_FROM),
            style,
        };
        Site {
            rules: plan.rules,
            gatekeeper: plan.users.map(Gatekeeper::new),
            before_app: plan.before_app,
            private: plan.private,
            responder,
            resolved: RefCell::new(Cache::new(PATHS.min(plan.bounds.files))),
            complain,
        }
    }

    /// The rules that it goes by.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Answers a request, or says who does.
    pub async fn answer(&self, request: &Request) -> Answer {
        match self.remembered(request) {
            Some((resolved, document)) => self.known(request, &resolved, &document).await,
            None => self.look_up(request).await,
        }
    }

    /// What the request's path led to before, if it still does.
    fn remembered(&self, request: &Request) -> Option<(Rc<Resolved>, Rc<Document>)> {
        if !matches!(request.method(), b"GET" | b"HEAD") {
            return None;
        }
        let now = request.arrived;
        let resolved = self.resolved.borrow().get(request.path()).cloned()?;
        if !self.responder.store.look(now) {
            return None;
        }
        let document = resolved.document.upgrade()?;
        if !self.responder.store.is_current(&document, now) {
            return None;
        }
        let store = &self.responder.store;
        if !resolved.before.is_empty()
            && !store.is_trusted(resolved.covered.get(), resolved.checked.get(), now)
        {
            let covered = resolved.cover(store, now);
            if !resolved.before.iter().all(|(path, was)| store.root.glance(path) == *was) {
                return None;
            }
            resolved.checked.set(now);
            resolved.covered.set(covered);
        }
        Some((resolved, document))
    }

    async fn known(&self, request: &Request, resolved: &Resolved, document: &Rc<Document>) -> Answer {
        if let Some(refused) = self.refuse(request, resolved.path.as_str()).await {
            return refused;
        }
        let plain = Wishes::of(request).are_plain(resolved.presentation.codable);
        let answer = if plain {
            self.responder.plain(request, document, &resolved.presentation)
        } else {
            self.responder.respond(request, document, &resolved.presentation).await
        };
        match answer {
            Ok(response) => Answer::Response(response),
            // It changed between the look and the read.
            Err(_) => self.look_up(request).await,
        }
    }

    async fn look_up(&self, request: &Request) -> Answer {
        let path = match SitePath::decode(request.path()) {
            Ok(path) => path,
            Err(_) if self.before_app => return Answer::App(After::default()),
            Err(_) if request.path() == b"*" && request.method() == b"OPTIONS" => {
                return Answer::Response(allowed(204));
            }
            Err(Malformed) => return Answer::Response(status_page(400)),
        };
        if let Some(refused) = self.refuse(request, path.as_str()).await {
            return refused;
        }
        // A file that changes each time it is looked at is not there.
        for _ in 0..3 {
            if let Some(answer) = self.walk(request, &path).await {
                return answer;
            }
        }
        self.failed(request, &path, 500, "a file changes faster than it can be read").await
    }

    /// The redirect or the refusal that comes before everything else.
    async fn refuse(&self, request: &Request, path: &str) -> Option<Answer> {
        if self.rules.has_gate()
            && let Some(to) = self.rules.gate(&asked(request, path))
        {
            return Some(self.dressed(path, redirect(to.status, &to.location)));
        }
        let gatekeeper = self.gatekeeper.as_ref()?;
        if gatekeeper.admits(request.fields.get("authorization")).await.is_some() {
            return None;
        }
        let mut response = status_page(401);
        let (name, value) = auth::challenge("Restricted");
        response.fields.push(name.as_bytes(), value.as_bytes());
        Some(self.dressed(path, response))
    }

    /// `None` when a file changed between being found and being read.
    async fn walk(&self, request: &Request, path: &SitePath) -> Option<Answer> {
        let mut before = Vec::new();
        let reads = matches!(request.method(), b"GET" | b"HEAD");
        self.responder.store.look(request.arrived);
        Some(match self.first(request, path, &mut before) {
            Outcome::File(document) if reads => {
                let presentation = self.present(path.as_str(), &document);
                let response = self.responder.respond(request, &document, &presentation).await.ok()?;
                self.remember(request, path, &document, presentation, before);
                Answer::Response(response)
            }
            Outcome::File(_) | Outcome::Listing(_) if request.method() == b"OPTIONS" => {
                self.dressed(path.as_str(), allowed(204))
            }
            Outcome::File(_) | Outcome::Listing(_) if !reads => self.dressed(path.as_str(), allowed(405)),
            Outcome::File(_) => unreachable!("a file that is not read was answered above"),
            Outcome::MoveTo(to) => {
                let mut location = percent_encode(&to).into_bytes();
                if !request.query().is_empty() {
                    location.push(b'?');
                    location.extend_from_slice(request.query());
                }
                self.dressed(path.as_str(), redirect(301, &location))
            }
            Outcome::Listing(directory) => match self.listing(&directory, path.as_str()) {
                Ok(response) => self.dressed(path.as_str(), response),
                Err(error) => self.failed(request, path, 500, &format!("{directory}: {error}")).await,
            },
            Outcome::Proxy(id) => Answer::Proxy(Forwarding {
                id,
                target: self.rules.upstream_target(id, &asked(request, path.as_str())),
                after: After { proxy: Some(id), ..self.after(request, path.as_str()) },
            }),
            Outcome::Redirect(id, captures) => {
                let to = self.rules.redirect(id, &captures, &asked(request, path.as_str()));
                self.dressed(path.as_str(), redirect(to.status, &to.location))
            }
            Outcome::Forbidden => self.error_page(request, path, 403),
            Outcome::Missing if self.before_app => Answer::App(self.after(request, path.as_str())),
            Outcome::Missing => self.error_page(request, path, 404),
            Outcome::Failed(why) => self.failed(request, path, 500, &why).await,
        })
    }

    /// The first step that answers. `before` gets what was looked for in vain.
    fn first(&self, request: &Request, path: &SitePath, before: &mut Vec<(Box<str>, Glance)>) -> Outcome {
        let reads = matches!(request.method(), b"GET" | b"HEAD");
        let files = (reads || !self.before_app) && !path.has_encoded_slash();
        for step in self.rules.steps(path.as_str()) {
            let outcome = match step {
                Step::File { path, answer, .. } if files => self.file(request, &path, answer, before),
                Step::Target { path, .. } if files => self.file(request, &path, rules::Answer::Serve, before),
                Step::Directory { path, answer, forbidden, .. } if files => {
                    self.directory(request, &path, answer, forbidden, before)
                }
                Step::File { .. } | Step::Target { .. } | Step::Directory { .. } => None,
                Step::Proxy { id, .. } => Some(Outcome::Proxy(id)),
                Step::Redirect { id, captures, .. } => Some(Outcome::Redirect(id, captures)),
                Step::Missing { .. } => Some(Outcome::Missing),
            };
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
        Outcome::Missing
    }

    fn file(
        &self,
        request: &Request,
        path: &str,
        answer: rules::Answer,
        before: &mut Vec<(Box<str>, Glance)>,
    ) -> Option<Outcome> {
        let below = self.shown(path)?;
        match self.find(request, below) {
            Found::File(document) => Some(match answer {
                rules::Answer::Serve => Outcome::File(document),
                rules::Answer::MoveTo(to) => Outcome::MoveTo(to),
            }),
            found => trouble(found, below, before),
        }
    }

    fn directory(
        &self,
        request: &Request,
        path: &str,
        answer: rules::Answer,
        forbidden: bool,
        before: &mut Vec<(Box<str>, Glance)>,
    ) -> Option<Outcome> {
        let below = match path {
            "/" => ".",
            path => self.shown(path)?,
        };
        match self.find(request, below) {
            Found::Directory => {}
            Found::File(_) => return None,
            found => return trouble(found, below, before),
        }
        for index in self.rules.index() {
            let file = if below == "." { index.clone() } else { format!("{below}/{index}") };
            match self.find(request, &file) {
                Found::File(document) => {
                    return Some(match answer {
                        rules::Answer::Serve => Outcome::File(document),
                        rules::Answer::MoveTo(to) => Outcome::MoveTo(to),
                    });
                }
                found => {
                    if let Some(outcome) = trouble(found, &file, before) {
                        return Some(outcome);
                    }
                }
            }
        }
        if self.rules.directory_listing() {
            return Some(match answer {
                rules::Answer::Serve => Outcome::Listing(below.to_owned()),
                rules::Answer::MoveTo(to) => Outcome::MoveTo(to),
            });
        }
        before.push((below.into(), Glance::Directory));
        forbidden.then(|| match answer {
            rules::Answer::Serve => Outcome::Forbidden,
            rules::Answer::MoveTo(to) => Outcome::MoveTo(to),
        })
    }

    fn find(&self, request: &Request, below: &str) -> Found {
        self.responder.store.find(below, request.arrived, request.received)
    }

    /// The path below the root of a name that may be shown.
    fn shown<'p>(&self, path: &'p str) -> Option<&'p str> {
        let below = path.strip_prefix('/').unwrap_or(path);
        let shown =
            !below.is_empty() && !has_hidden_name(below) && !self.private.iter().any(|name| name == below);
        shown.then_some(below)
    }

    fn present(&self, path: &str, document: &Document) -> Presentation {
        let mut fields = self.fields(path);
        if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("cache-control"))
            && let Some(value) = self.rules.cache_control(&format!("/{}", document.path))
        {
            fields.push(("Cache-Control".to_owned(), value.to_owned()));
        }
        Presentation::new(document, fields, &self.responder.style)
    }

    fn remember(
        &self,
        request: &Request,
        path: &SitePath,
        document: &Rc<Document>,
        presentation: Presentation,
        before: Vec<(Box<str>, Glance)>,
    ) {
        if request.path().len() > MAX_PATH {
            return;
        }
        let resolved = Resolved {
            path: path.clone(),
            document: Rc::downgrade(document),
            presentation,
            before,
            checked: Cell::new(request.arrived),
            covered: Cell::new(None),
        };
        self.resolved.borrow_mut().insert(request.path().into(), Rc::new(resolved));
    }

    fn listing(&self, directory: &str, path: &str) -> std::io::Result<Response> {
        let found = self.responder.store.root.list(directory, MAX_LISTED)?;
        let at_top = directory == ".";
        let entries = found
            .into_iter()
            .filter(|(name, _)| !(at_top && self.private.contains(name)))
            .map(|(name, metadata)| listing::Entry {
                name,
                directory: metadata.is_dir(),
                size: metadata.len(),
                modified: metadata.modified().ok(),
            })
            .collect();
        let path = if path.ends_with('/') { path.to_owned() } else { format!("{path}/") };
        Ok(Response::text(200, "text/html; charset=utf-8", listing::page(&path, entries)))
    }

    /// A status with the site's own page, if it has one.
    fn error_page(&self, request: &Request, path: &SitePath, status: u16) -> Answer {
        let own = self.rules.error_page().filter(|_| matches!(status, 404 | 500));
        let default = (status == 404 && !self.rules.compat()).then_some("404.html");
        let name = own.or(default).map(|name| name.trim_start_matches('/'));
        let page = name.and_then(|name| match self.find(request, name) {
            Found::File(document) => self.page(status, &document),
            _ => None,
        });
        self.dressed(path.as_str(), page.unwrap_or_else(|| status_page(status)))
    }

    fn page(&self, status: u16, document: &Document) -> Option<Response> {
        let body = match document.len() {
            0 => Body::Empty,
            len if len <= READ_BELOW => Body::Bytes(self.responder.store.bytes(document).ok()?),
            len => Body::File(FileRegion { file: document.file.clone(), offset: 0, len }),
        };
        let style = &self.responder.style;
        let content_type =
            crate::media_type::content_type(&document.path, style.charset.as_deref(), style.compat);
        let mut fields = Fields::default();
        fields.push(b"Content-Type", content_type.as_bytes());
        Some(Response { status, fields, body, close: false })
    }

    async fn failed(&self, request: &Request, path: &SitePath, status: u16, why: &str) -> Answer {
        (self.complain)(&format!("{status} for {}: {why}", path.as_str().escape_debug()));
        self.error_page(request, path, status)
    }

    fn fields(&self, path: &str) -> Vec<(String, String)> {
        self.rules
            .headers(path)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    fn dressed(&self, path: &str, mut response: Response) -> Answer {
        apply(&mut response.fields, self.rules.headers(path).into_iter());
        Answer::Response(response)
    }

    fn after(&self, request: &Request, path: &str) -> After {
        let coded = self.rules.compress() && Wishes::of(request).coding;
        After { fields: self.fields(path), proxy: None, codings: coded.then(|| preferences(request)) }
    }

    /// Does to a response of an origin or the app what the rules say.
    pub fn finish(&self, after: &After, response: &mut Response) {
        if let Some(id) = after.proxy
            && let Some(location) = response.fields.get("location")
            && let Some(back) = self.rules.location_back(id, location)
        {
            response.fields.retain(|name, _| !name.eq_ignore_ascii_case(b"location"));
            response.fields.push(b"Location", &back);
        }
        if after.proxy.is_some() && self.may_code(response) {
            let coding = after.codings.map_or(Coding::Identity, |codings| self.quick(&codings));
            coding::code_response(response, coding);
        }
        apply(&mut response.fields, after.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    }
}

impl Site {
    /// Whether what an origin answers may be compressed on its way.
    fn may_code(&self, response: &Response) -> bool {
        let style = &self.responder.style;
        let min = if style.compat { COMPRESS_FROM } else { coding::MIN_LENGTH };
        let fits =
            |content_type: &[u8]| std::str::from_utf8(content_type).is_ok_and(|text| style.compresses(text));
        style.compress
            && coding::may_code(response, min)
            && response.fields.get("content-type").is_some_and(fits)
    }

    /// The coding for what is made anew for each request: brotli, which is slow, only when nothing else is taken.
    fn quick(&self, codings: &Preferences) -> Coding {
        let compat = self.responder.style.compat;
        let quick =
            |coding| matches!(coding, Coding::Gzip | Coding::Identity) || (coding == Coding::Zstd && !compat);
        match codings.best(quick) {
            Some(Coding::Identity) | None
                if !compat && codings.accepts(Coding::Br) && !codings.accepts(Coding::Gzip) =>
            {
                Coding::Br
            }
            best => best.unwrap_or(Coding::Identity),
        }
    }
}

/// What a find that found no file means; `None`: the next step.
fn trouble(found: Found, below: &str, before: &mut Vec<(Box<str>, Glance)>) -> Option<Outcome> {
    match found {
        Found::Forbidden => Some(Outcome::Forbidden),
        Found::Trouble(error) => Some(Outcome::Failed(format!("{below}: {error}"))),
        Found::Directory => {
            before.push((below.into(), Glance::Directory));
            None
        }
        Found::File(_) | Found::Missing => {
            before.push((below.into(), Glance::Missing));
            None
        }
    }
}

fn asked<'a>(request: &'a Request, path: &'a str) -> Asked<'a> {
    Asked {
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

/// 204 to OPTIONS, 405 to what files do not understand.
fn allowed(status: u16) -> Response {
    let mut response = if status == 204 { Response::empty(204) } else { status_page(status) };
    response.fields.push(b"Allow", b"GET, HEAD, OPTIONS");
    response
}

#[cfg(test)]
#[path = "site_tests.rs"]
mod tests;
