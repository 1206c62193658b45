//! Statistics of the changes of a running server that have a beginning, steps and an outcome: reloads,
//! reforks, upgrades. Shows the running change, the last one, and the number of each outcome.

use crate::counts::{CountedKind, Counts, kinds};
use crate::figures::{Label, Metric, Page, Value};
use crate::when;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};

kinds! {
    /// A stage of a reload, a refork or an upgrade.
    pub enum ReloadStage {
        /// Another change is under way; this one follows it.
        Waiting = "waiting",
        /// In place: old workers leave before the new code is loaded.
        Vacating = "vacating",
        /// Memory is checked, and the app is loaded.
        Booting = "booting",
        /// The first worker answers requests of the server's own.
        Probing = "probing",
        /// Copies of requests are compared, which no client has waited for.
        Shadowing = "shadowing",
        /// The first worker serves a share of the requests.
        Watching = "watching",
        /// Workers are replaced.
        Rolling = "rolling",
        /// All workers are new; the old template stays for a while.
        Settling = "settling",
        /// The old code remains, or takes over again.
        Reverting = "reverting",
        /// Of a refork: the successor of a warm worker boots.
        Replacing = "replacing",
        /// Of a refork: a warm worker finishes its requests and becomes the next template.
        Becoming = "becoming",
        /// Of an upgrade: the new program starts.
        Starting = "starting",
        /// Of an upgrade: the new program takes over.
        HandingOver = "handing over",
    }
}

/// A running change, or the time after a change during which it can be undone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Running {
    pub stage: ReloadStage,
    /// The current state as a sentence for users.
    pub text: String,
    #[serde(with = "when")]
    pub started_at: SystemTime,
}

/// A change that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended<K> {
    #[serde(with = "when")]
    pub at: SystemTime,
    pub outcome: K,
    /// The outcome as a sentence for users, with the reason of a failure.
    pub text: String,
    /// The time from the beginning to the end, in seconds.
    pub took_s: f64,
}

impl<K> Ended<K> {
    /// Creates the record of a change that ended at `at`.
    pub fn new(outcome: K, text: &str, took: Duration, at: SystemTime) -> Ended<K> {
        let took_s = (took.as_secs_f64() * 1e3).round() / 1e3;
        Ended { at, outcome, text: text.to_owned(), took_s }
    }

    /// Returns the text on one line, without the backtrace of an exception.
    pub fn summary(&self) -> String {
        let lines = self.text.lines().take_while(|line| !line.starts_with("  ")).map(str::trim);
        lines.collect::<Vec<_>>().join(" ")
    }
}

/// The statistics of one type of change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "K: Deserialize<'de> + Ord"))]
pub struct Changes<K> {
    /// The changes that have ended, by outcome.
    pub counts: Counts<K>,
    /// The running change.
    pub running: Option<Running>,
    /// The last change that ran. Changes that ended before they began do not count.
    pub last: Option<Ended<K>>,
}

impl<K: CountedKind> Default for Changes<K> {
    fn default() -> Changes<K> {
        Changes { counts: Counts::default(), running: None, last: None }
    }
}

/// Its counts are its metric.
impl<K: CountedKind> Value for Changes<K> {
    fn sample(&self, metric: &'static Metric, labels: &[Label<'_>], page: &mut dyn Page) {
        self.counts.sample(metric, labels, page);
    }
}

impl<K: CountedKind> Changes<K> {
    /// Records the end of a change, after which none is running.
    pub fn ended(&mut self, end: Ended<K>) {
        self.counts.count(end.outcome);
        (self.running, self.last) = (None, Some(end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reloads::ReloadOutcome::{Done, Failed};

    #[test]
    fn a_summary_is_one_line_without_the_backtrace() {
        let text = "the app cannot be loaded:\nRuntimeError: broken\n    config.ru:1:in `block'\n    -e:1";
        let end = Ended::new(Failed, text, Duration::from_micros(1_234_567), SystemTime::UNIX_EPOCH);
        assert_eq!(end.summary(), "the app cannot be loaded: RuntimeError: broken");
        assert_eq!(end.took_s, 1.235);
    }

    #[test]
    fn an_end_is_counted_and_nothing_runs_after_it() {
        let running =
            Running { stage: ReloadStage::Booting, text: String::new(), started_at: SystemTime::UNIX_EPOCH };
        let mut changes = Changes { running: Some(running), ..Changes::default() };
        for outcome in [Failed, Done, Done] {
            changes.ended(Ended::new(outcome, "", Duration::ZERO, SystemTime::UNIX_EPOCH));
        }
        assert_eq!(
            (changes.counts.of(Failed), changes.counts.of(Done), changes.running.clone()),
            (1, 2, None)
        );
        assert_eq!(changes.last.as_ref().map(|last| last.outcome), Some(Done));
        let json = serde_json::to_value(&changes).unwrap();
        assert_eq!(serde_json::from_value::<Changes<_>>(json).unwrap(), changes);
    }
}
