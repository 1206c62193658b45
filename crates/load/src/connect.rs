//! Opening a connection in time, and pausing when that is in vain.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use crate::clock::{NEVER, micros, nanoseconds};
use crate::job::Failure;
use crate::lane::{Lane, Slot};
use crate::stream::Stream;

/// After failures: twice as long each time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How a user's connecting has gone so far.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    tried: Cell<bool>,
    /// In vain, one after the other.
    failures: Cell<u32>,
}

impl Attempts {
    /// Opens a connection, or says in time that there will be none.
    pub(crate) async fn open(
        &self,
        lane: &Lane,
        slot: &Slot,
        origin: usize,
    ) -> Result<Stream, (Failure, String)> {
        self.settle(lane, async {
            let begin = lane.now();
            slot.deadline.set(begin.saturating_add(nanoseconds(lane.run.plan.timeouts.connect)));
            let target = &lane.run.targets[origin];
            let late = || format!("no connection to {} in time", target.name());
            // In a box: a TLS handshake is large, and there may be 100,000 users.
            let opened = match in_time(lane, slot, Box::pin(target.open())).await {
                Ok(opened) => opened.map_err(|text| (Failure::Connect, text)),
                Err(Failure::Timeout) => Err((Failure::ConnectTimeout, late())),
                Err(failure) => Err((failure, CUT_OFF.to_owned())),
            };
            if opened.is_ok() {
                lane.recorder.borrow_mut().connected(micros(begin, lane.now()));
            }
            opened
        })
        .await
    }

    /// Tells the run how a user's first attempt has gone: when all fail, there is no point in going on.
    pub(crate) async fn settle<T>(
        &self,
        lane: &Lane,
        attempt: impl Future<Output = Result<T, (Failure, String)>>,
    ) -> Result<T, (Failure, String)> {
        let tries = &lane.run.first_tries;
        let first = !self.tried.replace(true);
        if first {
            tries.begun.fetch_add(1, Relaxed);
        }
        let result = attempt.await;
        match &result {
            Ok(_) => tries.opened.store(true, Relaxed),
            Err((_, text)) if first => {
                if let Ok(mut why) = tries.why.lock() {
                    why.get_or_insert_with(|| text.clone());
                }
                tries.failed.fetch_add(1, Relaxed);
            }
            Err(_) => {}
        }
        if first {
            tries.settled.fetch_add(1, Relaxed);
        }
        result
    }

    /// An answer has come: the next failure is the first one again.
    pub(crate) fn succeeded(&self) {
        self.failures.set(0);
    }

    /// A server that is gone is not asked as fast as we can.
    pub(crate) async fn pause(&self, lane: &Lane) {
        let failures = self.failures.replace((self.failures.get() + 1).min(16));
        let pause = (SHORTEST_PAUSE * 2u32.saturating_pow(failures)).min(LONGEST_PAUSE);
        let mut sleep = pin!(tokio::time::sleep(pause));
        poll_fn(|cx| match lane.cut.get() || lane.now() >= lane.run.end() {
            true => Poll::Ready(()),
            false => sleep.as_mut().poll(cx),
        })
        .await;
    }
}

/// What is said of requests that the end of the run cut off.
pub(crate) const CUT_OFF: &str = "not answered when the run was over";

/// Waits for something, but not longer than the slot's deadline or the run's end; then it says `Timeout` or `CutOff`.
pub(crate) async fn in_time<T>(
    lane: &Lane,
    slot: &Slot,
    what: impl Future<Output = T>,
) -> Result<T, Failure> {
    let mut what = pin!(what);
    let result = poll_fn(|cx| {
        if let Poll::Ready(done) = what.as_mut().poll(cx) {
            return Poll::Ready(Ok(done));
        }
        if lane.cut.get() {
            return Poll::Ready(Err(Failure::CutOff));
        }
        match slot.expired.take() {
            true => Poll::Ready(Err(Failure::Timeout)),
            false => Poll::Pending,
        }
    })
    .await;
    slot.deadline.set(NEVER);
    slot.expired.set(false);
    result
}
