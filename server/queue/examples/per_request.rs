//! Measures what the queue costs per request that waits: its arrival, its turn and its end, in nanoseconds.
//!
//!     cargo run --release -p queue --example per_request

use queue::{Admission, Dispatch, QueueClient, QueueKey};
use std::time::{Duration, Instant};

/// The requests that are served while the clock runs.
const REQUESTS: u32 = 2_000_000;
/// The requests that always wait.
const WAITING: u32 = 10_000;

fn main() {
    for clients in [1, 10, 1_000, 10_000] {
        let best = (0..5).map(|_| measure(clients)).min().unwrap_or_default();
        println!("{clients:>6} clients: {:.1} ns", best.as_nanos() as f64 / f64::from(REQUESTS));
    }
}

/// Returns the time of all requests.
fn measure(clients: u32) -> Duration {
    let now = Instant::now();
    let (mut dispatch, mut assigned) =
        (Dispatch::new(WAITING as usize * 2).without_prefetching(), Vec::new());
    dispatch.worker_up(1, 2, now, &mut assigned);
    let mut number = 0;
    let mut ask = |dispatch: &mut Dispatch| {
        number += 1;
        let client = QueueClient::Address(u64::from(number % clients));
        dispatch.ask(0, number, QueueKey { client, ..QueueKey::default() }, now).1
    };
    while dispatch.waiting() < WAITING as usize {
        ask(&mut dispatch);
    }
    dispatch.finished(1, None, Some(Duration::from_millis(20)), now, &mut assigned);
    let begun = Instant::now();
    for _ in 0..REQUESTS {
        assert_eq!(ask(&mut dispatch), Admission::Wait);
        let turn = assigned.pop().map(|one| one.turn);
        dispatch.finished(1, turn, Some(Duration::from_millis(20)), now, &mut assigned);
    }
    begun.elapsed()
}
