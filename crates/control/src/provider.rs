//! Who knows what the server is doing: the other side of the routes.

use stats::{InFlight, ServerSnapshot};

/// Answers questions about a running server. Everything happens on the thread of [`crate::Server::run`].
pub trait Provider {
    /// Everything that `/stats` tells.
    fn stats(&self) -> impl Future<Output = ServerSnapshot>;

    /// At most `limit` of the requests under way, slowest first. With `backtraces` the workers are asked where in the app their
    /// threads are, which takes as long as they need to get to Ruby's global lock, but no longer than a second.
    fn requests(&self, limit: usize, backtraces: bool) -> impl Future<Output = Vec<InFlight>>;
}
