//! A pause: requests for the app wait in the front, and no worker gets any.
//!
//! Why not in the queue: the number of workers follows the waits of the queue, and its figures and time-outs
//! are about an app that is busy. A paused app is idle on purpose.
//!
//! Contract:
//! 1. Without a pause a request costs one relaxed load.
//! 2. Requests that the queue or a worker has when the pause begins end normally. All later ones wait in the
//!    [`Line`], of every front thread.
//! 3. A pause ends by itself when its time is over, whatever has become of the command that began it.
//! 4. The requests then go to the queue in order of arrival, no faster than seats become free
//!    ([`crate::resume`]), so the limits of the queue are not met by a crowd. Later requests wait behind them.
//! 5. A shutdown refuses all of them (503), because the app may not be asked yet.

mod line;

use handler::path::Path;
use handler::{Client, Failure};
use line::{Entered, Line};
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
    /// The terms; `None` if there has been no pause, or a shutdown has ended it.
    pub terms: Option<PauseTerms>,
    /// Requests that wait.
    pub waiting: usize,
    /// Requests that have waited, since the start of the server.
    pub held: u64,
    /// Requests that were refused because too many waited, since the start of the server.
    pub refused: u64,
    /// Requests whose client went away while they waited, since the start of the server.
    pub left: u64,
}

/// The fate of a waiting request.
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
    line: Mutex<Line<oneshot::Sender<Fate>>>,
    changed: Notify,
    /// No released request is on its way to the queue any more.
    arrived: Notify,
}

impl Pause {
    pub(crate) fn new(pools: usize) -> Pause {
        let (closed, line) = (AtomicBool::new(false), Mutex::new(Line::new(pools)));
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

    /// Refuses the requests that wait, and later ones, because the server is shutting down. Does nothing
    /// without a pause.
    pub fn refuse(&self) {
        let waiting = self.change(Line::refuse);
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

    /// Waits until no released request is on its way to the queue any more. Registered at this call.
    pub(crate) fn arrived(&self) -> Notified<'_> {
        self.arrived.notified()
    }

    /// Returns whether requests of this pool wait.
    pub(crate) fn holds(&self, pool: PoolIndex) -> bool {
        self.line().waiting_of(pool) > 0
    }

    /// Passes on as many requests of this pool as its queue has room for; see [`Line::release`].
    pub(crate) fn release(&self, pool: PoolIndex, room: usize, patience: Duration) {
        let released = self.change(|line| line.release(pool, room, patience, Instant::now()));
        tell(released, || Fate::Go);
    }

    /// Waits with a request of this pool and path, on front thread `thread`, until the pause lets it go on. `None`: it does not have to
    /// wait.
    ///
    /// # Errors
    /// Too many requests wait, the server is shutting down, or the client has gone.
    pub(crate) async fn wait(
        &self,
        pool: PoolIndex,
        thread: u16,
        path: &[u8],
        client: &dyn Client,
    ) -> Result<Option<PausedRequest<'_>>, Failure> {
        let (tell, mut fate) = oneshot::channel();
        let number = match self.line().enter(pool, thread, |paths| is_below(paths, path), tell) {
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

    /// Changes the line, and what requests see of it.
    fn change<R>(&self, change: impl FnOnce(&mut Line<oneshot::Sender<Fate>>) -> R) -> R {
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

    fn line(&self) -> MutexGuard<'_, Line<oneshot::Sender<Fate>>> {
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
        let pool = self.pool;
        let moves = self.pause.change(|line| {
            match self.stage {
                PausedStage::Waiting(number) => line.leave(pool, number, Instant::now()),
                PausedStage::OnTheWay => line.arrived(pool),
                PausedStage::Refused => {}
            }
            line.is_moving(pool)
        });
        if !moves {
            self.pause.arrived.notify_waiters();
        }
    }
}

/// Tells requests their fate. A client that has just gone does not hear it.
fn tell(waiting: Vec<oneshot::Sender<Fate>>, fate: impl Fn() -> Fate) {
    waiting.into_iter().for_each(|waiting| drop(waiting.send(fate())));
}

/// Returns whether a path is one of the prefixes, or below one. No prefixes: every path is.
fn is_below(prefixes: &[String], path: &[u8]) -> bool {
    prefixes.is_empty() || {
        let path = Path::new(path);
        prefixes.iter().any(|prefix| path.below(prefix.as_bytes()).is_some())
    }
}

/// Returns the failure of a request that finds the line full. It may come again when the pause is over.
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
