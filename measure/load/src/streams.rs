//! Protocols with many requests per connection: each stream is a user, and the streams of one connection share it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::rc::Rc;

use bytes::Bytes;
use tokio::sync::Mutex;

use crate::clock::nanoseconds;
use crate::connect::{Attempts, CUT_OFF, in_time};
use crate::exchange::Incoming;
use crate::feed::Feed;
use crate::job::{Failure, Job};
use crate::lane::{Lane, Slot};

/// How often a request is sent again after the server refused it unprocessed.
const MOST_REFUSALS: u32 = 5;

/// A connection of a protocol, as seen by one of its streams.
pub(crate) trait Connection: Clone + 'static {
    /// A name such as `HTTP/2`.
    const NAME: &'static str;

    /// Opens a connection within the connect time-out.
    async fn open(lane: &Rc<Lane>, slot: &Slot, origin: usize) -> Result<Self, (Failure, String)>;

    /// Returns whether the connection still accepts requests.
    async fn is_open(&self) -> bool;

    /// Waits until a request can be sent.
    async fn ready(&mut self) -> Result<(), Lost>;

    /// Sends a request and receives its response.
    async fn exchange(
        &mut self,
        lane: &Lane,
        incoming: &mut Incoming,
        request: http_types::Request<()>,
        body: Bytes,
    ) -> Result<(), Lost>;
}

/// An error of the connection, or of the stream alone.
#[derive(Debug)]
pub(crate) struct Lost {
    pub text: String,
    /// Whether the request was being written; otherwise its response was being read.
    pub writing: bool,
    /// Whether the connection has become unusable.
    pub connection: bool,
    /// Whether the server did not process the request.
    pub refused: bool,
}

/// The connections shared by some streams, one per origin.
pub(crate) struct SharedConnections<C>(RefCell<HashMap<usize, Rc<SharedConnection<C>>>>);

impl<C> Default for SharedConnections<C> {
    fn default() -> Self {
        SharedConnections(RefCell::default())
    }
}

/// Locked while a connection is opened, so that the other streams wait for it.
type SharedConnection<C> = Mutex<Option<C>>;

/// Sends one request after the other until there are no more.
pub(crate) async fn stream<C: Connection>(lane: Rc<Lane>, shared: Rc<SharedConnections<C>>) {
    let feed = Feed::new(lane.clone());
    feed.slot.register_waker().await;
    let mut user = User {
        lane,
        feed,
        shared,
        connections: HashMap::new(),
        attempts: Attempts::default(),
        incoming: Incoming::default(),
    };
    if user.lane.run.is_closed() {
        let origin = user.lane.run.prepared.kinds[0].origin;
        // If this fails, the first request tries again and counts the failure.
        if let Ok(connection) = user.connection(origin).await {
            user.connections.insert(origin, connection);
        }
    }
    user.run().await;
}

struct User<C> {
    lane: Rc<Lane>,
    feed: Feed,
    shared: Rc<SharedConnections<C>>,
    /// Connections by origin.
    connections: HashMap<usize, C>,
    attempts: Attempts,
    incoming: Incoming,
}

/// The result of a request.
enum Exchanged {
    /// A complete response.
    Complete,
    /// The server did not process the request.
    Refused(String),
    Failed(Failure, String),
}

impl<C: Connection> User<C> {
    async fn run(&mut self) {
        while let Some(job) = poll_fn(|cx| self.feed.poll(cx, self.lane.now())).await {
            let mut refusals = 0;
            let result = loop {
                match self.exchange(&job).await {
                    Exchanged::Refused(why) if refusals == MOST_REFUSALS => {
                        break Exchanged::Failed(Failure::Read, why);
                    }
                    Exchanged::Refused(_) => refusals += 1,
                    result => break result,
                }
            };
            self.feed.finished();
            match result {
                Exchanged::Failed(failure, text) => {
                    self.lane.recorder.borrow_mut().failed(&job, failure, &text, self.lane.now());
                    self.feed.slot.unavailable();
                    if !matches!(failure, Failure::Timeout | Failure::CutOff) {
                        self.attempts.pause(&self.lane).await;
                    }
                }
                Exchanged::Complete | Exchanged::Refused(_) => self.attempts.succeeded(),
            }
        }
    }

