//! Whether a worker gets requests, and if not, why.

/// The reasons for passing a worker over. Several can hold at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassReason {
    /// The worker finishes the requests that it has, and exits.
    Leaving,
    /// The worker makes no progress.
    Suspended,
    /// The worker collects garbage.
    Resting,
    /// The worker has returned requests over a link, because another request in it is slow, and has not
    /// resumed. Counted, because it can hold for several links.
    Stalled,
    /// All threads of the worker have been computing for a while, so a fiber would wait for them. Such a
    /// worker still gets requests, but only when no other has a free seat.
    Computing,
}

/// The reasons that hold for a worker.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Availability {
    reasons: u8,
    /// How often [`PassReason::Stalled`] holds.
    stalled: u32,
}

impl Availability {
    pub(crate) fn add(&mut self, reason: PassReason) {
        self.stalled += u32::from(reason == PassReason::Stalled);
        self.reasons |= bit(reason);
    }

    pub(crate) fn remove(&mut self, reason: PassReason) {
        if reason == PassReason::Stalled {
            self.stalled = self.stalled.saturating_sub(1);
            if self.stalled > 0 {
                return;
            }
        }
        self.reasons &= !bit(reason);
    }

    #[inline]
    pub(crate) fn has(self, reason: PassReason) -> bool {
        self.reasons & bit(reason) != 0
    }

    /// Returns whether the worker gets requests, perhaps after all others.
    #[inline]
    pub(crate) fn gets_requests(self) -> bool {
        self.reasons & !bit(PassReason::Computing) == 0
    }
}

const fn bit(reason: PassReason) -> u8 {
    1 << reason as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_gets_requests_when_no_reason_is_left() {
        let reasons = [PassReason::Leaving, PassReason::Suspended, PassReason::Resting, PassReason::Stalled];
        let mut worker = Availability::default();
        reasons.iter().for_each(|&reason| worker.add(reason));
        worker.add(PassReason::Stalled);
        for reason in reasons {
            assert!(worker.has(reason) && !worker.gets_requests());
            worker.remove(reason);
            assert_eq!(worker.has(reason), reason == PassReason::Stalled, "it is stalled on two links");
        }
        worker.remove(PassReason::Stalled);
        worker.add(PassReason::Computing);
        assert!(worker.gets_requests() && worker.has(PassReason::Computing));
    }
}
