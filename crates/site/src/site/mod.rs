//! One site on one front thread: a request goes in, an answer comes out, in the order that `static.json` prescribes.

mod finish;
mod memory;
mod pages;
mod walk;

pub use finish::After;

use crate::auth::{self, Gatekeeper};
use crate::files::coder::Coder;
use crate::files::document::Document;
use crate::files::path::{SitePath, Unnameable, percent_encode};
use crate::files::presentation::{Presentation, Style, apply};
use crate::files::respond::Responder;
use crate::files::root::Root;
use crate::files::store::{Bounds, Store};
use crate::page::{redirect, status_page};
use crate::rules::{Asked, Rules};
use handler::{Request, Response};
use memory::{Memory, Remembered, What};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use walk::Outcome;

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

/// From how many bytes on a file is compressed, in the buildpack and here.
const COMPRESS_FROM: u64 = 512;

/// One site on one front thread.
pub struct Site {
    rules: Arc<Rules>,
    gatekeeper: Option<Gatekeeper>,
    before_app: bool,
    private: Vec<String>,
    responder: Responder,
    memory: Memory,
    complain: Box<dyn Fn(&str)>,
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
            memory: Memory::new(plan.bounds.files),
            complain,
        }
    }

    /// Answers a request, or says who does.
    pub async fn answer(&self, request: &Request) -> Answer {
        if let Some(remembered) = self.memory.recall(request, &self.responder.store)
            && let Some(answer) = self.again(request, &remembered).await
        {
            return answer;
        }
        self.look_up(request).await
    }

    /// What answered the path before; `None` when it would not answer this request, or not any more.
    async fn again(&self, request: &Request, remembered: &Remembered) -> Option<Answer> {
        let path = remembered.path.as_str();
        let only_for_reads = self.before_app || matches!(remembered.what, What::File(..));
        if only_for_reads && !is_read(request) {
            return None;
        }
        if let Some(refused) = self.refuse(request, path).await {
            return Some(refused);
        }
        match &remembered.what {
            What::File(document, presentation) => {
                let document = document.upgrade()?;
                self.responder.respond(request, &document, presentation).await.ok().map(Answer::Response)
            }
            What::Proxy(id, fields) => Some(self.forward(request, path, *id, fields)),
            What::App(fields) => Some(Answer::App(After::app(fields))),
        }
    }

    async fn look_up(&self, request: &Request) -> Answer {
        let path = match SitePath::decode(request.path()) {
            Ok(path) => path,
            // Whatever the app makes of such a path: nobody gets past the password with it.
            Err(_) if self.before_app => {
                let path = String::from_utf8_lossy(request.path());
                return self.refuse(request, &path).await.unwrap_or_else(|| Answer::App(After::default()));
            }
            Err(_) if request.path() == b"*" && request.method() == b"OPTIONS" => {
                return Answer::Response(allowed(204));
            }
            Err(Unnameable::Malformed) => return Answer::Response(status_page(400)),
            Err(Unnameable::Ambiguous) => return Answer::Response(status_page(404)),
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
        self.failed(request, &path, 500, "a file changes faster than it can be read")
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
        let reads = is_read(request);
        self.responder.store.look(request.arrived);
        Some(match self.first(request, path, &mut before) {
            Outcome::File(_) | Outcome::Listing(_) if request.method() == b"OPTIONS" => {
                self.dressed(path.as_str(), allowed(204))
            }
            Outcome::File(_) | Outcome::Listing(_) if !reads => self.dressed(path.as_str(), allowed(405)),
            Outcome::File(document) => {
                let presentation = self.present(path.as_str(), &document);
                let response = self.responder.respond(request, &document, &presentation).await.ok()?;
                self.memory.keep(request, path, What::File(Rc::downgrade(&document), presentation), before);
                Answer::Response(response)
            }
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
                Err(error) => self.failed(request, path, 500, &format!("{directory}: {error}")),
            },
            Outcome::Proxy(id) => {
                let fields = self.fields(path.as_str());
                let answer = self.forward(request, path.as_str(), id, &fields);
                self.memory.keep(request, path, What::Proxy(id, fields), before);
                answer
            }
            Outcome::Redirect(id, captures) => {
                let to = self.rules.redirect(id, &captures, &asked(request, path.as_str()));
                self.dressed(path.as_str(), redirect(to.status, &to.location))
            }
            Outcome::Forbidden => self.error_page(request, path, 403),
            Outcome::Missing if self.before_app => {
                let fields = self.fields(path.as_str());
                let answer = Answer::App(After::app(&fields));
                if reads {
                    self.memory.keep(request, path, What::App(fields), before);
                }
                answer
            }
            Outcome::Missing => self.error_page(request, path, 404),
            Outcome::Failed(why) => self.failed(request, path, 500, &why),
        })
    }

    fn present(&self, path: &str, document: &Document) -> Presentation {
        let mut fields = self.fields(path).to_vec();
        if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("cache-control"))
            && let Some(value) = self.rules.cache_control(&format!("/{}", document.path))
        {
            fields.push(("Cache-Control".to_owned(), value.to_owned()));
        }
        Presentation::new(self.responder.store.next_id(), document, fields, &self.responder.style)
    }

    fn fields(&self, path: &str) -> Rc<[(String, String)]> {
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
}

/// Whether a request only reads: files answer no others.
fn is_read(request: &Request) -> bool {
    matches!(request.method(), b"GET" | b"HEAD")
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
mod tests;
