//! Detects clients that do not read their responses: [`Delivery`] for a connection over TCP or a Unix socket,
//! [`Watch`] for a QUIC stream.
//!
//! Why: a write only fills the system's buffers, and no event tells whether the client reads them. A client
//! that reads nothing would cost the server hundreds of kilobytes until the connection is closed, and the
//! system minutes after that. A slow reader, on the other hand, makes room for a write only now and then,
//! although it never stops reading.
//!
//! Contract:
//! 1. `timeouts.send` is the longest time in which a client may acknowledge nothing of the data sent to it,
//!    whatever the connection does: sending a response, waiting for one, idle, a tunnel. Then the connection
//!    is cut and unreceived data is discarded.
//!    A client that has taken much at once may still read it from its system's buffer or its window: it has
//!    the time for that ([`Unread`]).
//! 2. Progress is measured by acknowledged bytes, not by accepted writes. Where the system does not report
//!    acknowledgements, only a client that leaves no room for a write is timed, and accepted writes count as
//!    progress.
//! 3. `limits.min_download_rate` is the lowest rate while unacknowledged data exists.
//! 4. Checks that cost a system call run at most a few times per `timeouts.send`. A few bytes are watched, too:
//!    the events of a slow stream, or one message of a tunnel, to a client that has vanished. While they are
//!    in flight, the system sends no keep-alive probes.
//! 5. A client that reads fast and leaves no room for writes gets a larger system buffer ([`crate::unsent`]).
//! 6. A check is late by at most a quarter of `timeouts.send`, or [`LONGEST`].

use crate::context::ThreadShared;
use crate::room::RoomState;
use crate::unsent::Unsent;
use net::{Lane, Timer, Transport, Unread};
use settings::Settings;
use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

/// Fewer bytes are left to the system when a connection closes: they fit into any normal client's window.
const SMALL: u32 = 1 << 10;
/// The most bytes that a closed connection may leave to the system. It discards them after `timeouts.send`,
/// and the time for which the client has been reading before the close.
const LEFT_BEHIND: u64 = 16 << 10;
/// The longest and the shortest interval between two checks.
const LONGEST: Duration = Duration::from_millis(2_500);
const SHORTEST: Duration = Duration::from_millis(100);
/// How long a client may be slower than `limits.min_download_rate`.
const GRACE: Duration = Duration::from_secs(10);

/// The delivery state of one connection.
#[derive(Default)]
pub(crate) struct Delivery {
    /// Bytes written since the client was last known to have everything.
    unproved: Cell<u32>,
    /// A deadline is set for the next check.
    watching: Cell<bool>,
    /// A write waits for room.
    blocked: Cell<bool>,
    unsent: Unsent,
    watch: Cell<Option<Box<Watch>>>,
}

/// The progress of a client that has not acknowledged everything.
pub(crate) struct Watch {
    /// When its first unacknowledged byte was written.
    begun: Instant,
    progress: Progress,
    /// The start of the current time without an acknowledgement.
    since: Instant,
    /// The start of the rate measurement: time and progress.
    measured: (Instant, u64),
    /// The client has received everything written until this time.
    has_until: Instant,
    /// The next value of `has_until`, and the progress at which it is reached.
    next: Option<(Instant, Progress)>,
    /// The bytes that the client's program may not have read yet.
    unread: Unread,
}

/// The number of acknowledged bytes; it only grows.
type Progress = u64;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryState {
    /// The client has acknowledged everything.
    Everything,
    /// The client is receiving.
    Receiving,
    /// The client has stopped, or is too slow.
    Stalled,
}

impl Watch {
    /// `begun`: when the first unacknowledged byte was written.
    fn new(progress: Progress, unread: Unread, begun: Instant, now: Instant) -> Watch {
        let measured = (now, progress);
        Watch { begun, progress, since: now, measured, has_until: begun, next: None, unread }
    }

    /// Creates the watch of a connection over TCP whose client has acknowledged `taken` bytes since `begun`.
    fn of_connection(progress: Progress, taken: u64, begun: Instant, now: Instant) -> Watch {
        let mut unread = Unread::of_connection();
        unread.sent(taken, begun);
        Watch::new(progress, unread, begun, now)
    }

