//! The contract between protocols and handlers: [`Exchange`], [`Handler`], [`Response`], [`Failure`].
//!
//! Why: protocol versions on one side, and Rack apps, files, proxies and scripts on the other, meet in one place that knows
//! none of them. A handler cannot see how a request arrived, beyond the version number that Rack needs.
//!
//! Contract:
//! 1. The protocol calls [`Handler::handle`] once for each request that it has accepted as unambiguous. It sends exactly one
//!    final response to the client for it, or closes the connection.
//! 2. The handler may read [`Incoming`] or leave it; the protocol drains the rest or closes the connection.
//! 3. Dropping the future of `handle`, or a [`BodyStream`], cancels it: the handler releases what it holds, without being
//!    polled again.
//! 4. Everything of one exchange happens on one thread; nothing here is `Send`.
//! 5. When the exchange is over, however it ended, the protocol calls [`Handler::finished`] once.
#![forbid(unsafe_code)]

mod body;
mod cache;
mod failure;
mod fields;
pub mod held;
mod kept;
mod lent;
pub mod path;
mod request;

pub use body::{BodyError, BodyStream, Chunk, FileRegion, Incoming, IncomingBody, Lender};
pub use cache::Cache;
pub use failure::{Failure, Fault, reason_phrase};
pub use fields::{Fields, Frozen, Span};
pub use kept::Kept;
pub use lent::Lent;
pub use request::{Peer, PeerAddr, Request, Session, Variable, Version};

use held::{Account, Holding};
use net::TunnelEnd;
use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

/// One request on its way to one response.
pub struct Exchange {
    /// The request. [`Handler::finished`] sees the changes that handlers make.
    pub request: Lent,
    /// The request body, unread.
    pub incoming: Incoming,
    /// The client, for what happens before the final response.
    pub client: Rc<dyn Client>,
    /// Measurements for the log and the statistics; filled in as the exchange goes on.
    pub trace: Rc<Trace>,
}

/// How a client went away while its response was being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It closed its sending side. Most such clients have gone; a few still read (`shutdown(SHUT_WR)`).
    HalfClosed,
    /// The connection is reset or closed in both directions.
    Gone,
}

/// The client of an exchange.
pub trait Client {
    /// Ready when the client has gone or closed its sending side. After `HalfClosed`, later calls wait for `Gone`.
    fn poll_departure(&self, cx: &mut Context<'_>) -> Poll<Departure>;

    /// Sends an informational response (RFC 9110 section 15.2), unless the protocol version has none.
    fn interim(&self, status: u16, fields: &Fields);

    /// What the response holds while the client does not take it; made at the first call. `None` for a client that does not keep it.
    fn holding(&self) -> Option<Rc<Holding>> {
        None
    }

    /// What the responses on its connection hold together, if they have held anything.
    fn account(&self) -> Option<Rc<Account>> {
        None
    }

    /// The same, made at the first call. `None` for a client whose connection has one exchange at a time.
    fn open_account(&self) -> Option<Rc<Account>> {
        None
    }
}

/// Where the time of an exchange was spent; microseconds, saturating.
#[derive(Debug, Default)]
pub struct Trace {
    /// When a worker thread was first asked for; `None` if none was.
    pub asked: Cell<Option<Instant>>,
    /// Waiting for a free worker thread.
    pub queue_us: Cell<u32>,
    /// In the app, as its worker measured it.
    pub app_us: Cell<u32>,
    /// Number of the worker that served, plus one; 0 if none did.
    pub worker: Cell<u16>,
    /// Processor time and waiting for the GVL are requested; a handler may measure them without that.
    pub measure: Cell<bool>,
    /// Processor time in the app; `None` if it was not measured.
    pub cpu_us: Cell<Option<u32>>,
    /// Waiting for Ruby's global lock (GVL) in the app; `None` if it was not measured, or cannot be.
    pub gvl_us: Cell<Option<u32>>,
    /// What is recorded of it for a distributed trace; empty if nothing is.
    pub span: OnceCell<Box<trace::Active>>,
    /// Failures that a handler has replaced by a response of its own: see [`Trace::note`].
    failures: RefCell<Vec<Failure>>,
    /// The request, once its [`Lent`] has been dropped.
    returned: RefCell<Option<Box<Request>>>,
}

impl Trace {
    /// Takes the request that the handler has dropped. For the protocol.
    pub fn take_request(&self) -> Option<Box<Request>> {
        self.returned.take()
    }

