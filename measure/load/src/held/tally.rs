//! Counts of a thread: the results of its connections, and the figures that all threads share for live progress.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::Histogram;

use super::outcome::{HoldOutcome, Interval};

/// The most different texts of errors.
const TEXTS: usize = 20;
const OTHERS: &str = "other errors";

/// Figures of all threads.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub open: AtomicU64,
    /// Connections whose first attempt has succeeded or failed.
    pub settled: AtomicU64,
    pub opened: AtomicU64,
    pub received: AtomicU64,
    pub errors: AtomicU64,
    /// WebSockets that are being closed at the end of the run.
    pub closing: AtomicU64,
}

/// Counts of one thread.
#[derive(Debug, Default)]
pub(crate) struct Tally(RefCell<HoldOutcome>);

/// The counted part as a connection sees it: `None` before it has begun.
pub(crate) type Counted = Option<Instant>;

impl Tally {
    pub(crate) fn into_held(self) -> HoldOutcome {
        self.0.into_inner()
    }

    /// Counts something of the whole run.
    pub(crate) fn count(&self, count: impl FnOnce(&mut HoldOutcome)) {
        count(&mut self.0.borrow_mut());
    }

    /// Counts something of the second under way, if the counted part has begun.
    pub(crate) fn second(&self, counted: Counted, count: impl FnOnce(&mut HoldOutcome, &mut Interval)) {
        let Some(began) = counted else { return };
        let mut held = self.0.borrow_mut();
        let second = usize::try_from(began.elapsed().as_secs()).unwrap_or(usize::MAX);
        let mut course = std::mem::take(&mut held.course);
        if course.len() <= second {
            course.resize(second + 1, Interval::default());
        }
        count(&mut held, &mut course[second]);
        held.course = course;
    }

    pub(crate) fn error(&self, counted: Counted, text: &str, is_timeout: bool) {
        self.count(|held| {
            held.timeouts += u64::from(is_timeout);
            let known = held.errors.len() < TEXTS || held.errors.contains_key(text);
            *held.errors.entry(if known { text } else { OTHERS }.to_owned()).or_default() += 1;
        });
        self.second(counted, |_, second| second.errors += 1);
    }
}

/// Records a time.
pub(crate) fn record(histogram: &mut Histogram, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1));
}

impl Shared {
    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Relaxed);
        self.opened.fetch_add(1, Relaxed);
    }
}

/// Adds the results of another thread.
pub(crate) fn add(all: &mut HoldOutcome, other: HoldOutcome) {
    for (sum, more) in [
        (&mut all.opened, other.opened),
        (&mut all.reconnects, other.reconnects),
        (&mut all.closed_by_server, other.closed_by_server),
        (&mut all.stopped_by_server, other.stopped_by_server),
        (&mut all.received, other.received),
        (&mut all.received_bytes, other.received_bytes),
        (&mut all.comments, other.comments),
        (&mut all.sent, other.sent),
        (&mut all.sent_bytes, other.sent_bytes),
        (&mut all.unsent, other.unsent),
        (&mut all.unanswered, other.unanswered),
        (&mut all.pings, other.pings),
        (&mut all.timeouts, other.timeouts),
    ] {
        *sum += more;
    }
    for (sum, more) in [
        (&mut all.open_us, &other.open_us),
        (&mut all.first_us, &other.first_us),
        (&mut all.gaps_us, &other.gaps_us),
        (&mut all.round_trip_us, &other.round_trip_us),
    ] {
        sum.take(more);
    }
    for (code, count) in other.close_codes {
        *all.close_codes.entry(code).or_default() += count;
    }
    for (text, count) in other.errors {
        *all.errors.entry(text).or_default() += count;
    }
    if all.course.len() < other.course.len() {
        all.course.resize(other.course.len(), Interval::default());
    }
    for (sum, more) in all.course.iter_mut().zip(other.course) {
        sum.opened += more.opened;
        sum.received += more.received;
        sum.sent += more.sent;
        sum.errors += more.errors;
    }
    all.busy = all.busy.max(other.busy);
}
