//! The contract between whoever speaks HTTP and whoever answers: [`Exchange`], [`Handler`], [`Response`], [`Failure`].
//!
//! Why: HTTP/1.1 today and other versions later, a Rack app today and files, proxies and scripts later, must meet in one
//! place that knows neither. Nothing behind an [`Exchange`] can ask which protocol it came by beyond the version number.
//!
//! Contract:
//! 1. The protocol side calls [`Handler::handle`] once for each request that it has accepted as unambiguous, and gives
//!    exactly one final response to the client for it, or closes the connection.
//! 2. The handler may read [`Incoming`] or leave it; what it leaves is drained or the connection is closed.
//! 3. Dropping the future of `handle`, or a [`BodyStream`], means that nobody is interested any more: the handler releases what
//!    it holds. It must never wait for the future to be polled again.
//! 4. Everything of one exchange happens on one thread; nothing here is `Send`.
//! 5. When the exchange is over, however it ended, the protocol side calls [`Handler::finished`] once.
#![forbid(unsafe_code)]

mod body;
mod failure;
mod fields;
mod kept;
mod lent;
mod request;
mod tunnel;

pub use body::{BodyError, BodyStream, Broken, Chunk, FileRegion, Incoming, IncomingBody, Lender};
pub use failure::{Failure, Fault, Kind as FailureKind, reason_phrase};
pub use fields::{Fields, Span};
pub use kept::Kept;
pub use lent::Lent;
pub use request::{Peer, PeerAddr, Request, Variable, Version};
pub use tunnel::TunnelEnd;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

/// One request on its way to one response.
pub struct Exchange {
    /// What was asked. What a handler changes in it is what [`Handler::finished`] sees.
    pub request: Lent,
    /// The request body, not read yet.
    pub incoming: Incoming,
    /// The other end, for what happens before the final response.
    pub client: Rc<dyn Client>,
    /// What the log and the statistics want to know; filled in as the exchange goes on.
    pub trace: Rc<Trace>,
}

/// How a client went away while its response was being made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// It closed its sending side: most have gone, a few still read (`shutdown(SHUT_WR)`).
    HalfClosed,
    /// The connection is reset or closed in both directions.
    Gone,
}

/// The client of an exchange, as a handler may see it.
pub trait Client {
    /// Ready when the client has gone away or half of it. Once `HalfClosed` was returned, later calls wait for `Gone`.
    fn poll_departure(&self, cx: &mut Context<'_>) -> Poll<Departure>;

    /// Sends an informational response (RFC 9110 section 15.2) unless the protocol version cannot carry one.
    fn interim(&self, status: u16, fields: &Fields);
}

/// Where the time of an exchange went; microseconds, saturating.
#[derive(Debug, Default)]
pub struct Trace {
    /// Waiting for a free worker thread.
    pub queue_us: Cell<u32>,
    /// In the app, as its worker measured it.
    pub app_us: Cell<u32>,
    /// Worker that served, plus one; 0 when no worker was involved.
    pub worker: Cell<u16>,
    /// Processor time and waiting for the GVL are asked for; a handler may measure them unasked.
    pub measure: Cell<bool>,
    /// Processor time in the app; `None` when it was not measured.
    pub cpu_us: Cell<Option<u32>>,
    /// Waiting for Ruby's global lock (GVL) in the app; `None` when it was not measured, or cannot be.
    pub gvl_us: Cell<Option<u32>>,
    /// The request, once its [`Lent`] has been dropped.
    returned: RefCell<Option<Box<Request>>>,
}

impl Trace {
    /// The request that the handler has let go of. For the protocol side.
    pub fn take_request(&self) -> Option<Box<Request>> {
        self.returned.take()
    }
}

/// Something that answers requests.
pub trait Handler {
    /// Answers one exchange. A [`Failure`] becomes a response in one place: `Failure::into_response`.
    fn handle(&self, exchange: Exchange) -> impl Future<Output = Response>;

    /// The exchange is over: the response has been sent as far as it went.
    fn finished(&self, ending: &Ending<'_>) {
        let _ = ending;
    }
}

/// What there is to say about an exchange that is over.
pub struct Ending<'a> {
    /// The request as the handler left it; `None` when it could not be read as one, or the handler has not let go of it.
    pub request: Option<&'a Request>,
    /// Why the protocol side refused the request or replaced the response.
    pub failure: Option<&'a Failure>,
    /// The connection's other end.
    pub peer: &'a Peer,
    /// Times as far as handlers noted them.
    pub trace: &'a Trace,
    /// Status of the final response; 0 when none was sent (499 in nginx's logs).
    pub status: u16,
    /// Body bytes sent, framing not counted.
    pub body_bytes: u64,
    /// When the first byte of the request was seen.
    pub started: Instant,
    /// The response was cut off, by either side.
    pub broken: bool,
    /// The connection was taken over by the app or upgraded.
    pub hijacked: bool,
}

/// A final response.
pub struct Response {
    /// Status, 200 to 599, or 101 with [`Body::Tunnel`].
    pub status: u16,
    /// Fields as the handler wants them. `Connection`, `Transfer-Encoding`, `Date` and the correctness of `Content-Length` are the protocol
    /// side's; invalid names and values have been refused before.
    pub fields: Fields,
    /// The body.
    pub body: Body,
    /// The connection must not be used again after this response.
    pub close: bool,
}

/// Body of a response.
pub enum Body {
    /// No bytes.
    Empty,
    /// All of it, in memory.
    Bytes(bytes::Bytes),
    /// The same, for a response that is sent often.
    Kept(Rc<Kept>),
    /// A part of a file, sent without passing through our memory.
    File(FileRegion),
    /// Bytes as they come.
    Stream(Box<dyn BodyStream>),
    /// After the head the connection belongs to `io`, in both directions, until both ends are closed.
    Tunnel {
        /// The other end of the tunnel.
        io: Box<dyn TunnelEnd>,
        /// Write no response head: the app writes everything itself (full hijack).
        raw: bool,
    },
}

impl Response {
    /// A response with a body in memory and a content type.
    pub fn text(status: u16, content_type: &str, body: impl Into<bytes::Bytes>) -> Response {
        let mut fields = Fields::default();
        fields.push(b"Content-Type", content_type.as_bytes());
        Response { status, fields, body: Body::Bytes(body.into()), close: false }
    }

    /// A response without a body.
    pub fn empty(status: u16) -> Response {
        Response { status, fields: Fields::default(), body: Body::Empty, close: false }
    }
}
