//! How fast the queue moves, and so how long a request that comes now would wait. Pure: times are passed in.
//!
//! Why completions per seat and second, and not the mean time of a request: it is what the queue really feels, whatever the seats wait
//! for, and it needs no model. It is known only while requests wait; with a free seat, requests finish as fast as they come.
//!
//! A wrong refusal costs more than a wait that ends with the time-out, so in doubt nothing is said:
//! 1. There must be evidence: [`ENOUGH`] completions in [`SHORTEST`] or more, all of them while requests waited, and none older than
//!    [`OLDEST`]. A queue that has been empty for [`IDLE`] starts anew. More counts where there is more: the last [`USUAL`], and of
//!    what comes slowly as many as [`PLENTY`].
//! 2. The longest time without a completion does not count. One slow request, or one pause, says nothing about the pace.
//! 3. While nothing finishes for longer than it has done before, the pace is unknown.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Completions that make a pace.
const ENOUGH: u32 = 16;
/// Shortest time of evidence.
const SHORTEST: Duration = Duration::from_secs(2);
/// Completions after which more do not make the pace better known.
const PLENTY: u32 = 200;
/// Time of evidence that is used if it has [`PLENTY`] completions: the pace is that of now.
const USUAL: Duration = Duration::from_secs(15);
/// Age at which evidence is dropped.
const OLDEST: Duration = Duration::from_secs(60);
/// A queue that has been empty for so long starts anew.
const IDLE: Duration = Duration::from_secs(10);
/// Evidence is kept in spans of this length, or longer ones when little happens.
const SPAN: Duration = Duration::from_millis(500);
/// A time without completions may be so much longer than the mean.
const OF_MEAN: f64 = 4.0;
/// It may also be so much longer than another such time was.
const OF_PRECEDENT: f64 = 1.5;

/// A span of time in which requests waited.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    time: f64,
    /// Seconds of all seats together.
    seat_time: f64,
    done: u32,
    /// The longest time without a completion that ended in it, and the seconds of all seats in that time.
    gap: Gap,
}

#[derive(Debug, Clone, Copy, Default)]
struct Gap {
    time: f64,
    seat_time: f64,
}

/// What has been seen of the queue.
#[derive(Debug, Default)]
pub(crate) struct Throughput {
    /// Until when the time is accounted for.
    until: Option<Instant>,
    /// Requests wait.
    waiting: bool,
    seats: u32,
    current: Span,
    /// The newest last, with the time of their end.
    spans: VecDeque<(Instant, Span)>,
    /// Time without a completion until now.
    quiet: Gap,
    /// Completions for each second of a seat, of the spans.
    pace: Option<f64>,
}

impl Throughput {
    /// Whether time and completions count at the moment.
    pub(crate) fn is_measuring(&self) -> bool {
        self.waiting
    }

    /// From now on requests wait or not, and so many seats serve them.
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

    /// A request has been served.
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

    /// Nothing that was seen counts any more.
    pub(crate) fn forget(&mut self) {
        *self = Throughput::default();
    }

    /// How long a request would wait that comes now, behind `ahead` others; `None` when that is not known.
    pub(crate) fn wait(&mut self, ahead: usize, now: Instant) -> Option<Duration> {
        self.account(now);
        let rate = self.pace? * f64::from(self.seats);
        if rate <= 0.0 || !self.is_usual(self.quiet.time, rate) {
            return None;
        }
        Duration::try_from_secs_f64((ahead as f64 + 1.0) / rate).ok()
    }

    /// Whether so many seconds without a completion are nothing special.
    fn is_usual(&self, quiet: f64, rate: f64) -> bool {
        let known = |span: &Span| span.gap.time * OF_PRECEDENT >= quiet;
        let precedents = self.spans.iter().map(|(_, span)| span).chain([&self.current]);
        quiet * rate <= OF_MEAN || precedents.filter(|span| known(span)).count() >= 2
    }

    fn account(&mut self, now: Instant) {
        if !self.waiting {
            return;
        }
        let time = self.until.map_or(0.0, |until| now.saturating_duration_since(until).as_secs_f64());
        let seat_time = time * f64::from(self.seats);
        self.until = self.until.max(Some(now));
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
