//! The state of a run, for live display.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bands::{middle, quantile};
use crate::recorder::COURSE;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Time since the start of the counted part; `None` during the warm-up.
    pub elapsed: Option<Duration>,
    /// The completed part of the run, from 0 to 1.
    pub done: f64,
    /// Requests started so far.
    pub sent: u64,
    /// Successful responses so far.
    pub ok: u64,
    /// Failed requests so far.
    pub errors: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Successful responses per second since the last report; the latencies below cover the same period.
    pub rate: f64,
    /// Median latency in microseconds.
    pub p50_us: u64,
    /// 99th percentile of the latency in microseconds.
    pub p99_us: u64,
    /// Longest latency in microseconds.
    pub max_us: u64,
    /// The latencies: upper end of a band in microseconds, and count.
    pub spread: Vec<(u64, u64)>,
}

impl Progress {
    /// Returns the state of several processes together; `done` is that of the slowest.
    pub fn sum<'a>(all: impl IntoIterator<Item = &'a Progress>) -> Progress {
        let mut sum = Progress { done: 1.0, ..Progress::default() };
        let mut spread: BTreeMap<u64, u64> = BTreeMap::new();
        for one in all {
            sum.elapsed = sum.elapsed.max(one.elapsed);
            sum.done = sum.done.min(one.done);
            sum.sent += one.sent;
            sum.ok += one.ok;
            sum.errors += one.errors;
            sum.in_flight += one.in_flight;
            sum.rate += one.rate;
            for (upto, count) in &one.spread {
                *spread.entry(*upto).or_default() += count;
            }
        }
        sum.set_spread(spread.into_iter().collect());
        sum
    }

    /// Returns the middle of a band of `spread`, by its upper end; both in microseconds.
    pub fn middle(upto: u64) -> u64 {
        middle::<COURSE>(upto)
    }

    /// Sets the latencies, sorted, and their percentiles.
    pub(crate) fn set_spread(&mut self, spread: Vec<(u64, u64)>) {
        self.p50_us = quantile::<COURSE>(&spread, 0.5);
        self.p99_us = quantile::<COURSE>(&spread, 0.99);
        self.max_us = spread.last().map_or(0, |(upto, _)| *upto);
        self.spread = spread;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_and_percentiles_are_those_of_all() {
        let mut quick = Progress { done: 0.5, ok: 99, rate: 99.0, in_flight: 1, ..Progress::default() };
        quick.set_spread(vec![(1_023, 99)]);
        let mut slow = Progress { done: 0.4, ok: 1, rate: 1.0, errors: 2, ..Progress::default() };
        slow.elapsed = Some(Duration::from_secs(1));
        slow.set_spread(vec![(65_535, 1)]);
        let sum = Progress::sum([&quick, &slow]);
        assert_eq!((sum.ok, sum.errors, sum.in_flight, sum.rate), (100, 2, 1, 100.0));
        assert_eq!((sum.done, sum.elapsed), (0.4, Some(Duration::from_secs(1))));
        assert_eq!((sum.p50_us, sum.max_us), (quick.p50_us, 65_535));
        assert_eq!(Progress::sum([&sum]), sum);
    }
}
