//! Defines the contract between protocols and handlers: [`Exchange`], [`Handler`], [`Response`], [`Failure`].
//!
//! Why: protocol versions on one side, and Rack apps, files, proxies and scripts on the other, meet in one
//! place that depends on none of them. A handler cannot see how a request arrived, except for the version
//! number that Rack needs.
//!
//! Contract:
//! 1. The protocol calls [`Handler::handle`] once for each request that it has accepted as unambiguous. It
//!    then sends exactly one final response to the client, or closes the connection.
//! 2. The handler may leave [`Incoming`] unread; the protocol drains the rest or closes the connection.
//! 3. Dropping the future of `handle`, or a [`BodyStream`], cancels it: the handler releases its resources
//!    without being polled again.
//! 4. Everything in one exchange happens on one thread; no type here is `Send`.
//! 5. When the exchange has ended in any way, the protocol calls [`Handler::finished`] once.
#![forbid(unsafe_code)]

pub mod accept;
pub mod address;
mod body;
mod cache;
mod cookies;
mod failure;
mod fields;
pub mod held;
mod kept;
mod lent;
pub mod path;
pub mod proxying;
mod request;
mod route;
mod staying_client;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use body::{BodyError, BodyStream, Chunk, FileRegion, Incoming, IncomingBody, Lender};
pub use cache::Cache;
pub use cookies::cookies;
pub use failure::{Failure, Fault, reason_phrase};
pub use fields::{Fields, Frozen, Span};
pub use kept::Kept;
pub use lent::Lent;
pub use request::{Peer, PeerAddr, Request, Session, Variable, Version};
pub use route::Answered;
pub use staying_client::StayingClient;
pub use wire::used::Used;

/// Remarks about a request, with the places in the app.
pub type PlacedRemarks = wire::used::Remarks<Option<Arc<str>>>;

use held::{Account, Holding};
use net::TunnelEnd;
use std::any::Any;
use std::cell::{Cell, OnceCell, Ref, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

pub struct Exchange {
    /// [`Handler::finished`] sees the changes that handlers make.
    pub request: Lent,
    pub incoming: Incoming,
    /// The client, for events before the final response.
    pub client: Rc<dyn Client>,
    /// Measurements for the log and the statistics, filled in during the exchange.
    pub trace: Rc<Trace>,
}

/// How a client went away before its response was complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// The client closed its sending side. Most such clients have gone; a few still read
    /// (`shutdown(SHUT_WR)`).
    HalfClosed,
    /// The connection is reset, or closed in both directions.
    Gone,
}

pub trait Client {
    /// Waits until the client has gone or closed its sending side. After `HalfClosed`, later calls wait for
    /// `Gone`.
    fn poll_departure(&self, cx: &mut Context<'_>) -> Poll<Departure>;

    /// Sends an informational response (RFC 9110 section 15.2), if the protocol version has them.
    fn interim(&self, status: u16, fields: &Fields);

    /// Returns the holding that counts the response's resources, created at the first call. `None` for a
    /// client whose responses are not counted.
    fn holding(&self) -> Option<Rc<Holding>> {
        None
    }

    /// Returns the account of the responses on the client's connection, if they have held anything.
    fn account(&self) -> Option<Rc<Account>> {
        None
    }

    /// Returns the same account, created at the first call. `None` for a client whose connection has one
    /// exchange at a time.
    fn open_account(&self) -> Option<Rc<Account>> {
        None
    }
}

/// The times of an exchange in microseconds, saturating.
#[derive(Debug, Default)]
pub struct Trace {
    /// When a worker thread was first requested; `None` if none was.
    pub asked: Cell<Option<Instant>>,
    /// The time spent waiting for the end of a pause of the app; 0 if it was not paused.
    pub paused_us: Cell<u32>,
    /// The time spent waiting for a free worker thread.
    pub queue_us: Cell<u32>,
    /// The time in the app, measured by its worker.
    pub app_us: Cell<u32>,
    /// The number of the worker that served the request, plus one; 0 if none did.
    pub worker: Cell<u16>,
    /// Whether processor time and the wait for the GVL should be measured. A handler may measure them anyway.
    pub measure: Cell<bool>,
    /// The processor time in the app; `None` if it was not measured.
    pub cpu_us: Cell<Option<u32>>,
    /// The wait for Ruby's global lock (GVL) in the app; `None` if it was not measured, or cannot be.
    pub gvl_us: Cell<Option<u32>>,
    /// The resources that the request has used in its worker.
    pub used: Cell<Used>,
    /// Remarks about the request; mostly none.
    pub remarks: RefCell<Option<Box<PlacedRemarks>>>,
    /// Whether a cache would have answered the request; `None` if that is not known, or it could not keep the response.
    pub would_hit: Cell<Option<bool>>,
    /// The app's name for what the request is for; `None` if it has given none.
    pub route: RefCell<Option<Arc<str>>>,
    pub answered: Cell<Answered>,
    /// The request's part of a distributed trace; empty if it is not recorded.
    pub span: OnceCell<Box<trace::Active>>,
    /// The server's notes on a request that it records; empty for all others.
    pub recorded: OnceCell<Rc<dyn Any>>,
    /// Failures that a handler has replaced by its own response; see [`Trace::note`].
    failures: RefCell<Vec<Failure>>,
    /// The request, once its [`Lent`] has been dropped.
    returned: RefCell<Option<Box<Request>>>,
}

impl Trace {
    /// Takes the request that the handler has dropped. Called by the protocol.
    pub fn take_request(&self) -> Option<Box<Request>> {
        self.returned.take()
    }

