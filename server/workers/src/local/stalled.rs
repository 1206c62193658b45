//! Ends responses for which the app waits although their clients do not read.
//!
//! Why: a response that fits into neither memory nor a file makes the app wait for its client, which occupies
//! a thread or fiber. Clients that read nothing could occupy all of them, and no other client would be
//! served.
//!
//! Contract: only while requests wait for a seat of the pool, and only responses whose clients hardly read at
//! all ([`Holding::stalled_since`]). The response that has stalled longest ends first. Slow readers keep
//! their responses.

use super::Local;
use handler::held::Holding;
use queue::PoolIndex;
use std::rc::Rc;
use std::time::Instant;

impl Local {
    /// Ends up to `count` such responses.
    pub(super) fn free_seats(&self, pool: PoolIndex, count: usize) {
        let now = Instant::now();
        let mut stalled: Vec<(Instant, Rc<Holding>)> = Vec::new();
        for link in self.links.borrow().iter().filter(|link| link.end.pool == pool) {
            link.each_flight(|_, call| {
                let holding = if call.waits_for_client() { call.holding() } else { None };
                let holding = holding.filter(|holding| !holding.is_displaced());
                stalled.extend(holding.and_then(|one| Some((one.stalled_since(now)?, one))));
            });
        }
        stalled.sort_by_key(|(since, _)| *since);
        stalled.iter().take(count).for_each(|(_, holding)| holding.displace());
    }
}
