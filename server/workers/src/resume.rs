//! Ends pauses when their time is over, and passes the waiting requests to the queues.
//!
//! Contract:
//! 1. A queue gets requests only while few wait in it: twice as many as it has seats, or [`LEAST_AHEAD`]. So
//!    the app stays busy, and the limits of the queue are not exceeded.
//! 2. In this phase no worker gets requests in advance, so that they start in order of arrival.
//! 3. A request does not wait for room for longer than the time-out of the queue: see [`crate::Pause`].

use crate::pause::{Pause, PausePhase};
use crate::shared::Shared;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::time::{timeout, timeout_at};

/// The interval of the releases, unless the last released requests are in the queue sooner.
const TICK: Duration = Duration::from_millis(2);
/// The least number of requests of a pool that may wait for a seat during the release.
const LEAST_AHEAD: usize = 16;

/// Follows the pause of `shared`, as long as the server runs. A request waits for its release for at most
/// `patience` once others pass it. `over` is called when a pause ends by itself, with the number of waiting
/// requests.
pub async fn follow(shared: &Shared, patience: impl Fn() -> Duration, over: impl Fn(usize)) {
    let pause = shared.pause();
    loop {
        // Registered before the phase is read, so that no change is missed.
        let mut changed = pin!(pause.changed());
        changed.as_mut().enable();
        match pause.at() {
            (PausePhase::On, Some(until)) if until <= Instant::now() => {
                if let Some(waiting) = pause.end() {
                    over(waiting);
                }
            }
            (PausePhase::On, Some(until)) => {
                // The result makes no difference: the phase is read again.
                let _ = timeout_at(until.into(), changed).await;
            }
            (PausePhase::Releasing, _) => {
                let mut arrived = pin!(pause.arrived());
                arrived.as_mut().enable();
                release(shared, pause, patience());
                // The queue does not signal free room, so poll it.
                let _ = timeout(TICK, arrived).await;
            }
            _ => changed.await,
        }
    }
}

/// Passes as many requests on as the queues have room for.
fn release(shared: &Shared, pause: &Pause, patience: Duration) {
    for pool in shared.pools().indexes().filter(|pool| pause.holds(*pool)) {
        let room = {
            let mut queue = shared.dispatch(pool);
            queue.serve_in_order(Instant::now());
            let seats = queue.seats() as usize;
            let ahead = if seats == 0 { 0 } else { (2 * seats).max(LEAST_AHEAD) };
            ahead.saturating_sub(queue.waiting())
        };
        // Two locks are never held at a time.
        pause.release(pool, room, patience);
    }
}
