//! Live reload of static sites (`site.live_reload`): a page in a browser changes when its file is saved.
//!
//! Why: the author of a site looks at it after each change. A page that is loaded again loses its place and what was typed into it, so the script
//! changes only the parts that differ.
//!
//! Contract:
//! 1. Pages of HTML get a script, and have no validators. Everything of the site is sent whole and uncompressed, because a request does not tell
//!    whether it is for a page; so origins of proxies get requests without conditions.
//! 2. The script listens to Server-Sent Events at [`EVENTS`]. An event has the paths that have changed since the one before.
//! 3. The folder is looked at only while there are listeners. Both addresses are as protected as the site.

mod tree;

use bytes::Bytes;
use handler::{Body, BodyStream, Chunk, Failure, Fields, Request, Response};
use net::task::spawn_local;
use std::cell::{Cell, RefCell};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tree::FileTree;

/// The addresses of the events and of the script. Names that begin with a dot are never files of a site.
const EVENTS: &[u8] = b"/.firebrick/live";
const SCRIPT: &[u8] = b"/.firebrick/live.js";
const SCRIPT_TEXT: &str = include_str!("live.js");
const TAG: &str = "<script src=\"/.firebrick/live.js\"></script>";
/// The longest page that gets the script.
const LONGEST: u64 = 8 << 20;
/// The interval between two looks at the folder.
const LOOK: Duration = Duration::from_millis(150);
/// The longest time for which further changes are waited for: a generator writes one file after the other.
const SETTLES: Duration = Duration::from_secs(2);
/// The interval of comments while nothing changes, which show that a client has gone.
const COMMENT: Duration = Duration::from_secs(10);

/// The listeners of a site on one thread.
pub(crate) struct LivePages {
    root: PathBuf,
    listeners: RefCell<Vec<mpsc::UnboundedSender<Bytes>>>,
    is_watching: Cell<bool>,
    /// The server stops.
    is_closed: Cell<bool>,
}

impl LivePages {
    pub(crate) fn new(root: PathBuf) -> Rc<LivePages> {
        let (is_watching, is_closed) = (Cell::new(false), Cell::new(false));
        Rc::new(LivePages { root, listeners: RefCell::default(), is_watching, is_closed })
    }

    /// Lets a page come whole and uncompressed.
    pub(crate) fn prepare(&self, request: &mut Request) {
        const LEFT_OUT: [&str; 5] =
            ["accept-encoding", "range", "if-range", "if-none-match", "if-modified-since"];
        request
            .fields
            .retain(|name, _| !LEFT_OUT.iter().any(|left| name.eq_ignore_ascii_case(left.as_bytes())));
    }

    /// Completes the site's response: a page gets the script; an address of live reload, which is none of the site, its own response.
    pub(crate) fn complete(self: &Rc<Self>, request: &Request, response: Response) -> Response {
        let is_get = request.method() == b"GET";
        // The rules may have a page for every path. Redirects and 401 of the site are for these addresses, too.
        if is_get && matches!(response.status, 200 | 403 | 404) {
            match request.path() {
                EVENTS => return self.listen(),
                SCRIPT => return script(),
                _ => {}
            }
        }
        let is_page = response.fields.get("content-type").is_some_and(|kind| kind.starts_with(b"text/html"));
        if is_page && is_get { with_script(response) } else { response }
    }

    fn listen(self: &Rc<Self>) -> Response {
        let mut fields = Fields::default();
        if self.is_closed.get() {
            // A browser does not ask again after this status.
            return Response::new(204, fields, Body::Empty);
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        // The receiver is here.
        let _ = sender.send(Bytes::from_static(b"retry: 300\n\n"));
        self.listeners.borrow_mut().push(sender);
        if !self.is_watching.replace(true) {
            spawn_local(watch(Rc::downgrade(self), self.root.clone()));
        }
        fields.push(b"Content-Type", b"text/event-stream");
        fields.push(b"Cache-Control", b"no-store");
        Response::new(200, fields, Body::Stream(Box::new(LiveEvents(receiver))))
    }

    /// Sends bytes to all listeners. Returns whether there are any.
    fn send(&self, bytes: &Bytes) -> bool {
        let mut listeners = self.listeners.borrow_mut();
        listeners.retain(|listener| listener.send(bytes.clone()).is_ok());
        !listeners.is_empty()
    }

    /// Ends all responses with events, because the server stops.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
        self.listeners.borrow_mut().clear();
    }
}

