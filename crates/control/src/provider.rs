//! Where the routes get their figures from.

use crate::reload::{ReloadLine, ReloadWish};
use stats::{Death, InFlight, Load, ServerSnapshot, Status};
use tokio::sync::mpsc;

/// What Puma's tools ask for (`pumactl`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Finish requests and end, as TERM.
    Stop,
    /// End at once, as INT twice.
    Halt,
    /// A new program takes over, as USR2.
    Restart,
    /// New code takes over, worker by worker, as USR1.
    PhasedRestart,
}

/// Figures of a running server. Everything happens on the thread of [`crate::Server::run`].
pub trait Provider {
    /// Everything that `/stats` returns.
    fn stats(&self) -> impl Future<Output = ServerSnapshot>;

    /// What `/metrics` has of it: memory may have been measured half a minute ago, because measuring takes the kernel some time, and CPU
    /// times are 0.
    fn scraped(&self) -> impl Future<Output = ServerSnapshot>;

    /// How full the server is. Asked for each second.
    fn load(&self) -> impl Future<Output = Load>;

    /// What the server is at, and whether it is live and ready; at any time, and at once.
    fn status(&self) -> impl Future<Output = Status>;

    /// Whether there are figures yet. Before that [`Provider::stats`] and [`Provider::requests`] wait.
    fn has_figures(&self) -> bool;

    /// At most `limit` of the requests under way, slowest first. With `backtraces` the workers report where in the app their
    /// threads are, which takes as long as they need to get to Ruby's global lock, but no longer than a second.
    fn requests(&self, limit: usize, backtraces: bool) -> impl Future<Output = Vec<InFlight>>;

    /// How the last workers ended, the newest first.
    fn deaths(&self) -> impl Future<Output = Vec<Death>>;

    /// Starts a reload, or the way back; its steps. The last one is an end. It goes on when nobody listens any more.
    fn reload(&self, wish: ReloadWish) -> mpsc::UnboundedReceiver<ReloadLine>;

    /// Does what one of Puma's tools asks for, as the signal of the same meaning would; soon, so that who asks gets an answer.
    fn order(&self, order: Order);

    /// Starts a new program that takes over; steps and end as of a reload.
    fn upgrade(&self) -> mpsc::UnboundedReceiver<ReloadLine>;
}