    /// Notes a failure inside the server that a handler hides from the client, for the statistics and the log.
    pub fn note(&self, failure: Failure) {
        self.failures.borrow_mut().push(failure);
    }

    /// The request, if the handler has dropped it.
    pub fn request(&self) -> Option<Ref<'_, Request>> {
        Ref::filter_map(self.returned.borrow(), |returned| returned.as_deref()).ok()
    }

    /// Whether a failure was noted.
    pub fn has_failures(&self) -> bool {
        !self.failures.borrow().is_empty()
    }

    /// Takes the failures that were noted.
    pub fn take_failures(&self) -> Vec<Failure> {
        self.failures.take()
    }
}

/// A server of requests.
pub trait Handler {
    /// Serves one exchange. A [`Failure`] becomes a response by [`Failure::into_response`].
    fn handle(&self, exchange: Exchange) -> impl Future<Output = Response>;

    /// The exchange is over: the response has been sent as far as it went.
    fn finished(&self, ending: &Ending<'_>) {
        let _ = ending;
    }
}

/// The outcome of an exchange.
pub struct Ending<'a> {
    /// The request as the handler left it; `None` if it could not be parsed, or the handler still holds it.
    pub request: Option<&'a Request>,
    /// What went wrong: the failure that became the response, or that cut it off.
    pub failure: Option<&'a Failure>,
    /// Both ends of the connection.
    pub peer: &'a Peer,
    /// Times as far as handlers have measured them.
    pub trace: &'a Trace,
    /// Status of the final response; 0 when none was sent (499 in nginx's logs).
    pub status: u16,
    /// Body bytes sent, framing not counted.
    pub body_bytes: u64,
    /// When the first byte of the request was seen.
    pub started: Instant,
    /// When the exchange was over.
    pub ended: Instant,
    /// The response was cut off, by either side.
    pub broken: bool,
    /// The connection was taken over by the app or upgraded.
    pub hijacked: bool,
}

/// A final response.
pub struct Response {
    /// Status, 200 to 599, or 101 with [`Body::Tunnel`].
    pub status: u16,
    /// Header fields. The protocol writes `Connection`, `Transfer-Encoding`, `Date` and a correct `Content-Length`. Names and
    /// values are valid.
    pub fields: Fields,
    /// The body.
    pub body: Body,
    /// What becomes of the connection.
    pub after: After,
    /// The failure that this is the response to.
    pub failure: Option<Box<Failure>>,
}

/// What becomes of a connection after a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum After {
    /// It may carry other requests, as far as the handler is concerned.
    #[default]
    Reuse,
    /// This exchange's stream ends here, whatever the client still sends on it; where exchanges have no streams of their own
    /// (HTTP/1) that is the connection.
    EndStream,
    /// The whole connection ends.
    EndConnection,
}

/// Body of a response.
pub enum Body {
    /// No bytes.
    Empty,
    /// All of it, in memory.
    Bytes(bytes::Bytes),
    /// All of it, in memory, of a response that is sent often.
    Kept(Rc<Kept>),
    /// A part of a file; sent without a copy in user space where that is possible.
    File(FileRegion),
    /// Pieces as they become available.
    Stream(Box<dyn BodyStream>),
    /// After the head the connection is a tunnel to `io`, in both directions, until both ends are closed.
    Tunnel {
        /// The other end of the tunnel.
        io: Box<dyn TunnelEnd>,
        /// No response head is sent: the app writes everything itself (full hijack).
        raw: bool,
    },
}

impl Response {
    /// A response after which the connection may be reused.
    pub fn new(status: u16, fields: Fields, body: Body) -> Response {
        Response { status, fields, body, after: After::Reuse, failure: None }
    }

    /// A response with a body in memory and a content type.
    pub fn text(status: u16, content_type: &str, body: impl Into<bytes::Bytes>) -> Response {
        let mut fields = Fields::default();
        fields.push(b"Content-Type", content_type.as_bytes());
        Response::new(status, fields, Body::Bytes(body.into()))
    }

    /// A response without a body.
    pub fn empty(status: u16) -> Response {
        Response::new(status, Fields::default(), Body::Empty)
    }
}