/// The body of a response with events.
struct LiveEvents(mpsc::UnboundedReceiver<Bytes>);

impl BodyStream for LiveEvents {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        self.0.poll_recv(cx).map(|event| event.map(|bytes| Ok(Chunk::Bytes(bytes))))
    }

    fn half_closed(&mut self) {
        // Browsers close the whole connection, so the client has gone.
        self.0.close();
    }
}

/// Looks for changes as long as there are listeners.
async fn watch(live: Weak<LivePages>, root: PathBuf) {
    let mut before = look(&root).await;
    let mut last = Instant::now();
    loop {
        tokio::time::sleep(LOOK).await;
        let mut after = look(&root).await;
        let since = Instant::now();
        while after != before && since.elapsed() < SETTLES {
            tokio::time::sleep(LOOK).await;
            let next = look(&root).await;
            if next == after {
                break;
            }
            after = next;
        }
        let Some(live) = live.upgrade() else { return };
        let changed = before.changes(&after);
        before = after;
        let event = if !changed.is_empty() {
            format!("data: {}\n\n", serde_json::json!(changed))
        } else if last.elapsed() >= COMMENT {
            ":\n\n".to_owned()
        } else {
            if live.listeners.borrow().is_empty() {
                live.is_watching.set(false);
                return;
            }
            continue;
        };
        last = Instant::now();
        if !live.send(&event.into()) {
            live.is_watching.set(false);
            return;
        }
    }
}

/// Reads the folder on another thread: it may be large, or slow.
async fn look(root: &std::path::Path) -> FileTree {
    let root = root.to_owned();
    tokio::task::spawn_blocking(move || FileTree::read(&root)).await.unwrap_or_default()
}

fn script() -> Response {
    let mut response = Response::text(200, "text/javascript; charset=utf-8", SCRIPT_TEXT.to_owned());
    response.fields.push(b"Cache-Control", b"no-store");
    response
}

/// Adds the script to a page. A page that is too long or cannot be read stays as it is.
fn with_script(mut response: Response) -> Response {
    let Some(page) = whole(&response.body) else { return response };
    let end = page.to_ascii_lowercase().windows(7).rposition(|part| part == b"</body>").unwrap_or(page.len());
    let (before, after) = page.split_at(end);
    response.body = Body::Bytes([before, TAG.as_bytes(), after].concat().into());
    const OF_THE_FILE: [&str; 5] =
        ["content-length", "etag", "last-modified", "accept-ranges", "cache-control"];
    response.fields.retain(|name, _| !OF_THE_FILE.iter().any(|of| name.eq_ignore_ascii_case(of.as_bytes())));
    response.fields.push(b"Cache-Control", b"no-store");
    response
}

/// Returns a body; `None` if it is too long or cannot be read.
fn whole(body: &Body) -> Option<Bytes> {
    match body {
        Body::File(region) if region.len <= LONGEST => {
            let mut page = vec![0; usize::try_from(region.len).ok()?];
            region.file.shared().read_exact_at(&mut page, region.offset).ok()?;
            Some(page.into())
        }
        Body::Kept(kept) => Some(kept.body().clone()),
        Body::Bytes(bytes) => Some(bytes.clone()),
        // Only a coding makes a page of a site a stream, and none was asked for.
        Body::Stream(_) | Body::Empty | Body::File(_) | Body::Tunnel { .. } => None,
    }
}
