//! What the threads of a run share: the plan, the clock, and a few numbers that all may look at without waiting.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::clock::{Clock, Moment, NEVER};
use crate::order::Sequence;
use crate::plan::{Plan, Traffic};
use crate::prepare::Prepared;
use crate::target::Target;

#[derive(Debug)]
pub(crate) struct Shared {
    pub plan: Plan,
    pub prepared: Prepared,
    /// Beside [`Prepared::origins`].
    pub targets: Vec<Target>,
    pub sequence: Sequence,
    pub clock: Clock,
    /// When the counted part begins; [`NEVER`] while that is open.
    began: AtomicU64,
    /// No request begins from here on.
    end: AtomicU64,
    /// What is under way from here on is cut off.
    cut: AtomicU64,
    /// Numbers given to requests: counted ones, and those of the warm-up.
    tickets: AtomicU64,
    warm_tickets: AtomicU64,
    /// Connections that were tried for the first time by their users, with what result.
    pub first_tries: FirstTries,
    /// Of each kind of request: length of its first answer and one, or 0 before that. For `Length::Same`.
    lengths: Vec<AtomicU64>,
    /// Of each thread.
    pub published: Vec<Mutex<Published>>,
}

/// How the first connections went.
#[derive(Debug, Default)]
pub(crate) struct FirstTries {
    pub begun: AtomicUsize,
    pub failed: AtomicUsize,
    /// Somebody has got a connection.
    pub opened: AtomicBool,
    pub settled: AtomicUsize,
    /// Why the first one that failed did so.
    pub why: Mutex<Option<String>>,
}

impl FirstTries {
    /// All that were tried have failed: why.
    pub(crate) fn all_failed(&self) -> Option<String> {
        let failed = self.failed.load(Relaxed);
        if failed == 0 || self.opened.load(Relaxed) || failed < self.begun.load(Relaxed) {
            return None;
        }
        self.why.lock().ok().and_then(|why| why.clone())
    }
}

/// What a thread tells those who watch.
#[derive(Debug, Default)]
pub(crate) struct Published {
    pub sent: u64,
    pub ok: u64,
    pub errors: u64,
    pub in_flight: u64,
    /// Right answers by band since the last look.
    pub spread: Vec<u64>,
}

impl Shared {
    pub(crate) fn new(plan: Plan, prepared: Prepared, targets: Vec<Target>, threads: usize) -> Shared {
        Shared {
            sequence: Sequence::new(&plan),
            lengths: prepared.kinds.iter().map(|_| AtomicU64::new(0)).collect(),
            plan,
            prepared,
            targets,
            clock: Clock::start(),
            began: AtomicU64::new(NEVER),
            end: AtomicU64::new(NEVER),
            cut: AtomicU64::new(NEVER),
            tickets: AtomicU64::new(0),
            warm_tickets: AtomicU64::new(0),
            first_tries: FirstTries::default(),
            published: (0..threads).map(|_| Mutex::default()).collect(),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.plan.traffic, Traffic::Closed { .. })
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

    /// The counted part begins then.
    pub(crate) fn begin(&self, moment: Moment) {
        self.began.store(moment, Relaxed);
    }

    /// No request begins from `end` on, and what is under way at `cut` is cut off.
    pub(crate) fn set_end(&self, end: Moment, cut: Moment) {
        self.end.fetch_min(end, Relaxed);
        self.cut.fetch_min(cut, Relaxed);
    }

    /// The kind of the next request; `None` when so many as asked for were begun.
    pub(crate) fn next_kind(&self, counted: bool) -> Option<usize> {
        let limit = self.plan.stop.requests.filter(|_| counted);
        if limit.is_none() && self.sequence.is_single() {
            return Some(0);
        }
        let tickets = if counted { &self.tickets } else { &self.warm_tickets };
        let number = tickets.fetch_add(1, Relaxed);
        match limit.is_some_and(|limit| number >= limit) {
            true => None,
            false => Some(self.sequence.kind(number)),
        }
    }

    /// How many counted requests were begun of those that are limited, between 0 and 1.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn share_begun(&self, sent: u64) -> f64 {
        self.plan.stop.requests.map_or(0.0, |limit| sent as f64 / limit.max(1) as f64)
    }

    /// The length that answers to this kind have to have: that of the first one.
    pub(crate) fn first_length(&self, kind: usize, length: u64) -> u64 {
        let Some(first) = self.lengths.get(kind) else { return length };
        match first.compare_exchange(0, length + 1, Relaxed, Relaxed) {
            Ok(_) => length,
            Err(known) => known - 1,
        }
    }
}
