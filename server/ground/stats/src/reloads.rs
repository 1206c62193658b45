//! The words of reloads, for everything that orders, carries out, follows or counts one: the [wish](ReloadWish),
//! the [steps](ReloadStep) with their [stages](ReloadStage), and the [outcome](ReloadOutcome). Reforks and upgrades have outcomes of their own.

use crate::changes::{Changes, ReloadStage};
use crate::counts::kinds;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// An order to change the code in force. All orders (the control socket, USR1, `tmp/restart.txt`, Puma's
/// commands) become one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReloadWish {
    /// Load the app again and replace the workers.
    Reload,
    /// Like `Reload`, with a shadow of this length, whatever `reload.shadow` says; zero: without one.
    Shadowed(Duration),
    /// Like `Reload`, for machines whose memory cannot hold both versions: old workers and the old template
    /// exit first.
    InPlace,
    /// Return to the code in force before the last reload, or cancel the running one.
    Undo,
}

/// A step of a reload or an upgrade, for the caller that follows it. Its JSON is a line of the response to
/// `POST /reload`. The last step is an end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", untagged)]
pub enum ReloadStep {
    Step {
        stage: ReloadStage,
        /// The same as a sentence for users.
        text: String,
    },
    /// The requested code serves.
    Done {
        /// The result for users.
        done: String,
    },
    /// The requested code does not serve.
    Failed {
        /// The reason.
        failed: String,
    },
}

impl ReloadStep {
    /// Returns the last step: the requested code serves, or the reason why it does not.
    pub fn end(result: Result<String, String>) -> ReloadStep {
        match result {
            Ok(done) => ReloadStep::Done { done },
            Err(failed) => ReloadStep::Failed { failed },
        }
    }

    /// Returns whether no step follows.
    pub fn is_end(&self) -> bool {
        !matches!(self, ReloadStep::Step { .. })
    }
}

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

/// The statistics of reloads.
pub type ReloadsSnapshot = Changes<ReloadOutcome>;
/// The statistics of reforks.
pub type ReforksSnapshot = Changes<ReforkOutcome>;
/// The statistics of upgrades. The counts include those of all programs that have handed over to each other
/// up to this one.
pub type UpgradesSnapshot = Changes<UpgradeOutcome>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CountedKind, Counts};
    use serde::de::DeserializeOwned;
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

    #[test]
    fn steps_are_lines_of_json() {
        let step = ReloadStep::Step { stage: ReloadStage::Booting, text: "x".into() };
        let steps = [
            (step, r#"{"stage":"booting","text":"x"}"#),
            (ReloadStep::end(Ok("y".into())), r#"{"done":"y"}"#),
            (ReloadStep::end(Err("z\n".into())), r#"{"failed":"z\n"}"#),
        ];
        for (step, text) in steps {
            assert_eq!(step.is_end(), !text.contains("stage"));
            assert_eq!(serde_json::to_string(&step).unwrap(), text);
            assert_eq!(serde_json::from_str::<ReloadStep>(text).unwrap(), step);
        }
    }
}