    /// Creates the watch of one of several streams. `all`: acknowledged bytes of the whole connection.
    pub(crate) fn of_stream(progress: Progress, all: Progress, unread: Unread, now: Instant) -> Watch {
        Watch { measured: (now, all), ..Watch::new(progress, unread, now, now) }
    }

    /// Updates `has_until`. `left`: about how many bytes the client has not acknowledged.
    fn follow(&mut self, left: u64, now: Instant) {
        match self.next {
            Some((_, wanted)) if self.progress < wanted => {}
            reached => {
                self.has_until = reached.map_or(self.has_until, |(until, _)| until);
                self.next = Some((now, self.progress.saturating_add(left)));
            }
        }
    }

    /// Judges a client that has not acknowledged everything. `all`: acknowledged bytes of the whole
    /// connection, which the rate is based on.
    pub(crate) fn judge(
        &mut self,
        progress: Progress,
        all: Progress,
        now: Instant,
        settings: &Settings,
    ) -> DeliveryState {
        if progress != self.progress {
            self.unread.sent(progress.saturating_sub(self.progress), now);
            (self.progress, self.since) = (progress, now);
        }
        if now.duration_since(self.since) >= self.unread.patience(settings.timeouts.send, now) {
            return DeliveryState::Stalled;
        }
        let (begun, before) = self.measured;
        let time = now.duration_since(begun);
        if let Some(rate) = settings.limits.min_download_rate
            && time >= GRACE
        {
            if (all.saturating_sub(before) as f64) < rate as f64 * time.as_secs_f64() {
                return DeliveryState::Stalled;
            }
            self.measured = (now, all);
        }
        DeliveryState::Receiving
    }
}

impl Delivery {
    /// Records that `bytes` were written.
    #[inline]
    pub(crate) fn wrote(&self, bytes: usize, timer: &Timer, shared: &ThreadShared) {
        let unproved = self.unproved.get().saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.unproved.set(unproved);
        if !self.watching.get() {
            self.watch(timer, shared);
        }
    }

    /// Records whether a write waits for room. Returns `true` if that has changed.
    pub(crate) fn block<S: Transport>(
        &self,
        blocked: bool,
        stream: &S,
        timer: &Timer,
        shared: &ThreadShared,
    ) -> bool {
        let changed = self.blocked.replace(blocked) != blocked;
        if changed && blocked {
            self.unsent.widen(stream);
            if !self.watching.get() {
                self.watch(timer, shared);
            }
        }
        changed
    }

    /// Returns whether a client that blocks a write has acknowledged more since the last check. Returns
    /// `true` if there was no earlier check.
    pub(crate) fn has_advanced<S: Transport>(
        &self,
        stream: &S,
        timer: &Timer,
        shared: &ThreadShared,
    ) -> bool {
        if !self.blocked.get() {
            return false;
        }
        let known = self.progress();
        self.look(stream, 0, timer, shared) != DeliveryState::Stalled && self.progress() != known
    }

    /// Forgets unacknowledged data, because the connection ends with a reset.
    pub(crate) fn give_up(&self) {
        self.unproved.set(0);
    }

    fn watch(&self, timer: &Timer, shared: &ThreadShared) {
        self.watching.set(true);
        timer.arm_in(Lane::Write, interval(shared.settings().timeouts.send));
    }

    /// Checks the client if a check is due. Returns `true` if the client has stalled; then the stream is cut.
    #[inline]
    pub(crate) fn is_stalled<S: Transport>(&self, stream: &S, timer: &Timer, shared: &ThreadShared) -> bool {
        timer.expired(Lane::Write) && self.look(stream, 0, timer, shared) == DeliveryState::Stalled
    }

