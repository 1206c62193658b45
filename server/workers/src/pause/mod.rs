//! Pauses the app: its requests wait in the front, and no worker gets a request.
//!
//! Why not in the queue: the number of workers follows the waits of the queue, and its figures and time-outs
//! describe a busy app. A paused app is idle on purpose.
//!
//! Contract:
//! 1. Without a pause a request costs one relaxed load.
//! 2. Requests that are in the queue or a worker when the pause begins end normally. All later requests, of
//!    every front thread, wait in the [`PauseLine`].
//! 3. A pause ends when its time is over, even if the command that began it has gone.
//! 4. The requests then go to the queue in order of arrival, no faster than seats become free
//!    ([`crate::resume`]), so they do not exceed the limits of the queue. Later requests wait behind them.
//! 5. A shutdown refuses all waiting requests (503), because the pause forbids passing them to the app.

mod line;

use handler::path::Path;
use handler::{Client, Failure};
use line::{Entered, PauseLine};
use queue::PoolIndex;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot};

/// The terms of a pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseTerms {
    /// When it ends by itself.
    pub until: Instant,
    /// The most requests that may wait.
    pub max: usize,
    /// The paths whose requests wait, with all paths below them, without a trailing slash; empty: all paths.
    pub paths: Vec<String>,
}

/// The phase of a pause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PausePhase {
    #[default]
    Off,
    /// Requests wait.
    On,
    /// The pause is over, and requests that have waited go to the app.
    Releasing,
    /// The server is shutting down while the app is paused: requests are refused.
    Refusing,
}

/// The state of a pause.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PauseFigures {
    pub phase: PausePhase,
    /// The terms; `None` if there was no pause, or a shutdown ended it.
    pub terms: Option<PauseTerms>,
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that have waited, since the start of the server.
    pub held: u64,
    /// Requests refused because too many were waiting, since the start of the server.
    pub refused: u64,
    /// Requests whose client disconnected while they waited, since the start of the server.
    pub left: u64,
}

/// The outcome for a waiting request.
#[derive(Debug)]
enum Fate {
    Go,
    Refused(Failure),
}

/// The pause of a server's app.
#[derive(Debug)]
pub struct Pause {
    /// Whether requests may have to wait.
    closed: AtomicBool,
    line: Mutex<PauseLine<oneshot::Sender<Fate>>>,
    changed: Notify,
    /// No released request is on its way to the queue any more.
    arrived: Notify,
}

impl Pause {
    pub(crate) fn new(pools: usize) -> Pause {
        let (closed, line) = (AtomicBool::new(false), Mutex::new(PauseLine::new(pools)));
        Pause { closed, line, changed: Notify::new(), arrived: Notify::new() }
    }

