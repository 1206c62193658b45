//! Merges outcomes of the threads of a run and of several machines. Merging is associative and commutative:
//! order and grouping do not change the result.

use std::collections::BTreeMap;

use crate::bands::quantile;
use crate::outcome::{Band, Bytes, Errors, Handshakes, Outcome, RequestOutcome, Second, ServerInfo, Stages};
use crate::recorded;
use crate::recorder::COURSE;

impl Outcome {
    /// Adds a run of about the same time. Counts and histograms are added, seconds are aligned by the clock,
    /// and `seconds` and `busy` become the larger of both.
    pub fn merge(&mut self, mut other: Outcome) {
        self.align(&mut other);
        self.seconds = self.seconds.max(other.seconds);
        self.sent += other.sent;
        self.ok += other.ok;
        for (status, count) in other.statuses {
            *self.statuses.entry(status).or_default() += count;
        }
        self.errors.merge(other.errors);
        self.connections += other.connections;
        self.crowded += other.crowded;
        self.bytes.merge(&other.bytes);
        self.latency.take(&other.latency);
        self.service.take(&other.service);
        self.corrected = match (self.corrected.take(), other.corrected) {
            (Some(mut one), Some(two)) => {
                one.take(&two);
                Some(one)
            }
            // If one outcome cannot be corrected, neither can the sum.
            _ => None,
        };
        self.expected_interval_us = self.expected_interval_us.max(other.expected_interval_us);
        self.connect.take(&other.connect);
        self.handshakes = match (self.handshakes.take(), other.handshakes) {
            (Some(one), Some(two)) => Some(one.merge(two)),
            (one, two) => one.or(two),
        };
        self.first_byte.take(&other.first_byte);
        self.stages = match (self.stages.take(), other.stages) {
            (Some(one), Some(two)) => Some(one.merge(two)),
            (one, two) => one.or(two),
        };
        self.cpu_seconds += other.cpu_seconds;
        self.busy = self.busy.max(other.busy);
        self.requests = merge_requests(std::mem::take(&mut self.requests), other.requests);
        self.compared = recorded::merge(std::mem::take(&mut self.compared), other.compared);
        let journeys = self.journeys.take().into_iter().collect();
        self.journeys = merge_requests(journeys, other.journeys.into_iter().collect()).pop();
    }

    /// Aligns the seconds of both by the clock, and keeps the earlier start.
    fn align(&mut self, other: &mut Outcome) {
        let (mine, theirs) = (begin(&self.started_at), begin(&other.started_at));
        if other.started_at < self.started_at {
            self.started_at.clone_from(&other.started_at);
        }
        self.server = std::mem::take(&mut self.server).or(std::mem::take(&mut other.server));
        let first = mine.min(theirs);
        pad(&mut self.course, mine - first);
        pad(&mut other.course, theirs - first);
        if other.course.len() > self.course.len() {
            std::mem::swap(&mut self.course, &mut other.course);
        }
        for (mine, theirs) in self.course.iter_mut().zip(&other.course) {
            mine.merge(theirs);
        }
    }
}

/// Returns the second in which a run began, since 1970; 0 if the text is not a time.
fn begin(started_at: &str) -> i64 {
    started_at.parse::<jiff::Timestamp>().map_or(0, jiff::Timestamp::as_second)
}

/// Clocks that differ by more are wrong: such seconds are merged without alignment.
const MOST_SECONDS_APART: i64 = 86_400;

fn pad(course: &mut Vec<Second>, seconds: i64) {
    if (1..=MOST_SECONDS_APART).contains(&seconds) {
        course.splice(0..0, (0..seconds).map(|_| Second::default()));
    }
}

impl Second {
    /// Adds another second's counts.
    pub(crate) fn merge(&mut self, other: &Second) {
        self.sent += other.sent;
        self.ok += other.ok;
        self.errors += other.errors;
        self.max = self.max.max(other.max);
        self.add_spread(&other.spread);
    }