    /// Asks the system how much the client has acknowledged. `queued`: bytes that are not written yet.
    pub(crate) fn look<S: Transport>(
        &self,
        stream: &S,
        queued: usize,
        timer: &Timer,
        shared: &ThreadShared,
    ) -> DeliveryState {
        let (settings, now) = (shared.settings(), shared.timers.now());
        let (progress, left) = match stream.delivery() {
            Some(delivery) => (delivery.acknowledged, delivery.outstanding),
            None => (u64::from(self.unproved.get()), u64::from(self.blocked.get())),
        };
        if left == 0 {
            self.watch.set(None);
            self.watching.set(false);
            self.unproved.set(0);
            self.unsent.narrow(stream);
            timer.disarm(Lane::Write);
            return DeliveryState::Everything;
        }
        let mut watch = self.watch.take().unwrap_or_else(|| {
            let begun = now.checked_sub(interval(settings.timeouts.send)).unwrap_or(now);
            let taken = u64::from(self.unproved.get()).saturating_sub(left);
            Box::new(Watch::of_connection(progress, taken, begun, now))
        });
        let found = watch.judge(progress, progress, now, &settings);
        watch.follow(left.saturating_add(queued as u64), now);
        self.watch.set(Some(watch));
        if found == DeliveryState::Stalled {
            timer.disarm(Lane::Write);
            stream.cut();
        } else {
            self.watch(timer, shared);
        }
        found
    }

    /// Returns the acknowledged bytes at the last check. `None`: the client has everything, as far as known.
    pub(crate) fn progress(&self) -> Option<u64> {
        self.watched(|watch| watch.progress)
    }

    /// Returns the time until which the client has received everything written. `None`: the client has
    /// everything, as far as known.
    pub(crate) fn has_until(&self) -> Option<Instant> {
        self.watched(|watch| watch.has_until)
    }

    /// Reads from the watch, if there is one.
    fn watched<R>(&self, read: impl FnOnce(&Watch) -> R) -> Option<R> {
        let watch = self.watch.take()?;
        let found = read(&watch);
        self.watch.set(Some(watch));
        Some(found)
    }

