//! State shared by the threads of a run: the scenario, the clock, and a few atomics.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::clock::{Clock, Moment, NEVER};
use crate::endpoint::Endpoint;
use crate::order::Sequence;
use crate::prepare::Prepared;
use crate::scenario::{Scenario, Traffic};

#[derive(Debug)]
pub(crate) struct Shared {
    pub scenario: Scenario,
    pub prepared: Prepared,
    /// Parallel to [`Prepared::origins`].
    pub endpoints: Vec<Endpoint>,
    pub sequence: Sequence,
    pub clock: Clock,
    /// The start of the counted part; [`NEVER`] until it is known.
    began: AtomicU64,
    /// The time from which no request is started.
    end: AtomicU64,
    /// The time at which requests in flight are cut off.
    cut: AtomicU64,
    /// The next numbers of counted requests and of warm-up requests.
    next_number: AtomicU64,
    next_warm_up_number: AtomicU64,
    /// Users of journeys so far.
    travellers: AtomicU64,
    /// Results of the users' first connection attempts.
    pub first_tries: FirstTries,
    /// For each kind of request: the length of its first response plus one, or 0 before that. For `Length::Same`.
    lengths: Vec<AtomicU64>,
    /// One per thread.
    pub published: Vec<Mutex<Published>>,
}

/// Results of the first connection attempts.
#[derive(Debug, Default)]
pub(crate) struct FirstTries {
    pub begun: AtomicUsize,
    pub failed: AtomicUsize,
    /// Whether at least one connection was opened.
    pub opened: AtomicBool,
    pub settled: AtomicUsize,
    /// The error of the first failed attempt.
    pub why: Mutex<Option<String>>,
}

impl FirstTries {
    /// Returns the error if all attempts so far have failed.
    pub(crate) fn all_failed(&self) -> Option<String> {
        let failed = self.failed.load(Relaxed);
        if failed == 0 || self.opened.load(Relaxed) || failed < self.begun.load(Relaxed) {
            return None;
        }
        self.why.lock().ok().and_then(|why| why.clone())
    }
}

/// A thread's state for progress reports.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub sent: u64,
    pub ok: u64,
    pub errors: u64,
    pub in_flight: u64,
    /// Successful responses by band since the last report.
    pub spread: Vec<u64>,
}

impl Shared {
    pub(crate) fn new(
        scenario: Scenario,
        prepared: Prepared,
        endpoints: Vec<Endpoint>,
        threads: usize,
    ) -> Shared {
        Shared {
            sequence: Sequence::new(&scenario),
            lengths: prepared.kinds.iter().map(|_| AtomicU64::new(0)).collect(),
            scenario,
            prepared,
            endpoints,
            clock: Clock::start(),
            began: AtomicU64::new(NEVER),
            end: AtomicU64::new(NEVER),
            cut: AtomicU64::new(NEVER),
            next_number: AtomicU64::new(0),
            next_warm_up_number: AtomicU64::new(0),
            travellers: AtomicU64::new(0),
            first_tries: FirstTries::default(),
            published: (0..threads).map(|_| Mutex::default()).collect(),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.scenario.traffic, Traffic::Closed { .. })
    }

    pub(crate) fn began(&self) -> Moment {
        self.began.load(Relaxed)
    }

    pub(crate) fn end(&self) -> Moment {
        self.end.load(Relaxed)
    }

    pub(crate) fn cut(&self) -> Moment {
        self.cut.load(Relaxed)
    }

    pub(crate) fn begin(&self, moment: Moment) {
        self.began.store(moment, Relaxed);
    }

    /// Sets the time from which no request is started, and the time at which requests in flight are cut off.
    /// Never moves either to a later time.
    pub(crate) fn set_end(&self, end: Moment, cut: Moment) {
        self.end.fetch_min(end, Relaxed);
        self.cut.fetch_min(cut, Relaxed);
    }

    /// Returns the kind of the next request; `None` if the requested number was started.
    pub(crate) fn next_kind(&self, counted: bool) -> Option<usize> {
        let part = self.scenario.part;
        let all = self.scenario.stop.requests.filter(|_| counted);
        let limit = all.map(|all| part.share(all));
        if limit.is_none() && self.sequence.is_single() {
            return Some(0);
        }
        let next_number = if counted { &self.next_number } else { &self.next_warm_up_number };
        let number = next_number.fetch_add(1, Relaxed);
        match limit.is_some_and(|limit| number >= limit) {
            true => None,
            false => Some(self.sequence.kind(part.first_request(all).saturating_add(number))),
        }
    }

    /// Returns the number of the next user of a journey, from 1; each process has its own numbers.
    pub(crate) fn next_traveller(&self) -> u64 {
        let own = self.travellers.fetch_add(1, Relaxed);
        self.scenario.part.arrival(usize::try_from(own).unwrap_or(usize::MAX)) as u64 + 1
    }

    /// Returns the started share of this process's limited number of requests, between 0 and 1.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn share_begun(&self, sent: u64) -> f64 {
        let limit = self.scenario.stop.requests.map(|all| self.scenario.part.share(all));
        limit.map_or(0.0, |limit| sent as f64 / limit.max(1) as f64)
    }

    /// Returns the length that responses of this kind must have, which is that of the first one.
    pub(crate) fn first_length(&self, kind: usize, length: u64) -> u64 {
        let Some(first) = self.lengths.get(kind) else { return length };
        match first.compare_exchange(0, length + 1, Relaxed, Relaxed) {
            Ok(_) => length,
            Err(known) => known - 1,
        }
    }
}