    /// Adds latencies in bands and recomputes the percentiles.
    pub(crate) fn add_spread(&mut self, spread: &[(u64, u64)]) {
        let mut sums: BTreeMap<u64, u64> = self.spread.iter().copied().collect();
        for (upto, count) in spread {
            *sums.entry(*upto).or_default() += count;
        }
        self.spread = sums.into_iter().collect();
        let at = |share| quantile::<COURSE>(&self.spread, share).min(self.max);
        (self.p50, self.p95, self.p99) = (at(0.5), at(0.95), at(0.99));
    }
}

impl Errors {
    pub fn merge(&mut self, other: Errors) {
        self.connect += other.connect;
        self.connect_timeout += other.connect_timeout;
        self.write += other.write;
        self.read += other.read;
        self.timeout += other.timeout;
        self.status += other.status;
        self.length += other.length;
        self.body += other.body;
        self.cut_off += other.cut_off;
        self.unsent += other.unsent;
        for (text, count) in other.texts {
            *self.texts.entry(text).or_default() += count;
        }
    }

    pub fn total(&self) -> u64 {
        self.connect
            + self.connect_timeout
            + self.write
            + self.read
            + self.timeout
            + self.status
            + self.length
            + self.body
            + self.cut_off
            + self.unsent
    }
}

impl Bytes {
    pub(crate) fn merge(&mut self, other: &Bytes) {
        self.sent += other.sent;
        self.received += other.received;
        self.bodies += other.bodies;
    }
}

impl Handshakes {
    fn merge(mut self, other: Handshakes) -> Handshakes {
        self.full += other.full;
        self.resumed += other.resumed;
        self.counted += other.counted;
        self.took.take(&other.took);
        for (mine, theirs) in [(&mut self.suites, other.suites), (&mut self.failed, other.failed)] {
            for (name, count) in theirs {
                *mine.entry(name).or_default() += count;
            }
        }
        self
    }
}

impl Stages {
    fn merge(self, other: Stages) -> Stages {
        let mut bands: BTreeMap<u64, Band> =
            self.bands.into_iter().map(|band| (band.upto_us, band)).collect();
        for band in other.bands {
            let sum = bands
                .entry(band.upto_us)
                .or_insert_with(|| Band { upto_us: band.upto_us, ..Band::default() });
            sum.count += band.count;
            sum.latency += band.latency;
            sum.unsent += band.unsent;
            sum.queue += band.queue;
            sum.app += band.app;
            sum.cpu = (sum.cpu.0 + band.cpu.0, sum.cpu.1 + band.cpu.1);
            sum.gvl = (sum.gvl.0 + band.gvl.0, sum.gvl.1 + band.gvl.1);
        }
        Stages { reported: self.reported + other.reported, bands: bands.into_values().collect() }
    }
}

impl ServerInfo {
    /// Returns the known one of two, independent of their order.
    fn or(self, other: ServerInfo) -> ServerInfo {
        match (self.protocol.is_empty(), other.protocol.is_empty()) {
            (true, false) => other,
            (false, true) => self,
            _ => self.min(other),
        }
    }
}

/// Merges requests of the same scenario one by one, others by name, sorted.
fn merge_requests(mut mine: Vec<RequestOutcome>, theirs: Vec<RequestOutcome>) -> Vec<RequestOutcome> {
    let same = mine.len() == theirs.len() && mine.iter().zip(&theirs).all(|(a, b)| a.name == b.name);
    if same {
        for (mine, theirs) in mine.iter_mut().zip(&theirs) {
            mine.add(theirs);
        }
        return mine;
    }
    let mut by_name: BTreeMap<String, RequestOutcome> = BTreeMap::new();
    for request in mine.into_iter().chain(theirs) {
        match by_name.get_mut(&request.name) {
            Some(known) => known.add(&request),
            None => {
                by_name.insert(request.name.clone(), request);
            }
        }
    }
    by_name.into_values().collect()
}

impl RequestOutcome {
    fn add(&mut self, other: &RequestOutcome) {
        self.ok += other.ok;
        self.errors += other.errors;
        self.latency.take(&other.latency);
    }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
