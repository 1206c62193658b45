//! Counters of a Firebrick server (`GET /stats`); fields that are absent stay unknown.

use serde_json::Value;

use crate::libraries::{self, Library};

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Counters {
    /// Completed requests.
    pub(crate) requests: u64,
    /// Workers in any state.
    pub(crate) workers: u64,
    /// Workers that are ready.
    pub(crate) ready: u64,
    /// Number of worker restarts.
    pub(crate) restarts: u64,
    /// The behaviour of the app's libraries with fibers.
    pub(crate) libraries: Vec<Library>,
    /// Process ids of the ready workers, sorted.
    pub(crate) serving: Vec<u64>,
    app_ms: Option<Sum>,
    app_cpu_ms: Option<Sum>,
    gvl_ms: Option<Sum>,
    queue_ms: Option<Sum>,
}

/// A number of values with their sum.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sum {
    pub(crate) count: f64,
    pub(crate) total: f64,
}

impl Sum {
    /// Returns the mean; `None` without values.
    pub(crate) fn mean(self) -> Option<f64> {
        (self.count > 0.0).then(|| (self.total / self.count).max(0.0))
    }

    pub(crate) fn and(self, other: Sum) -> Sum {
        Sum { count: self.count + other.count, total: self.total + other.total }
    }

    fn since(self, before: Sum) -> Sum {
        Sum { count: self.count - before.count, total: self.total - before.total }
    }
}

/// Milliseconds spent in each stage between two snapshots.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Stages {
    pub(crate) app: Sum,
    pub(crate) cpu: Sum,
    pub(crate) gvl: Sum,
    pub(crate) queue: Sum,
}

impl Stages {
    pub(crate) fn and(self, other: Stages) -> Stages {
        Stages {
            app: self.app.and(other.app),
            cpu: self.cpu.and(other.cpu),
            gvl: self.gvl.and(other.gvl),
            queue: self.queue.and(other.queue),
        }
    }
}

impl Counters {
    /// Parses the counters; `None` if the text is not a JSON object.
    pub(crate) fn read(text: &str) -> Option<Counters> {
        let stats: Value = serde_json::from_str(text).ok()?;
        let workers =
            stats.as_object()?.get("workers").and_then(Value::as_array).cloned().unwrap_or_default();
        let ready = workers.iter().filter(|worker| worker["state"] == "ready");
        let mut serving: Vec<u64> = ready.filter_map(|worker| worker["pid"].as_u64()).collect();
        serving.sort_unstable();
        Some(Counters {
            requests: stats["requests"]["total"].as_u64().unwrap_or(0),
            workers: workers.len() as u64,
            ready: serving.len() as u64,
            serving,
            libraries: libraries::reported(&stats),
            restarts: workers.iter().filter_map(|worker| worker["restarts"].as_u64()).sum(),
            app_ms: sum(&stats["app_ms"]),
            app_cpu_ms: sum(&stats["app_cpu_ms"]),
            gvl_ms: sum(&stats["gvl_ms"]),
            queue_ms: sum(&stats["queue_ms"]),
        })
    }

    /// Returns how many workers were ready before and are gone.
    pub(crate) fn lost_since(&self, before: &Counters) -> usize {
        before.serving.iter().filter(|pid| !self.serving.contains(pid)).count()
    }

    /// Returns the difference between two snapshots.
    pub(crate) fn since(&self, before: &Counters) -> Stages {
        let between = |now: Option<Sum>, before: Option<Sum>| match (now, before) {
            (Some(now), before) => now.since(before.unwrap_or_default()),
            (None, _) => Sum::default(),
        };
        Stages {
            app: between(self.app_ms, before.app_ms),
            cpu: between(self.app_cpu_ms, before.app_cpu_ms),
            gvl: between(self.gvl_ms, before.gvl_ms),
            queue: between(self.queue_ms, before.queue_ms),
        }
    }
}

fn sum(summary: &Value) -> Option<Sum> {
    let count = summary["count"].as_f64()?;
    Some(Sum { count, total: count * summary["mean"].as_f64()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn means_between_two_snapshots() {
        let text = |count: u64, mean: f64| {
            format!(
                r#"{{"requests":{{"total":{count}}},"app_ms":{{"count":{count},"mean":{mean}}},
                    "workers":[{{"state":"ready","restarts":1,"pid":7}},{{"state":"booting","restarts":2}}]}}"#
            )
        };
        let before = Counters::read(&text(10, 5.0)).unwrap();
        let after = Counters::read(&text(30, 15.0)).unwrap();
        assert_eq!((after.workers, after.ready, after.restarts, after.requests), (2, 1, 3, 30));
        let between = after.since(&before);
        assert_eq!(between.app.mean(), Some(20.0));
        assert_eq!(between.gvl.mean(), None, "what is not reported is unknown");
        assert_eq!(before.since(&before).app.mean(), None);
        let other = Counters { serving: vec![8, 9], ..before.clone() };
        assert_eq!((after.lost_since(&before), other.lost_since(&before)), (0, 1));
    }

    proptest! {
        #[test]
        fn any_text_is_accepted(text in any::<String>()) {
            let _ = Counters::read(&text);
        }
    }
}
