//! Where the routes get their figures from.

use stats::{Death, InFlight, ServerSnapshot};

/// Figures of a running server. Everything happens on the thread of [`crate::Server::run`].
pub trait Provider {
    /// Everything that `/stats` returns.
    fn stats(&self) -> impl Future<Output = ServerSnapshot>;

    /// At most `limit` of the requests under way, slowest first. With `backtraces` the workers report where in the app their
    /// threads are, which takes as long as they need to get to Ruby's global lock, but no longer than a second.
    fn requests(&self, limit: usize, backtraces: bool) -> impl Future<Output = Vec<InFlight>>;

    /// How the last workers ended, the newest first.
    fn deaths(&self) -> impl Future<Output = Vec<Death>>;
}