    async fn exchange(&mut self, job: &Job) -> Exchanged {
        let lane = self.lane.clone();
        let kind = &lane.run.prepared.kinds[job.kind];
        let mut connection = match self.connection(kind.origin).await {
            Ok(connection) => connection,
            Err((failure, text)) => return Exchanged::Failed(failure, text),
        };
        let timeout = nanoseconds(lane.run.scenario.timeouts.request);
        let slot = self.feed.slot.clone();
        slot.deadline.set(lane.now().saturating_add(timeout));
        match in_time(&lane, &slot, connection.ready()).await {
            Ok(Ok(())) => {}
            Ok(Err(lost)) => return self.lost(kind.origin, connection, lost),
            Err(failure) => return late(failure),
        }
        let sent = lane.now();
        slot.deadline.set(sent.saturating_add(timeout));
        let Some(mut request) = kind.request.clone() else {
            return Exchanged::Failed(Failure::Write, format!("a request that {} cannot carry", C::NAME));
        };
        if let Some(line) = self.feed.cookie(kind)
            && let Ok(value) = http_types::HeaderValue::try_from(line)
        {
            request.headers_mut().insert(http_types::header::COOKIE, value);
        }
        self.incoming.reset(job.kind);
        let exchange = connection.exchange(&lane, &mut self.incoming, request, kind.body.clone());
        match in_time(&lane, &slot, exchange).await {
            Ok(Ok(())) => {
                self.connections.insert(kind.origin, connection);
                self.feed.keep_cookies(kind, &self.incoming);
                self.incoming.finish(&lane, job, sent, lane.now(), C::NAME, None);
                Exchanged::Complete
            }
            Ok(Err(lost)) => self.lost(kind.origin, connection, lost),
            Err(failure) => {
                self.connections.insert(kind.origin, connection);
                late(failure)
            }
        }
    }

    fn lost(&mut self, origin: usize, connection: C, lost: Lost) -> Exchanged {
        if !lost.connection {
            self.connections.insert(origin, connection);
        }
        match (lost.refused, lost.writing) {
            (true, _) => Exchanged::Refused(lost.text),
            (false, true) => Exchanged::Failed(Failure::Write, lost.text),
            (false, false) => Exchanged::Failed(Failure::Read, lost.text),
        }
    }

    /// Returns the connection to an origin; the first user that needs it opens it.
    async fn connection(&mut self, origin: usize) -> Result<C, (Failure, String)> {
        match self.connections.remove(&origin) {
            Some(connection) => Ok(connection),
            // Boxed: opening takes much memory for a short time, and there may be 100,000 streams.
            None => Box::pin(self.shared_connection(origin)).await,
        }
    }

    async fn shared_connection(&self, origin: usize) -> Result<C, (Failure, String)> {
        let (lane, slot) = (&self.lane, &self.feed.slot);
        let shared = self.shared.0.borrow_mut().entry(origin).or_default().clone();
        let deadline = lane.now().saturating_add(nanoseconds(lane.run.scenario.timeouts.connect));
        let attempt = async {
            slot.deadline.set(deadline);
            let mut current = match in_time(lane, slot, shared.lock()).await {
                Ok(current) => current,
                Err(Failure::Timeout) => {
                    let name = lane.run.endpoints[origin].name();
                    return Err((Failure::ConnectTimeout, format!("no connection to {name} in time")));
                }
                Err(failure) => return Err((failure, CUT_OFF.to_owned())),
            };
            if let Some(connection) = current.clone()
                && connection.is_open().await
            {
                return Ok(connection);
            }
            let connection = C::open(lane, slot, origin).await?;
            *current = Some(connection.clone());
            Ok(connection)
        };
        self.attempts.settle(lane, attempt).await
    }
}

fn late(failure: Failure) -> Exchanged {
    match failure {
        Failure::CutOff => Exchanged::Failed(failure, CUT_OFF.to_owned()),
        failure => Exchanged::Failed(failure, "no complete response in time".to_owned()),
    }
}
