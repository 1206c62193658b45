//! The state that the exchanges of one thread share: its connections to the origins, and their timers.

use crate::Upstreams;
use crate::holds::{self, HeldConnections};
use crate::pool::{Connection, Pool};
use handler::{Failure, Fault, Peer};
use net::Timers;
use net::task::spawn_local;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// The time between two checks of idle connections.
const REAP: Duration = Duration::from_secs(1);

/// The state that the exchanges of a thread share.
pub(crate) struct Local {
    pub(crate) upstreams: Arc<Upstreams>,
    pub(crate) pool: Pool,
    pub(crate) timers: Rc<Timers>,
    /// The task that runs `timers`.
    ticking: Cell<Option<AbortHandle>>,
    reaping: Cell<bool>,
    /// Connections that clients make this thread hold.
    pub(crate) holds: Rc<HeldConnections>,
    /// A buffer for request heads.
    pub(crate) head: RefCell<Vec<u8>>,
}

impl Local {
    pub(crate) fn new(upstreams: Arc<Upstreams>) -> Rc<Local> {
        let pool = Pool::new(upstreams.origins.len(), upstreams.config.max_idle);
        Rc::new(Local {
            upstreams,
            pool,
            timers: Timers::new(),
            ticking: Cell::new(None),
            reaping: Cell::new(false),
            holds: holds::of_thread(),
            head: RefCell::default(),
        })
    }

    /// Keeps a connection whose response has ended.
    pub(crate) fn keep(self: &Rc<Local>, origin: usize, connection: Connection) {
        self.pool.put(origin, connection, Instant::now());
        if !self.reaping.replace(true) {
            spawn_local(reap(Rc::downgrade(self)));
        }
    }

    /// Counts a failure inside a body against the origin. Returns the failure with the origin's name.
    pub(crate) fn broke(&self, origin: usize, peer: &Peer, failure: Failure) -> Failure {
        match failure.status {
            504 => self.upstreams.failed(origin),
            _ => self.upstreams.closed(origin, peer),
        }
        self.named(origin, failure)
    }

    /// Starts the task that runs the timers, if it does not run.
    pub(crate) fn tick(&self) {
        let ticking = self.ticking.take().unwrap_or_else(|| {
            let timers = self.timers.clone();
            spawn_local(async move { timers.run().await }).abort_handle()
        });
        self.ticking.set(Some(ticking));
    }

    pub(crate) fn named(&self, origin: usize, failure: Failure) -> Failure {
        if failure.fault == Fault::Client {
            return failure;
        }
        let (name, origin) = (&self.upstreams.config.name, &self.upstreams.origins[origin].origin);
        Failure { reason: format!("{name}: {origin}: {}", failure.reason).into(), ..failure }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Some(ticking) = self.ticking.take() {
            ticking.abort();
        }
    }
}

/// Closes expired idle connections until none is left.
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
