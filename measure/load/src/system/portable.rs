//! Uses tokio's timer, and for the rest of the time checks the clock in each turn of the event loop.

use std::io;
use std::time::{Duration, Instant};

/// The most by which tokio's timer may be late.
const LATE: Duration = Duration::from_millis(2);

pub(crate) struct Timer;

impl Timer {
    pub(crate) fn new() -> io::Result<Timer> {
        Ok(Timer)
    }

    pub(crate) async fn sleep(&self, duration: Duration) -> io::Result<()> {
        let until = Instant::now() + duration;
        if duration > LATE {
            tokio::time::sleep(duration - LATE).await;
        }
        while Instant::now() < until {
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}
