//! The rules that change the number of workers: signals, the settings of a reload, and the load.

use super::growth::{Decision, Growth, Range, Sample};
use super::*;
use settings::Workers;

#[derive(Debug)]
pub(super) struct Sizes {
    growth: Growth,
    /// The range from the settings.
    range: Workers,
}

impl Sizes {
    pub(super) fn new(range: Workers) -> Sizes {
        Sizes { growth: Growth::new(limits(range)), range }
    }
}

fn limits(range: Workers) -> Range {
    Range { min: range.min as usize, max: range.max as usize }
}

/// The number of slots beyond two for each worker: for some TTINs.
const SPARE_SLOTS: usize = 8;

/// Returns the number of slots for so many workers: enough for workers that drain while their successors
/// boot.
pub fn slots_for(workers: usize) -> usize {
    (workers * 2 + SPARE_SLOTS).max(32)
}

impl Reconciler {
    /// Returns the range of the number of workers, and whether a signal has fixed the number until the next
    /// reload.
    pub fn range(&self) -> (Range, bool) {
        (self.rules.sizes.growth.range(), self.rules.sizes.growth.is_pinned())
    }

    /// Returns the number of workers of all pools but the default.
    pub fn others(&self) -> usize {
        self.wish.counts.values().skip(1).sum()
    }

    /// Returns the largest number of workers of the default pool for which there are slots.
    pub fn capacity(&self) -> u32 {
        u32::try_from(self.room().saturating_sub(self.others())).unwrap_or(u32::MAX).max(1)
    }

    /// Returns the largest number of workers of all pools for which there are slots.
    fn room(&self) -> usize {
        self.slots().saturating_sub(SPARE_SLOTS) / 2
    }

    /// Sets the numbers of workers of all pools but the default, whose number in `counts` is ignored, as far as
    /// there are slots.
    pub fn set_pools(&mut self, counts: &[usize], now: Instant) -> Vec<Act> {
        self.now = now;
        let pools: Vec<PoolIndex> = self.wish.counts.keys().copied().collect();
        for (pool, &count) in pools.into_iter().zip(counts).skip(1) {
            let before = self.wish.counts[&pool];
            let most = before.max((self.room() + before).saturating_sub(self.wanted()));
            self.wish.counts.insert(pool, count.min(most));
        }
        self.settle_all()
    }

    /// Returns whether samples of the load are needed.
    pub fn follows_load(&self) -> bool {
        self.rules.sizes.growth.is_active() && self.wish.phase == Phase::Serving
    }

    /// Returns whether the range may change now, because no generation is taking over.
    pub fn may_resize(&self) -> bool {
        self.wish.phase == Phase::Serving
            && !self.rules.sizes.growth.is_pinned()
            && self.replaces_workers().is_none()
    }

    /// Keeps the number of workers as it is, because the server shuts down soon.
    pub fn leave(&mut self) {
        if !self.is_stopping() {
            self.wish.phase = Phase::Leaving;
        }
    }

    /// Adds or removes a worker because of a signal. `auto`: otherwise the server would choose the number.
    pub fn resize(&mut self, more: bool, auto: bool, now: Instant) -> Vec<Act> {
        self.now = now;
        if !self.source.can_replace {
            self.log(NO_SUPERVISION.to_owned());
            return self.settle_all();
        }
        let before = self.wish.counts[&PoolIndex::DEFAULT];
        let after = if more { before + 1 } else { before.saturating_sub(1) };
        self.want(after, "by signal");
        let after = self.wish.counts[&PoolIndex::DEFAULT];
        let change = if before == after {
            format!("workers: the number stays at {after}, which is a bound of this server")
        } else {
            format!("workers: {before} → {after} by signal")
        };
        let is_chosen = self.rules.sizes.range.is_range() || auto;
        if is_chosen {
            self.rules.sizes.growth.pin();
        }
        let until = if is_chosen { "; the number stays until the next reload" } else { "" };
        self.log(format!("{change}{until}"));
        self.settle_all()
    }

    /// Sets the allowed range of workers, and moves the number into it. Does nothing if the range is
    /// unchanged.
    pub fn allow(&mut self, range: Workers, why: &str, now: Instant) -> Vec<Act> {
        self.now = now;
        if range == self.rules.sizes.range && !self.rules.sizes.growth.is_pinned() {
            return Vec::new();
        }
        self.rules.sizes.range = range;
        self.rules.sizes.growth.set_range(limits(range));
        let before = self.wish.counts[&PoolIndex::DEFAULT];
        let wanted = before.clamp(range.min as usize, range.max as usize);
        if wanted != before {
            self.log(format!("workers: {before} → {wanted}: {why}"));
            self.want(wanted, why);
        }
        self.settle_all()
    }

    pub(super) fn want(&mut self, number: usize, why: &str) {
        let from = self.wish.counts[&PoolIndex::DEFAULT];
        let to = number.clamp(1, self.slots().saturating_sub(self.others()).max(1));
        self.wish.counts.insert(PoolIndex::DEFAULT, to);
        if from != to {
            self.reached(Milestone::Resized { from, to, why: why.to_owned() });
        }
    }

    /// Returns whether the workers are all up and stay, so that figures of the load say something about them.
    pub fn is_steady(&self) -> bool {
        self.wish.phase == Phase::Serving && self.is_complete() && self.replaces_workers().is_none()
    }

    /// Sets the number of workers as the objective needs it. A worker fewer is `least_missed`.
    pub fn shape(
        &mut self,
        number: usize,
        least_missed: Option<Serial>,
        why: &str,
        now: Instant,
    ) -> Vec<Act> {
        self.now = now;
        let before = self.wish.counts[&PoolIndex::DEFAULT];
        if number + 1 == before
            && let Some(serial) = least_missed
        {
            self.close(serial);
        }
        self.want(number, why);
        self.settle_all()
    }

    /// Judges a sample of the load.
    pub(super) fn check_size(&mut self, sample: Sample, least_missed: Option<Serial>) {
        if !self.is_complete() || self.replaces_workers().is_some() {
            return self.rules.sizes.growth.disturbed();
        }
        let before = self.wish.counts[&PoolIndex::DEFAULT];
        let (after, why) = match self.rules.sizes.growth.observe(sample, before, self.now) {
            None => return,
            Some(Decision::Stay(why)) => {
                let range = self.rules.sizes.growth.range();
                return self.log(format!("workers: {before} of {range}: {why}"));
            }
            Some(Decision::Grow(why)) => (before + 1, why),
            Some(Decision::Shrink(why)) => (before.saturating_sub(1), why),
        };
        if after < before {
            let Some(serial) = least_missed.filter(|_| before > 1) else { return };
            self.close(serial);
        }
        self.want(after, &why);
        self.log(format!("workers: {before} → {}: {why}", self.wish.counts[&PoolIndex::DEFAULT]));
    }
}
