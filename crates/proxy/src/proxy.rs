//! One thread's reverse proxy: which origin is asked, how often, and what becomes of failures.

use crate::Upstreams;
use crate::body::UpstreamBody;
use crate::connect::connect;
use crate::conversation::{Lost, Said, converse, poll_departure};
use crate::pool::{Connection, Pool};
use crate::receiver::{Asked, Received, Rest};
use crate::request_head::{self, Asking, Framing};
use crate::sender::Sender;
use crate::tunnel::Tunnel;
use crate::upstreams::{Active, NoOrigin};
use handler::{Body, Client, Departure, Exchange, Failure, FailureKind, Incoming, Lent, Request, Response};
use http::Timers;
use http::h1::syntax;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::task::{AbortHandle, spawn_local};

/// Time between two looks at idle connections.
const REAP: Duration = Duration::from_secs(1);

/// Is told of each failure: the error log.
pub type OnFailure = Box<dyn Fn(&Failure, &Request)>;

/// A thread's connections to the origins of one configuration.
pub struct Proxy {
    local: Rc<Local>,
}

/// What the exchanges of a thread share.
pub(crate) struct Local {
    pub(crate) upstreams: Arc<Upstreams>,
    failed: OnFailure,
    pool: Pool,
    timers: Rc<Timers>,
    /// The task that runs `timers`.
    ticking: Cell<Option<AbortHandle>>,
    reaping: Cell<bool>,
    /// A buffer for request heads.
    head: RefCell<Vec<u8>>,
}

/// An answer that has begun.
struct Answered {
    received: Received,
    connection: Connection,
    origin: usize,
    active: Active,
}

impl Proxy {
    /// A proxy without connections, for use on this thread's `LocalRuntime`. `failed` hears of each failure.
    pub fn new(upstreams: Arc<Upstreams>, failed: OnFailure) -> Proxy {
        let pool = Pool::new(upstreams.origins.len(), upstreams.config.max_idle);
        let local = Local {
            upstreams,
            failed,
            pool,
            timers: Timers::new(),
            ticking: Cell::new(None),
            reaping: Cell::new(false),
            head: RefCell::default(),
        };
        Proxy { local: Rc::new(local) }
    }

    /// Answers an exchange by an origin. `target` is the path and query for the upstream, beginning with `/` (or `*` of an
    /// `OPTIONS`); the origin's base path is put in front of it. `Location` is passed on as it is.
    pub async fn forward(&self, exchange: Exchange, target: Vec<u8>) -> Response {
        let Exchange { request, mut incoming, client, trace: _ } = exchange;
        match self.local.ask(&request, &mut incoming, &*client, &target).await {
            Ok(answered) => self.local.response(answered, request),
            Err(failure) => {
                (self.local.failed)(&failure, &request);
                failure.into_response()
            }
        }
    }

    /// The same for those who have to know why there is no response: they are told instead of `failed`.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn ask(&self, exchange: Exchange, target: Vec<u8>) -> Result<Response, Failure> {
        let Exchange { request, mut incoming, client, trace: _ } = exchange;
        let answered = self.local.ask(&request, &mut incoming, &*client, &target).await?;
        Ok(self.local.response(answered, request))
    }
}

