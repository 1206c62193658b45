//! The outcomes of reloads, reforks and upgrades.

use crate::changes::{Changes, Ended, Running};
use crate::counts::{Counts, Kind};
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReloadOutcome {
    /// The new code serves.
    Done,
    /// The new code was given up before it served a client.
    Failed,
    /// The new code had served clients, and the old code serves again.
    Reverted,
    /// The old code serves again, because an undo was requested.
    Undone,
    /// The new code serves although it was given up, because the template of the old code had died.
    NoWayBack,
    /// A newer reload replaced it while it waited.
    Superseded,
}

impl ReloadOutcome {
    /// Returns whether the requested code serves.
    pub fn is_success(self) -> bool {
        matches!(self, ReloadOutcome::Done | ReloadOutcome::Undone)
    }
}

impl Kind for ReloadOutcome {
    const EVERY: &'static [ReloadOutcome] = &[
        ReloadOutcome::Done,
        ReloadOutcome::Failed,
        ReloadOutcome::Reverted,
        ReloadOutcome::Undone,
        ReloadOutcome::NoWayBack,
        ReloadOutcome::Superseded,
    ];

    fn name(self) -> &'static str {
        match self {
            ReloadOutcome::Done => "done",
            ReloadOutcome::Failed => "failed",
            ReloadOutcome::Reverted => "reverted",
            ReloadOutcome::Undone => "undone",
            ReloadOutcome::NoWayBack => "no_way_back",
            ReloadOutcome::Superseded => "superseded",
        }
    }
}

impl fmt::Display for ReloadOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name().replace('_', " "))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReforkOutcome {
    /// All workers were forked from a warm one.
    Done,
    /// No usable template resulted, and nothing has changed.
    Failed,
    /// Workers of the new template had served, and those of the old one serve again.
    Reverted,
    /// It was cancelled before there was a template, for an external reason: a reload began, or the chosen
    /// worker had to end.
    Dropped,
}

impl Kind for ReforkOutcome {
    const EVERY: &'static [ReforkOutcome] =
        &[ReforkOutcome::Done, ReforkOutcome::Failed, ReforkOutcome::Reverted, ReforkOutcome::Dropped];

    fn name(self) -> &'static str {
        match self {
            ReforkOutcome::Done => "done",
            ReforkOutcome::Failed => "failed",
            ReforkOutcome::Reverted => "reverted",
            ReforkOutcome::Dropped => "dropped",
        }
    }
}

impl fmt::Display for ReforkOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpgradeOutcome {
    /// A new program has taken over.
    Done,
    /// The new program was given up, and the previous one keeps serving.
    Failed,
}

impl Kind for UpgradeOutcome {
    const EVERY: &'static [UpgradeOutcome] = &[UpgradeOutcome::Done, UpgradeOutcome::Failed];

    fn name(self) -> &'static str {
        match self {
            UpgradeOutcome::Done => "done",
            UpgradeOutcome::Failed => "failed",
        }
    }
}

impl fmt::Display for UpgradeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
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
    use serde::de::DeserializeOwned;

    fn named<K: Kind + Serialize + DeserializeOwned + fmt::Debug>(one: K) {
        let mut counts = Counts::default();
        counts.count(one);
        let json = serde_json::to_value(&counts).unwrap();
        assert_eq!(json.as_object().unwrap().len(), K::EVERY.len());
        for kind in K::EVERY {
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