    /// Records a failure inside the server that a handler hides from the client, for the statistics and the
    /// log.
    pub fn note(&self, failure: Failure) {
        self.failures.borrow_mut().push(failure);
    }

    /// Takes over the measurements of another exchange, which was made to answer this one.
    pub fn adopt(&self, other: &Trace) {
        self.asked.set(other.asked.get());
        self.queue_us.set(other.queue_us.get());
        self.app_us.set(other.app_us.get());
        self.worker.set(other.worker.get());
        self.measure.set(other.measure.get());
        self.cpu_us.set(other.cpu_us.get());
        self.gvl_us.set(other.gvl_us.get());
        self.used.set(other.used.get());
        self.remarks.replace(other.remarks.borrow().clone());
        self.answered.set(other.answered.get());
        self.route.replace(other.route.borrow().clone());
    }

    /// Records that the cache has answered with a response of this route, if it knows the app's name for it.
    pub fn was_kept(&self, route: Option<Arc<str>>) {
        self.answered.set(Answered::Cache);
        if route.is_some() {
            self.route.replace(route);
        }
    }

    /// Returns the request, if the handler has dropped it.
    pub fn request(&self) -> Option<Ref<'_, Request>> {
        Ref::filter_map(self.returned.borrow(), |returned| returned.as_deref()).ok()
    }

    pub fn has_failures(&self) -> bool {
        !self.failures.borrow().is_empty()
    }

    /// Takes the recorded failures.
    pub fn take_failures(&self) -> Vec<Failure> {
        self.failures.take()
    }
}

/// Serves requests.
pub trait Handler {
    /// Serves one exchange. [`Failure::into_response`] turns a [`Failure`] into a response.
    fn handle(&self, exchange: Exchange) -> impl Future<Output = Response>;

    /// Handles the end of the exchange, whether its response was sent completely or not.
    fn finished(&self, ending: &Ending<'_>) {
        let _ = ending;
    }
}

/// The outcome of an exchange.
pub struct Ending<'a> {
    /// The request as the handler left it; `None` if it could not be parsed, or if the handler still holds
    /// it.
    pub request: Option<&'a Request>,
    /// The failure that became the response or cut it off.
    pub failure: Option<&'a Failure>,
    /// Both ends of the connection.
    pub peer: &'a Peer,
    /// The times, as far as handlers have measured them.
    pub trace: &'a Trace,
    /// The status of the final response; 0 if none was sent (499 in nginx's logs).
    pub status: u16,
    /// The body bytes sent, without framing.
    pub body_bytes: u64,
    /// When the first byte of the request arrived.
    pub started: Instant,
    /// When the exchange ended.
    pub ended: Instant,
    /// Whether either side cut the response off.
    pub broken: bool,
    /// Whether the app took the connection over or it was upgraded.
    pub hijacked: bool,
}

pub struct Response {
    /// 200 to 599, or 101 with [`Body::Tunnel`].
    pub status: u16,
    /// The header fields, with valid names and values. The protocol writes `Connection`, `Transfer-Encoding`,
    /// `Date` and a correct `Content-Length`.
    pub fields: Fields,
    pub body: Body,
    pub after: After,
    /// The handler has chosen the content coding (RFC 9110 section 8.4): files and sites have settings of their own for it.
    pub negotiated: bool,
    /// The failure that caused this response.
    pub failure: Option<Box<Failure>>,
}

/// The state of a connection after a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum After {
    /// As far as the handler is concerned, the connection may carry other requests.
    #[default]
    Reuse,
    /// The stream of this exchange ends, whatever the client still sends on it. In HTTP/1, which has no
    /// streams, the connection ends.
    EndStream,
    /// The whole connection ends.
    EndConnection,
}

pub enum Body {
    Empty,
    Bytes(bytes::Bytes),
    /// A complete body in memory, of a response that is sent often.
    Kept(Rc<Kept>),
    /// A part of a file, sent without a copy in user space where possible.
    File(FileRegion),
    /// Pieces as they become available.
    Stream(Box<dyn BodyStream>),
    /// After the head, the connection is a tunnel to `io`, in both directions, until both ends are closed.
    Tunnel {
        /// The other end of the tunnel.
        io: Box<dyn TunnelEnd>,
        /// Whether the app writes everything itself, including the response head (full hijack).
        raw: bool,
    },
}

impl Response {
    /// Creates a response after which the connection may be reused.
    pub fn new(status: u16, fields: Fields, body: Body) -> Response {
        Response { status, fields, body, after: After::Reuse, negotiated: false, failure: None }
    }

    /// Creates a response with a body in memory and a content type.
    pub fn text(status: u16, content_type: &str, body: impl Into<bytes::Bytes>) -> Response {
        let mut fields = Fields::default();
        fields.push(b"Content-Type", content_type.as_bytes());
        Response::new(status, fields, Body::Bytes(body.into()))
    }

    /// Creates a response without a body.
    pub fn empty(status: u16) -> Response {
        Response::new(status, Fields::default(), Body::Empty)
    }
}
