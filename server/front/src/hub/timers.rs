//! The timers of a subscription: a channel's `periodically`, whose methods the app runs as it runs actions.
//!
//! Contract:
//! 1. A run is a call like an action, in turn with the client's commands, because it may change the variables of the channel. At most one
//!    run of a timer waits.
//! 2. Timers end with their subscription. After a reload they follow the new code: each answer to a run names the timers again.

use net::task::spawn_local;
use std::time::Duration;
use tokio::task::JoinHandle;

/// The most timers of a channel.
const MOST: usize = 32;
/// The shortest and the longest interval, in seconds.
const SHORTEST: f64 = 0.01;
const LONGEST: f64 = 1e9;

/// The timers of one subscription.
pub(super) struct ChannelTimers {
    /// The intervals in seconds, as the app has named them.
    every: Box<[f64]>,
    tasks: Vec<JoinHandle<()>>,
}

impl ChannelTimers {
    /// Starts timers; `None` if there are none. `run` gets the place of a timer whose time has come, and returns whether the client is still there.
    pub(super) fn start(
        every: &[f64],
        run: impl Fn(usize) -> bool + Clone + 'static,
    ) -> Option<Box<ChannelTimers>> {
        if every.is_empty() {
            return None;
        }
        let task = |(at, every): (usize, &f64)| {
            let every = Duration::from_secs_f64(every.clamp(SHORTEST, LONGEST));
            let run = run.clone();
            spawn_local(async move {
                loop {
                    tokio::time::sleep(every).await;
                    if !run(at) {
                        return;
                    }
                }
            })
        };
        let tasks = every.iter().take(MOST).enumerate().map(task).collect();
        Some(Box::new(ChannelTimers { every: every.into(), tasks }))
    }

    pub(super) fn every(&self) -> &[f64] {
        &self.every
    }
}

impl Drop for ChannelTimers {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}