    /// Waits, with the write direction closed, until the client has nearly everything, has stalled, or the
    /// connection must make room. The system keeps the rest and discards it after `timeouts.send`. Bytes that
    /// still arrive are discarded.
    pub(crate) async fn settle<S: Transport>(&self, stream: &S, timer: &Timer, shared: &ThreadShared) {
        if self.unproved.get() < SMALL {
            return;
        }
        let (mut wait, mut closed) = (SHORTEST, false);
        loop {
            let left = stream.delivery().map_or(0, |delivery| delivery.outstanding);
            if left == 0 {
                return;
            }
            let send = shared.settings().timeouts.send;
            if left <= LEFT_BEHIND || shared.draining.get() {
                // The system counts from its first probe of a full window, and goes on counting while the
                // client reads slowly.
                let now = shared.timers.now();
                let time = self.watched(|watch| {
                    watch
                        .unread
                        .patience(send, now)
                        .saturating_add(now.saturating_duration_since(watch.begun))
                });
                return stream.abandon_after(time.unwrap_or(send));
            }
            if self.look(stream, 0, timer, shared) == DeliveryState::Stalled {
                return;
            }
            if shared.room.is_chosen(timer.key()) {
                return stream.cut();
            }
            shared.room.wait(timer.key(), RoomState::Stalled, shared.timers.recent());
            if !std::mem::replace(&mut closed, true) {
                stream.end_writing();
            }
            timer.arm_in(Lane::Read, wait);
            wait = (wait * 2).min(interval(send));
            poll_fn(|cx| {
                timer.wakes(cx.waker());
                // Encryption may still buffer bytes. A failure here shows up in the next check.
                let _ = stream.poll_flush(cx);
                let woken = timer.expired(Lane::Read) || shared.room.is_chosen(timer.key());
                if woken { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            // Unread bytes would turn the close into a reset.
            let mut scratch = shared.scratch.borrow_mut();
            while stream.read_anyway(&mut scratch).is_ok_and(|n| n == scratch.len()) {}
        }
    }
}

/// Returns the time between a write, or a check, and the next check.
pub(crate) fn interval(send: Duration) -> Duration {
    (send / 4).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Returns the results of one check per second of a client. `seen`: its acknowledged bytes at each check.
    fn looks(send: u64, rate: Option<u64>, seen: impl IntoIterator<Item = u64>) -> Vec<DeliveryState> {
        let mut settings = Settings::defaults(Path::new("/"));
        settings.timeouts.send = Duration::from_secs(send);
        settings.limits.min_download_rate = rate;
        let start = Instant::now();
        let mut watch = Watch::new(0, Unread::of_connection(), start, start);
        let at = |second| start + Duration::from_secs(second);
        seen.into_iter()
            .zip(0..)
            .map(|(progress, second)| watch.judge(progress, progress, at(second), &settings))
            .collect()
    }

    #[test]
    fn a_client_that_takes_nothing_for_long_enough_has_stalled() {
        use DeliveryState::{Receiving, Stalled};
        assert_eq!(looks(3, None, [0, 0, 0, 0]), [Receiving, Receiving, Receiving, Stalled]);
        assert_eq!(looks(3, None, [0, 0, 1, 1, 1]), [Receiving; 5]);
        assert_eq!(looks(3, None, [0, 9, 9, 9, 9]), [Receiving, Receiving, Receiving, Receiving, Stalled]);
    }

    /// As in `net::Unread`.
    const MUCH: u64 = 256 << 10;

    #[test]
    fn a_client_that_has_taken_much_has_the_time_to_read_it() {
        // The second of the stall of a client that has taken so many bytes at once, and then some at these seconds.
        let stall = |taken, then: &[(u64, u64)]| {
            let mut settings = Settings::defaults(Path::new("/"));
            settings.timeouts.send = Duration::from_secs(10);
            let start = Instant::now();
            let at = |second| start + Duration::from_secs(second);
            let mut watch = Watch::of_connection(taken, taken, start, start);
            (0..1000).find(|&second| {
                let more: u64 = then.iter().filter(|(when, _)| *when <= second).map(|(_, more)| more).sum();
                watch.judge(taken + more, taken + more, at(second), &settings) == DeliveryState::Stalled
            })
        };
        assert_eq!(stall(MUCH - 1, &[]), Some(10), "its system may have taken that");
        assert_eq!(stall(40 * 4096 + MUCH, &[]), Some(50), "the time has an end");
        assert_eq!(stall(MUCH, &[(1, 1)]), Some(51), "from the last acknowledgement on");
        assert_eq!(stall(100, &[(5, MUCH), (40, 4096)]), Some(70), "then it has read everything");
        // As `curl --limit-rate 5000` reads.
        let steps: Vec<(u64, u64)> = (0..25).map(|step| (40 * step, 40 * 5000)).collect();
        assert_eq!(stall(2 * MUCH, &steps), None);
    }

    #[test]
    fn a_byte_now_and_then_is_enough_without_a_rate() {
        let steady = (0..600).map(|second| second / 5);
        assert!(looks(6, None, steady.clone()).iter().all(|found| *found == DeliveryState::Receiving));
        assert_eq!(
            looks(6, Some(1), steady).iter().position(|found| *found == DeliveryState::Stalled),
            Some(10)
        );
    }

    #[test]
    fn a_client_at_the_rate_is_kept_and_one_that_slows_down_is_not() {
        let steady = (0..600).map(|second| second * 500);
        assert!(looks(60, Some(500), steady.clone()).iter().all(|found| *found == DeliveryState::Receiving));
        let slowing = steady.map(|bytes| bytes.min(50_000));
        let end = looks(60, Some(500), slowing).iter().position(|found| *found == DeliveryState::Stalled);
        assert!(end.is_some_and(|end| (100..=120).contains(&end)), "{end:?}");
    }

    #[test]
    fn what_a_client_has_is_known_by_what_it_takes() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut watch = Watch::new(0, Unread::of_connection(), start, at(1));
        let mut seen = |progress, left, second| {
            watch.progress = progress;
            watch.follow(left, at(second));
            watch.has_until.duration_since(start).as_secs()
        };
        assert_eq!([seen(0, 100, 1), seen(50, 200, 2), seen(100, 200, 3)], [0, 0, 1]);
        assert_eq!([seen(299, 9, 4), seen(300, 9, 5)], [1, 3]);
    }

    #[test]
    fn looks_are_few_and_early_enough() {
        let seconds = Duration::from_secs;
        assert_eq!((interval(seconds(60)), interval(seconds(3))), (LONGEST, Duration::from_millis(750)));
        assert_eq!(interval(Duration::from_millis(1)), SHORTEST);
    }
}