impl Local {
    /// Asks origins until one has answered.
    async fn ask(
        self: &Rc<Local>,
        request: &Request,
        incoming: &mut Incoming,
        client: &dyn Client,
        target: &[u8],
    ) -> Result<Answered, Failure> {
        let config = &self.upstreams.config;
        check(request, target)?;
        let framing = Framing::of(incoming, request.method());
        let upgrade = request_head::upgrade(request, config, framing);
        let asked =
            Asked { is_head: request.method() == b"HEAD", upgrade, max_head: config.max_response_head };
        let mut tried = Vec::new();
        let mut again = None;
        loop {
            // Who has closed one idle connection may have closed them all.
            let pooled = again.is_none();
            let origin = match again.take() {
                Some(origin) => origin,
                None => self.upstreams.pick(&tried).map_err(|why| self.nobody(why))?,
            };
            let active = self.upstreams.count(origin);
            let kept = if pooled { self.pool.take(origin, Instant::now()) } else { None };
            let reused = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => match Box::pin(self.connect(origin, client)).await {
                    Ok(connection) => connection,
                    Err(failure) if failure.kind == FailureKind::ClientGone => return Err(failure),
                    Err(failure) => {
                        self.upstreams.failed(origin);
                        tried.push(origin);
                        let more = tried.len() <= config.retries as usize
                            && tried.len() < self.upstreams.origins.len();
                        if more && self.upstreams.pick(&tried).is_ok() {
                            continue;
                        }
                        return Err(self.named(origin, failure));
                    }
                },
            };
            let mut head = self.head.take();
            head.clear();
            let state = &self.upstreams.origins[origin];
            Asking { config, origin: &state.origin, request, target, framing, upgrade }.write(&mut head);
            let sender = Sender::new(head, &self.head, incoming, framing);
            match converse(config, &connection, sender, asked, client).await {
                Ok(Said { mut received, whole }) => {
                    self.upstreams.succeeded(origin);
                    received.persistent &= whole;
                    connection.limit_idle(received.keep_alive);
                    return Ok(Answered { received, connection, origin, active });
                }
                Err(Lost { unheard, untouched, unanswered, .. })
                    if reused && unanswered && (unheard || (untouched && request.is_idempotent())) =>
                {
                    again = Some(origin);
                }
                Err(lost) => {
                    if lost.upstream {
                        self.upstreams.failed(origin);
                    }
                    return Err(self.named(origin, lost.failure));
                }
            }
        }
    }

    async fn connect(self: &Rc<Local>, origin: usize, client: &dyn Client) -> Result<Connection, Failure> {
        let mut connecting = pin!(connect(&self.upstreams, origin));
        let stream = poll_fn(|cx| match connecting.as_mut().poll(cx) {
            Poll::Pending => poll_gone(client, cx).map(Err),
            ready => ready,
        })
        .await?;
        if !stream.is_quiet() {
            let why = "closed or spoke before it was asked";
            return Err(Failure::new(FailureKind::BadUpstream, why));
        }
        self.tick();
        Ok(Connection::new(stream, self.timers.register()))
    }

    /// What the client gets.
    fn response(self: &Rc<Local>, answered: Answered, request: Lent) -> Response {
        let Answered { mut received, connection, origin, active } = answered;
        let fields = std::mem::take(&mut received.fields);
        let status = received.status;
        if status == 101 {
            let io = Box::new(Tunnel::new(connection, received.first, active));
            return Response { status, fields, body: Body::Tunnel { io, raw: false }, close: true };
        }
        let body = match received.rest {
            Rest::Done => {
                if received.persistent {
                    self.keep(origin, connection);
                }
                if received.first.is_empty() { Body::Empty } else { Body::Bytes(received.first) }
            }
            _ => {
                let local = self.clone();
                Body::Stream(Box::new(UpstreamBody::new(
                    local, origin, connection, received, request, active,
                )))
            }
        };
        Response { status, fields, body, close: false }
    }

    /// Keeps a connection whose response has ended.
    pub(crate) fn keep(self: &Rc<Local>, origin: usize, connection: Connection) {
        self.pool.put(origin, connection, Instant::now());
        if !self.reaping.replace(true) {
            spawn_local(reap(Rc::downgrade(self)));
        }
    }

    /// Tells of a failure inside a body.
    pub(crate) fn broke(&self, origin: usize, failure: Failure, request: &Request) {
        self.upstreams.failed(origin);
        (self.failed)(&self.named(origin, failure), request);
    }

    /// Has the timers run.
    fn tick(&self) {
        let ticking = self.ticking.take().unwrap_or_else(|| {
            let timers = self.timers.clone();
            spawn_local(async move { timers.run().await }).abort_handle()
        });
        self.ticking.set(Some(ticking));
    }

    fn named(&self, origin: usize, failure: Failure) -> Failure {
        if failure.kind == FailureKind::ClientGone || failure.status() < 500 {
            return failure;
        }
        let (name, origin) = (&self.upstreams.config.name, &self.upstreams.origins[origin].origin);
        Failure::new(failure.kind, format!("{name}: {origin}: {}", failure.reason))
    }

    fn nobody(&self, why: NoOrigin) -> Failure {
        let name = &self.upstreams.config.name;
        match why {
            NoOrigin::AllSick => {
                Failure::new(FailureKind::NoUpstream, format!("{name}: health checks fail at every origin"))
            }
            NoOrigin::AllTried => {
                Failure::new(FailureKind::UpstreamUnreachable, format!("{name}: every origin has been tried"))
            }
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Some(ticking) = self.ticking.take() {
            ticking.abort();
        }
    }
}

/// Closes idle connections in time, until there are none.
async fn reap(local: Weak<Local>) {
    loop {
        tokio::time::sleep(REAP).await;
        let Some(local) = local.upgrade() else { return };
        if !local.pool.reap(Instant::now()) {
            local.reaping.set(false);
            return;
        }
    }
}

/// Refuses what cannot be asked of an upstream.
fn check(request: &Request, target: &[u8]) -> Result<(), Failure> {
    if request.method() == b"CONNECT" {
        return Err(Failure::new(FailureKind::NotImplemented, "CONNECT is for forward proxies"));
    }
    let asterisk = target == b"*" && request.method() == b"OPTIONS";
    if !(asterisk || target.first() == Some(&b'/') && syntax::is_target(target)) {
        return Err(Failure::new(FailureKind::BadRequest, "a target that cannot be passed on"));
    }
    Ok(())
}

/// Ready when nobody is there any more to answer to. Half of the client may still read.
fn poll_gone(client: &dyn Client, cx: &mut std::task::Context<'_>) -> Poll<Failure> {
    match poll_departure(client, cx) {
        Poll::Ready(Departure::Gone) => {
            Poll::Ready(Failure::new(FailureKind::ClientGone, "the client went away"))
        }
        _ => Poll::Pending,
    }
}
