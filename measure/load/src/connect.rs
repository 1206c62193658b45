//! Opens connections within the time-out, and backs off after failures.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use crate::clock::{NEVER, micros, nanoseconds};
use crate::endpoint::{Endpoint, Handshake};
use crate::job::Failure;
use crate::lane::{Lane, Slot};
use crate::quic::{self, Quic};
use crate::stream::{Negotiated, Stream};

/// The pause after a failure; it doubles each time.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A user's connection attempts so far.
#[derive(Debug, Default)]
pub(crate) struct Attempts {
    tried: Cell<bool>,
    /// Consecutive failures.
    failures: Cell<u32>,
}

impl Attempts {
    /// Opens a user's own connection, or fails within the connect time-out.
    pub(crate) async fn open(
        &self,
        lane: &Lane,
        slot: &Slot,
        origin: usize,
    ) -> Result<Stream, (Failure, String)> {
        self.settle(lane, open(lane, slot, origin)).await
    }

    /// Records how a user's first attempt went. If all first attempts fail, the run is aborted.
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

    /// Resets the back-off after a response.
    pub(crate) fn succeeded(&self) {
        self.failures.set(0);
    }

    /// Backs off, so that a server that is down is not flooded with connection attempts.
    pub(crate) async fn pause(&self, lane: &Lane) {
        let failures = self.failures.replace((self.failures.get() + 1).min(16));
        let pause = net::backoff(SHORTEST_PAUSE, failures, LONGEST_PAUSE);
        let mut sleep = pin!(tokio::time::sleep(pause));
        poll_fn(|cx| match lane.cut.get() || lane.now() >= lane.run.end() {
            true => Poll::Ready(()),
            false => sleep.as_mut().poll(cx),
        })
        .await;
    }
}

/// Opens a connection, or fails within the connect time-out.
pub(crate) async fn open(lane: &Lane, slot: &Slot, origin: usize) -> Result<Stream, (Failure, String)> {
    let handshake = Cell::default();
    let target = &lane.run.endpoints[origin];
    timed(lane, slot, (target, false), &handshake, target.open(&handshake), Stream::tls).await
}

/// Does the same for a QUIC connection.
pub(crate) async fn open_quic(lane: &Lane, slot: &Slot, origin: usize) -> Result<Quic, (Failure, String)> {
    let handshake = Cell::default();
    let target = &lane.run.endpoints[origin];
    timed(lane, slot, (target, true), &handshake, quic::open(target, &handshake), Quic::tls).await
}

async fn timed<T>(
    lane: &Lane,
    slot: &Slot,
    (target, quic): (&Endpoint, bool),
    handshake: &Cell<Handshake>,
    open: impl Future<Output = Result<T, String>>,
    tls: impl Fn(&T) -> Option<Negotiated>,
) -> Result<T, (Failure, String)> {
    let begin = lane.now();
    slot.deadline.set(begin.saturating_add(nanoseconds(lane.run.scenario.timeouts.connect)));
    // Boxed: a TLS handshake is large, and there may be 100,000 users.
    let opened = match in_time(lane, slot, Box::pin(open)).await {
        Ok(opened) => opened.map_err(|text| (Failure::Connect, text)),
        Err(Failure::Timeout) => Err((Failure::ConnectTimeout, target.late(handshake.get(), quic))),
        Err(failure) => Err((failure, CUT_OFF.to_owned())),
    };
    let mut recorder = lane.recorder.borrow_mut();
    if opened.is_ok() {
        recorder.connected(micros(begin, lane.now()));
    }
    match (&opened, handshake.get()) {
        (Ok(opened), Handshake::Complete(took)) => {
            if let Some(tls) = tls(opened) {
                recorder.shook_hands(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), &tls);
            }
        }
        (Err((Failure::ConnectTimeout, _)), Handshake::Begun) => {
            recorder.handshake_failed("not complete in time (--connect-timeout)");
        }
        (Err((Failure::Connect, text)), Handshake::Begun) => {
            recorder.handshake_failed(target.reason(text));
        }
        _ => {}
    }
    opened
}

/// The error text of requests that the end of the run cut off.
pub(crate) const CUT_OFF: &str = "no complete response when the run ended";

/// Waits for a future, but not past the slot's deadline (`Timeout`) or the end of the run (`CutOff`).
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