    /// Returns whether a request may have to wait.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// Begins a pause, or changes the terms of the one in force.
    ///
    /// # Errors
    /// The server is shutting down.
    pub fn begin(&self, terms: PauseTerms) -> Result<(), &'static str> {
        self.change(|line| line.begin(terms))
    }

    /// Ends the pause. Returns the number of requests that have waited; `None` if there is no pause.
    pub fn end(&self) -> Option<usize> {
        self.change(|line| line.end(Instant::now()))
    }

    /// Refuses the waiting requests, and later ones, because the server is shutting down. Does nothing
    /// without a pause.
    pub fn refuse(&self) {
        let waiting = self.change(PauseLine::refuse);
        tell(waiting, || Fate::Refused(shutting_down()));
    }

    pub fn figures(&self) -> PauseFigures {
        self.line().figures()
    }

    /// Waits until no pause holds requests.
    pub async fn over(&self) {
        loop {
            let mut changed = pin!(self.changed.notified());
            // Registered before the check, so that no change is missed.
            changed.as_mut().enable();
            if !matches!(self.line().phase(), PausePhase::On | PausePhase::Releasing) {
                return;
            }
            changed.await;
        }
    }

    /// Returns the phase, and when a pause that is on ends.
    pub(crate) fn at(&self) -> (PausePhase, Option<Instant>) {
        self.line().at()
    }

    /// Waits until the phase or the terms may have changed. Registered at this call.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Waits until no released request is on its way to the queue any more, and none follows. Registered at this call.
    pub(crate) fn arrived(&self) -> Notified<'_> {
        self.arrived.notified()
    }

    /// Returns whether requests of this pool wait.
    pub(crate) fn holds(&self, pool: PoolIndex) -> bool {
        self.line().waiting_of(pool) > 0
    }

    /// Passes on as many requests of this pool as its queue has room for; see [`PauseLine::release`].
    pub(crate) fn release(&self, pool: PoolIndex, room: usize, patience: Duration) {
        let released = self.change(|line| line.release(pool, room, patience, Instant::now()));
        tell(released, || Fate::Go);
    }

    /// Waits until the pause releases a request of this pool and path. Returns `None` at once if the pause does
    /// not concern it.
    ///
    /// # Errors
    /// Too many requests wait, the server is shutting down, or the client has gone.
    pub(crate) async fn wait(
        &self,
        pool: PoolIndex,
        path: &[u8],
        client: &dyn Client,
    ) -> Result<Option<PausedRequest<'_>>, Failure> {
        let (tell, mut fate) = oneshot::channel();
        let number = match self.line().enter(pool, |paths| is_below(paths, path), tell) {
            Entered::Passes => return Ok(None),
            Entered::Full { max, until } => return Err(full(max, until)),
            Entered::Refused => return Err(shutting_down()),
            Entered::Waits(number) => number,
        };
        let mut paused = PausedRequest { pause: self, pool, stage: PausedStage::Waiting(number) };
        let fate = poll_fn(|cx| match Pin::new(&mut fate).poll(cx) {
            Poll::Ready(fate) => Poll::Ready(fate.ok()),
            // A half-closed client loses its position, as in the queue.
            Poll::Pending => client.poll_departure(cx).map(|_| None),
        });
        match fate.await {
            Some(Fate::Go) => {
                paused.stage = PausedStage::OnTheWay;
                Ok(Some(paused))
            }
            Some(Fate::Refused(failure)) => {
                paused.stage = PausedStage::Refused;
                Err(failure)
            }
            None => Err(Failure::client_gone("the client went away while the app was paused")),
        }
    }

    /// Changes the line, and updates the flags that requests read.
    fn change<R>(&self, change: impl FnOnce(&mut PauseLine<oneshot::Sender<Fate>>) -> R) -> R {
        let mut line = self.line();
        let before = line.phase();
        let result = change(&mut line);
        self.closed.store(line.is_closed(), Relaxed);
        let changed = line.phase() != before || line.phase() == PausePhase::On;
        drop(line);
        if changed {
            self.changed.notify_waiters();
        }
        result
    }

    fn line(&self) -> MutexGuard<'_, PauseLine<oneshot::Sender<Fate>>> {
        // A panic elsewhere leaves the line usable: its data is plain and valid after every statement.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request in the line, until it is in the queue.
#[derive(Debug)]
pub(crate) struct PausedRequest<'a> {
    pause: &'a Pause,
    pool: PoolIndex,
    stage: PausedStage,
}

#[derive(Debug)]
enum PausedStage {
    /// In the line, with this number; or released, and not yet woken.
    Waiting(u64),
    /// Released, and not yet in the queue.
    OnTheWay,
    Refused,
}

impl Drop for PausedRequest<'_> {
    fn drop(&mut self) {
        let (pool, now) = (self.pool, Instant::now());
        let (next, moves) = self.pause.change(|line| {
            let next = match self.stage {
                PausedStage::Waiting(number) => line.leave(pool, number, now),
                PausedStage::OnTheWay => line.arrived(pool, now),
                PausedStage::Refused => None,
            };
            (next, line.is_moving(pool))
        });
        tell(next, || Fate::Go);
        if !moves {
            self.pause.arrived.notify_waiters();
        }
    }
}

/// Resolves the waiting requests; cancelled ones are ignored.
fn tell(waiting: impl IntoIterator<Item = oneshot::Sender<Fate>>, fate: impl Fn() -> Fate) {
    waiting.into_iter().for_each(|waiting| drop(waiting.send(fate())));
}

/// Returns whether a path is one of the prefixes, or below one. Without prefixes, every path is.
fn is_below(prefixes: &[String], path: &[u8]) -> bool {
    prefixes.is_empty() || {
        let path = Path::new(path);
        prefixes.iter().any(|prefix| path.below(prefix.as_bytes()).is_some())
    }
}

/// Returns the failure of a request that finds the line full. The client may retry when the pause is over.
fn full(max: usize, until: Option<Instant>) -> Failure {
    let wait = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
    Failure::busy_for(
        wait,
        format!("the app is paused, and {max} requests are waiting for its end (pause --max)"),
    )
}

fn shutting_down() -> Failure {
    Failure::busy("the app is paused, and the server is shutting down")
}

#[cfg(test)]
mod tests;
