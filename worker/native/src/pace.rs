//! The pace of a worker's requests. It decides how long a finished response waits to be sent with others, and
//! whether another thread reads the links while one serves.

/// The longest time that a finished response waits to be sent with others, in microseconds. The limit rises
/// to a [`PATIENCE`]th of the time that requests wait before they are served, if that is longer.
const BATCH_US: u64 = 250;
/// See [`BATCH_US`]. When requests queue anyway, larger batches add little to their latency.
const PATIENCE: u64 = 8;
/// The upper limit of the time in [`BATCH_US`], in microseconds. Beyond it the watchdog sends the response.
const LONGEST_US: u64 = 1000;
/// Requests that take longer than this are slow, in microseconds.
pub(crate) const SLOW_US: u64 = 1000;
/// One request in this many is sampled to measure its time off the processor.
const SAMPLE_EVERY: u32 = 8;
/// A sampled request that is off the processor for longer than this counts as waiting, in microseconds.
const WAITED_US: u64 = 20;
/// The share of waiting requests above which another thread helps, in 1/256.
const MANY_WAIT: u32 = 128;

/// The times of a request that has just finished, in microseconds.
pub(crate) struct Finished {
    pub(crate) now_us: u64,
    pub(crate) took_us: u64,
    pub(crate) queued_us: u64,
    /// Its time off the processor, if it was sampled.
    pub(crate) off_us: Option<u64>,
}

pub(crate) struct Pace {
    /// Decaying maximum of the durations of recent requests, in microseconds.
    recent_us: u64,
    /// The time of the last check for unsent responses, in microseconds.
    looked_us: u64,
    /// Decaying maximum of the time between two such checks, in microseconds.
    unseen_us: u64,
    /// The time that a finished response may currently wait for others, in microseconds.
    patience_us: u64,
    begun: u32,
    /// Share of the sampled requests that waited, in 1/256, weighted towards recent requests.
    waits: u32,
}

impl Pace {
    pub(crate) fn new() -> Pace {
        Pace { recent_us: 0, looked_us: 0, unseen_us: 0, patience_us: BATCH_US, begun: 0, waits: 0 }
    }

    /// Records a check for unsent responses. Returns the age from which they are sent, in microseconds;
    /// `None`: all are sent, because no other thread might send them while a slow request runs.
    #[inline]
    pub(crate) fn look(&mut self, now_us: u64) -> Option<u64> {
        self.looked_us = now_us;
        (self.unseen_us <= SLOW_US).then_some(self.patience_us)
    }

    /// Returns whether another thread is to read the links at once while one serves.
    #[inline]
    pub(crate) fn needs_help(&self) -> bool {
        self.recent_us > SLOW_US || self.waits > MANY_WAIT
    }

    /// Decides whether the request that begins is sampled.
    #[inline]
    pub(crate) fn samples(&mut self) -> bool {
        self.begun = self.begun.wrapping_add(1);
        self.begun.is_multiple_of(SAMPLE_EVERY)
    }

    #[inline]
    pub(crate) fn record(&mut self, request: &Finished) {
        self.recent_us = request.took_us.max(self.recent_us - self.recent_us / 32);
        // If this thread waited, other threads may have checked meanwhile.
        let unseen_us = request.took_us.min(request.now_us.saturating_sub(self.looked_us));
        self.unseen_us = unseen_us.max(self.unseen_us - self.unseen_us / 32);
        self.patience_us = (request.queued_us / PATIENCE).clamp(BATCH_US, LONGEST_US);
        if let Some(off_us) = request.off_us {
            let waited = if off_us > WAITED_US { 256 } else { 0 };
            self.waits = (self.waits * 7 + waited) / 8;
        }
    }
}
