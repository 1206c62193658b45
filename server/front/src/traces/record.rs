//! The facts about a request that are kept until the export: plain data, collected when the request ends and
//! encoded elsewhere.

use handler::{Ending, Fault, Request, Version};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use trace::Active;

/// The longest recorded path or user agent, in bytes.
const LONGEST: usize = 2_048;

/// The kind of a span (`SpanKind`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanKind {
    Internal = 1,
    Server = 2,
    Client = 3,
}

/// Start and end of a span, in nanoseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timed {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The part of the server that made the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    /// The app. CPU time and GVL wait are known for some requests only.
    App { worker: u16, cpu_us: Option<u32>, gvl_us: Option<u32> },
    /// An origin behind the reverse proxy.
    Origin,
    /// A mruby handler.
    Handler,
}

/// The error of a failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// `error.type`: the status, or a word.
    pub(crate) kind: String,
    /// Text for people. May be empty.
    pub(crate) reason: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) trace: [u8; 16],
    pub(crate) parent: Option<[u8; 8]>,
    pub(crate) server: [u8; 8],
    pub(crate) handler: [u8; 8],
    pub(crate) flags: u8,
    pub(crate) state: Box<str>,
    pub(crate) whole: Timed,
    pub(crate) queue: Option<([u8; 8], Timed)>,
    pub(crate) served: Option<(Served, Timed)>,
    pub(crate) send: Option<([u8; 8], Timed)>,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) https: bool,
    pub(crate) host: String,
    /// 0 when unknown.
    pub(crate) port: u16,
    pub(crate) client: String,
    pub(crate) agent: String,
    pub(crate) version: &'static str,
    /// 0 when the client left before the response.
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    pub(crate) error: Option<Trouble>,
}

impl Record {
    /// Records an exchange that is over. `now` is the same moment on both clocks. `id` generates ids.
    pub(crate) fn new(
        ending: &Ending<'_>,
        active: &Active,
        now: (Instant, SystemTime),
        mut id: impl FnMut() -> [u8; 8],
    ) -> Record {
        let wall = |at: Instant| {
            let since = now.1.duration_since(UNIX_EPOCH).unwrap_or_default();
            let then = since.saturating_sub(now.0.saturating_duration_since(at));
            u64::try_from(then.as_nanos()).unwrap_or(u64::MAX)
        };
        let timed = |start: Instant, end: Instant| Timed { start: wall(start), end: wall(end) };
        let times = ending.trace;
        let us = |us: u32| Duration::from_micros(us.into());
        let worker = times.worker.get().checked_sub(1);
        let asked = times.asked.get();
        let seated = asked.map(|asked| asked + us(times.queue_us.get()));
        let responded = active.responded.get();
        let app = || {
            let served =
                Served::App { worker: worker?, cpu_us: times.cpu_us.get(), gvl_us: times.gvl_us.get() };
            let seated = seated?;
            // A worker that has died has reported no time.
            let app = times.app_us.get();
            let end = if app > 0 { seated + us(app) } else { responded.unwrap_or(ending.ended).max(seated) };
            Some((served, timed(seated, end)))
        };
        let until = responded.unwrap_or(ending.ended);
        let origin = || Some((Served::Origin, timed(active.forwarded.get()?, until)));
        let handler = || active.scripted.get().then(|| (Served::Handler, timed(ending.started, until)));
        let request = ending.request;
        let text = |of: fn(&Request) -> &[u8]| request.map(|request| lossy(of(request))).unwrap_or_default();
        let (host, port) = request.map_or((String::new(), 0), server);
        Record {
            trace: *active.trace.bytes(),
            parent: active.parent.map(|id| *id.bytes()),
            server: *active.server.bytes(),
            handler: *active.handler.bytes(),
            flags: active.flags,
            state: active.state.clone(),
            whole: timed(ending.started, ending.ended),
            queue: asked.zip(seated).map(|(asked, seated)| (id(), timed(asked, seated))),
            served: app().or_else(origin).or_else(handler),
            send: responded.map(|responded| (id(), timed(responded, ending.ended))),
            method: text(Request::method),
            path: text(Request::path),
            https: request.is_some_and(|request| request.https),
            host,
            port,
            client: ending.peer.remote_text.to_string(),
            agent: request
                .and_then(|request| request.fields.get("user-agent"))
                .map(lossy)
                .unwrap_or_default(),
            version: request.map_or("", |request| version(request.version)),
            status: ending.status,
            body_bytes: ending.body_bytes,
            error: trouble(ending),
        }
    }
}

/// Returns the error of a request, if any. By the semantic conventions, a server span has failed with a
/// status from 500, or if the server cut the response off. Errors of the client do not count.
fn trouble(ending: &Ending<'_>) -> Option<Trouble> {
    let failure = ending.failure.filter(|failure| failure.fault != Fault::Client);
    let reason = || failure.map_or(String::new(), |failure| failure.reason.to_string());
    if ending.status >= 500 {
        return Some(Trouble { kind: ending.status.to_string(), reason: reason() });
    }
    (ending.broken && failure.is_some()).then(|| Trouble { kind: "cut_off".to_owned(), reason: reason() })
}

fn server(request: &Request) -> (String, u16) {
    let (host, port) = request.server();
    let port = std::str::from_utf8(port).ok().and_then(|port| port.parse().ok()).unwrap_or(0);
    (lossy(host), port)
}

fn version(version: Version) -> &'static str {
    match version {
        Version::Http10 => "1.0",
        Version::Http11 => "1.1",
        Version::Http2 => "2",
        Version::Http3 => "3",
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]).into_owned()
}

/// Returns the method, or `_OTHER` for an unknown one: the number of attribute values must be limited.
pub(crate) fn known_method(method: &str) -> &str {
    let known = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY"];
    if known.contains(&method) { method } else { "_OTHER" }
}
