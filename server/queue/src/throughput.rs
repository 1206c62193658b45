//! Measures how fast the queue moves, to predict how long a new request would wait. Pure: times are passed
//! in.
//!
//! Why completions per seat and second, and not the mean time of a request: this is the rate that the queue
//! really has, whatever the seats wait for, and it needs no model. It can only be measured while requests
//! wait; with a free seat, requests finish as fast as they arrive.
//!
//! A wrong refusal costs more than a wait that ends with the time-out, so when in doubt, nothing is
//! predicted:
//! 1. Evidence is required: [`ENOUGH`] completions within [`SHORTEST`] or longer, all of them while requests
//!    waited, and none older than [`OLDEST`]. A queue that has been empty for [`IDLE`] starts again without
//!    evidence. If there is more evidence, more is used: the last [`USUAL`], or longer until there are
//!    [`PLENTY`] completions.
//! 2. The longest time without a completion is left out, because one slow request or one pause does not show
//!    the rate.
//! 3. While no request finishes for unusually long, the rate is unknown.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The number of completions that a rate needs.
const ENOUGH: u32 = 16;
/// The shortest time of evidence.
const SHORTEST: Duration = Duration::from_secs(2);
/// The number of completions above which the rate does not become more accurate.
const PLENTY: u32 = 200;
/// The time of evidence that is used if it contains [`PLENTY`] completions, so that the rate is current.
const USUAL: Duration = Duration::from_secs(15);
/// The age at which evidence is dropped.
const OLDEST: Duration = Duration::from_secs(60);
/// A queue that has been empty for this long starts again without evidence.
const IDLE: Duration = Duration::from_secs(10);
/// The length of the spans in which evidence is kept; longer when little happens.
const SPAN: Duration = Duration::from_millis(500);
/// The factor by which a normal time without completions may exceed the mean.
const OF_MEAN: f64 = 4.0;
/// The factor by which it may exceed earlier times without completions.
const OF_PRECEDENT: f64 = 1.5;

/// A span of time in which requests waited.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    time: f64,
    /// The time of all seats together, in seconds.
    seat_time: f64,
    done: u32,
    /// The longest time without a completion that ended in this span, and the time of all seats in it.
    gap: Gap,
}

#[derive(Debug, Clone, Copy, Default)]
struct Gap {
    time: f64,
    seat_time: f64,
}

/// The measurements of one queue.
#[derive(Debug, Default)]
pub(crate) struct Throughput {
    /// The time up to which time is accounted for.
    until: Option<Instant>,
    /// Whether requests wait.
    waiting: bool,
    seats: u32,
    current: Span,
    /// Older spans with the times of their ends, the newest last.
    spans: VecDeque<(Instant, Span)>,
    /// The time without a completion so far.
    quiet: Gap,
    /// Completions per second of a seat, over the spans.
    pace: Option<f64>,
}

impl Throughput {
    /// Returns whether time and completions are being counted.
    pub(crate) fn is_measuring(&self) -> bool {
        self.waiting
    }

    /// Sets whether requests wait, and the number of seats that serve them.
    pub(crate) fn set(&mut self, waiting: bool, seats: u32, now: Instant) {
        self.account(now);
        if waiting && !self.waiting {
            let idle = self.until.map_or(Duration::ZERO, |until| now.saturating_duration_since(until));
            if idle >= IDLE {
                *self = Throughput::default();
            }
            self.until = Some(now);
        }
        (self.waiting, self.seats) = (waiting, seats);
    }

    /// Counts a request that has been served.
    pub(crate) fn done(&mut self, now: Instant) {
        self.account(now);
        if self.waiting {
            self.current.done += 1;
            if self.quiet.time > self.current.gap.time {
                self.current.gap = self.quiet;
            }
        }
        self.quiet = Gap::default();
    }

    /// Discards all measurements.
    pub(crate) fn forget(&mut self) {
        *self = Throughput::default();
    }

    /// Returns how long a new request would wait behind `ahead` others; `None` if that is unknown.
    pub(crate) fn wait(&mut self, ahead: usize, now: Instant) -> Option<Duration> {
        self.account(now);
        let rate = self.pace? * f64::from(self.seats);
        if rate <= 0.0 || !self.is_usual(self.quiet.time, rate) {
            return None;
        }
        Duration::try_from_secs_f64((ahead as f64 + 1.0) / rate).ok()
    }

    /// Returns whether `quiet` seconds without a completion are normal.
    fn is_usual(&self, quiet: f64, rate: f64) -> bool {
        let known = |span: &Span| span.gap.time * OF_PRECEDENT >= quiet;
        let precedents = self.spans.iter().map(|(_, span)| span).chain([&self.current]);
        quiet * rate <= OF_MEAN || precedents.filter(|span| known(span)).count() >= 2
    }

    fn account(&mut self, now: Instant) {
        // Several steps of a request have the same time, and its arrival time may be older.
        if !self.waiting || self.until >= Some(now) {
            return;
        }
        let time = self.until.map_or(0.0, |until| now.saturating_duration_since(until).as_secs_f64());
        let seat_time = time * f64::from(self.seats);
        self.until = Some(now);
        self.current.time += time;
        self.current.seat_time += seat_time;
        self.quiet.time += time;
        self.quiet.seat_time += seat_time;
        if self.current.time >= SPAN.as_secs_f64() {
            self.spans.push_back((now, std::mem::take(&mut self.current)));
            let old = |end: Instant| now.saturating_duration_since(end) >= OLDEST;
            while self.spans.pop_front_if(|(end, _)| old(*end)).is_some() {}
            self.pace = self.measure();
        }
    }

    fn measure(&self) -> Option<f64> {
        let mut sum = Span { gap: self.quiet, ..Span::default() };
        for (_, span) in self.spans.iter().rev() {
            sum.time += span.time;
            sum.seat_time += span.seat_time;
            sum.done += span.done;
            if span.gap.time > sum.gap.time {
                sum.gap = span.gap;
            }
            if sum.time >= USUAL.as_secs_f64() && sum.done >= PLENTY {
                break;
            }
        }
        // The longest gap may have begun before the first of these spans.
        let (time, seat_time) = (sum.time - sum.gap.time, sum.seat_time - sum.gap.seat_time);
        let enough = sum.done >= ENOUGH && time >= SHORTEST.as_secs_f64() && seat_time > 0.0;
        enough.then(|| f64::from(sum.done) / seat_time)
    }
}

#[cfg(test)]
#[path = "throughput_tests.rs"]
mod tests;
