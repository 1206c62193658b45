//! The outcomes of reloads, reforks and upgrades.

use crate::changes::{Changes, Ended, Running};
use crate::counts::{Counts, kinds};

kinds! {
    pub enum ReloadOutcome {
        /// The new code serves.
        Done = "done",
        /// The new code failed before it served a client: boot, probe.
        Failed = "failed",
        /// The new code had served clients; the old code serves again.
        Reverted = "reverted",
        /// The old code serves again after `--undo`, during a reload or after it.
        Undone = "undone",
        /// The new code failed but serves, because the template of the old code had died.
        NoWayBack = "no_way_back",
        /// It waited for another reload, and a newer one took its place.
        Superseded = "superseded",
    }

    pub enum ReforkOutcome {
        /// All workers were forked from a warm one.
        Done = "done",
        /// It created no template that could fork a worker, for example because `Firebrick.before_refork` raised; nothing has changed.
        Failed = "failed",
        /// Workers of the new template had served; those of the old one serve again.
        Reverted = "reverted",
        /// It was cancelled before it created a template, for an outside reason: a reload began, or the chosen worker ended.
        Dropped = "dropped",
    }

    pub enum UpgradeOutcome {
        /// A new process has taken over.
        Done = "done",
        /// The new process failed, and the old one keeps serving.
        Failed = "failed",
    }
}

impl ReloadOutcome {
    /// Returns whether the requested code serves.
    pub fn is_success(self) -> bool {
        matches!(self, ReloadOutcome::Done | ReloadOutcome::Undone)
    }
}

/// The number of reloads since the start of the server, by outcome.
pub type ReloadCounts = Counts<ReloadOutcome>;
/// A running reload, or the time after a reload during which it can be undone. The stages are `booting`,
/// `probing`, `watching`, `rolling`, `settling` and `reverting`.
pub type ReloadStage = Running;
pub type ReloadEnd = Ended<ReloadOutcome>;
/// The statistics of reloads.
pub type ReloadsSnapshot = Changes<ReloadOutcome>;
/// The statistics of reforks. The stages are `replacing`, `becoming`, `rolling` and `settling`.
pub type ReforksSnapshot = Changes<ReforkOutcome>;
/// The statistics of upgrades. The counts include those of all programs that have handed over to each other
/// up to this one.
pub type UpgradesSnapshot = Changes<UpgradeOutcome>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CountedKind;
    use serde::{Serialize, de::DeserializeOwned};
    use std::fmt;

    fn named<K: CountedKind + Serialize + DeserializeOwned + fmt::Debug>(one: K) {
        let mut counts = Counts::default();
        counts.count(one);
        let json = serde_json::to_value(&counts).unwrap();
        assert_eq!(json.as_object().unwrap().len(), K::EVERY.len());
        for (kind, ..) in K::EVERY {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
            assert_eq!(json[kind.name()], u64::from(*kind == one));
            assert_eq!(counts.of(*kind), u64::from(*kind == one));
        }
        assert_eq!(serde_json::from_value::<Counts<K>>(json).unwrap(), counts);
    }

    #[test]
    fn every_outcome_is_counted_under_its_name() {
        named(ReloadOutcome::NoWayBack);
        named(ReforkOutcome::Dropped);
        named(UpgradeOutcome::Failed);
        named(crate::DeathCause::OutOfMemory);
        assert_eq!(ReloadOutcome::NoWayBack.to_string(), "no way back");
    }
}
