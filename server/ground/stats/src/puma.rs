//! Writes Puma's `stats` format, for the tools that read it (yabeda, puma-metrics, autoscalers).
//!
//! Puma has one queue per worker, Firebrick one for all. To keep sums over workers correct, the waiting
//! requests are shown as spread evenly over the workers, in addition to those that each worker was sent and
//! has not begun.

use crate::figures::{Merged, figures};
use crate::server::{RubyVersion, ServerSnapshot, WorkerSnapshot, WorkerState};
use crate::when;
use serde::Serialize;

/// The version of Puma whose format this is.
const SHAPE_OF: &str = "8.0.0";

#[derive(Serialize)]
#[serde(untagged)]
enum Stats<'a> {
    Cluster {
        started_at: String,
        workers: usize,
        phase: u32,
        booted_workers: usize,
        old_workers: usize,
        worker_status: Vec<WorkerStatus>,
        versions: Versions<'a>,
    },
    Single {
        started_at: String,
        #[serde(flatten)]
        status: PumaStatus,
        versions: Versions<'a>,
    },
}

#[derive(Serialize)]
struct WorkerStatus {
    started_at: String,
    pid: u32,
    index: u32,
    phase: u32,
    booted: bool,
    last_checkin: String,
    last_status: PumaStatus,
}

figures! {
    /// The figures that Puma has for each worker.
    #[derive(Default)]
    pub struct PumaStatus: Merged {
        /// Requests that wait in the worker, and an equal share of the queue: Firebrick has one queue, Puma
        /// one for each worker.
        backlog: u64 = gauge("puma_backlog"; "As Puma's: requests that wait for a thread"),
        /// `threads_started`.
        running: u64 = gauge("puma_running"; "As Puma's: threads that have been started"),
        /// `threads_max` minus the busy threads.
        pool_capacity: u64 = gauge("puma_pool_capacity"; "As Puma's: requests that could be started now"),
        /// Threads that are busy plus `backlog`, as Puma defines it.
        busy_threads: u64 = gauge("puma_busy_threads"; "As Puma's: threads at work, and what waits for one"),
        /// 0: Firebrick has none.
        io_threads: u64 = gauge,
        /// An equal share of the queue's `longest`.
        backlog_max: u64 = gauge,
        /// `threads_max`.
        max_threads: u64 = gauge("puma_max_threads"; "As Puma's: threads that may be started"),
        /// `requests`.
        requests_count: u64 = counter,
        /// 0: Firebrick has no reactor of this type.
        reactor_max: u64 = gauge,
    }
}

#[derive(Serialize)]
struct Versions<'a> {
    puma: &'a str,
    firebrick: &'a str,
    ruby: &'a RubyVersion,
}

impl ServerSnapshot {
    /// Returns Puma's format, indented: that of a cluster, or that of a single process if the server was
    /// started with one worker.
    ///
    /// # Errors
    /// None in practice, because all keys are text.
    pub fn to_puma_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(&if self.clustered { self.cluster() } else { self.single() })
    }

    /// Returns the sums of Puma's figures over all workers.
    pub(crate) fn puma_sum(&self) -> PumaStatus {
        let mut sum = PumaStatus::default();
        self.statuses().for_each(|(_, status)| sum.add(&status));
        sum
    }

    fn cluster(&self) -> Stats<'_> {
        Stats::Cluster {
            started_at: when::seconds(self.started_at),
            workers: self.workers.len(),
            phase: self.phase,
            booted_workers: self.workers.iter().filter(|worker| worker.is_booted()).count(),
            old_workers: self.workers.iter().filter(|worker| worker.phase != self.phase).count(),
            worker_status: self.statuses().map(|(worker, status)| worker.puma_status(status)).collect(),
            versions: self.versions(),
        }
    }

    fn single(&self) -> Stats<'_> {
        let mut sum = self.puma_sum();
        if self.workers.is_empty() {
            (sum.backlog, sum.backlog_max) = (self.queue.length, self.queue.longest);
        }
        Stats::Single { started_at: when::seconds(self.started_at), status: sum, versions: self.versions() }
    }

    fn statuses(&self) -> impl Iterator<Item = (&WorkerSnapshot, PumaStatus)> {
        let workers = self.workers.len() as u64;
        self.workers.iter().zip(0..).map(move |(worker, place)| {
            let queued = share(self.queue.length, workers, place);
            (worker, worker.thread_status(queued, share(self.queue.longest, workers, place)))
        })
    }

    fn versions(&self) -> Versions<'_> {
        Versions { puma: SHAPE_OF, firebrick: &self.version, ruby: &self.ruby }
    }
}

/// Returns the part at index `place` when `total` is spread evenly over `parts`.
fn share(total: u64, parts: u64, place: u64) -> u64 {
    total / parts + u64::from(place < total % parts)
}

impl WorkerSnapshot {
    pub(crate) fn is_booted(&self) -> bool {
        matches!(self.state, WorkerState::Ready | WorkerState::Draining)
    }

    fn puma_status(&self, last_status: PumaStatus) -> WorkerStatus {
        WorkerStatus {
            started_at: when::seconds(self.started_at),
            pid: self.pid,
            index: self.index,
            phase: self.phase,
            booted: self.is_booted(),
            last_checkin: when::seconds(self.last_checkin),
            last_status,
        }
    }

    fn thread_status(&self, queued: u64, queued_max: u64) -> PumaStatus {
        let backlog = queued + u64::from(self.waiting);
        PumaStatus {
            backlog,
            running: self.threads_started.into(),
            pool_capacity: self.threads_max.saturating_sub(self.busy_threads).into(),
            // Puma counts waiting requests as busy, which its own documentation calls "wholistic".
            busy_threads: u64::from(self.busy_threads) + backlog,
            io_threads: 0,
            backlog_max: queued_max.max(backlog),
            max_threads: self.threads_max.into(),
            requests_count: self.requests,
            reactor_max: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tests::server;
    use serde_json::{Value, json};

    fn puma(server: &ServerSnapshot) -> Value {
        serde_json::from_str(&server.to_puma_json().unwrap()).unwrap()
    }

    #[test]
    fn a_cluster_has_pumas_shape() {
        let mut server = server(2);
        server.workers[1].phase = 1;
        server.workers[1].state = WorkerState::Booting;
        server.queue.length = 3;
        let puma = puma(&server);
        assert_eq!(puma["workers"], 2);
        assert_eq!((&puma["booted_workers"], &puma["old_workers"]), (&json!(1), &json!(1)));
        assert_eq!(
            puma["worker_status"][0],
            json!({
                "started_at": "2026-01-31T12:00:00Z", "pid": 100, "index": 0, "phase": 0, "booted": true,
                "last_checkin": "2026-01-31T12:00:00Z",
                "last_status": {
                    "backlog": 3, "running": 4, "pool_capacity": 3, "busy_threads": 5, "io_threads": 0,
                    "backlog_max": 4, "max_threads": 5, "requests_count": 1_000, "reactor_max": 0,
                },
            })
        );
        assert_eq!(
            puma["versions"],
            json!({
                "puma": "8.0.0", "firebrick": "0.1.0",
                "ruby": {"engine": "ruby", "version": "3.1.2", "patchlevel": 20},
            })
        );
        let keys =
            ["started_at", "workers", "phase", "booted_workers", "old_workers", "worker_status", "versions"];
        assert_eq!(puma.as_object().map(|object| object.len()), Some(keys.len()));
        assert!(keys.iter().all(|key| puma.get(key).is_some()));
    }

    #[test]
    fn one_worker_is_a_single_process() {
        let mut server = server(1);
        (server.clustered, server.queue.length) = (false, 3);
        let puma = puma(&server);
        assert_eq!(
            (&puma["backlog"], &puma["max_threads"], &puma["requests_count"]),
            (&json!(4), &json!(5), &json!(1_000))
        );
        assert!(puma.get("worker_status").is_none() && puma.get("versions").is_some());
    }

    #[test]
    fn no_worker_at_all_still_shows_the_queue() {
        let mut server = server(0);
        server.queue.length = 7;
        assert_eq!(puma(&server)["worker_status"], json!([]));
        server.clustered = false;
        assert_eq!(puma(&server)["backlog"], 7);
    }

    #[test]
    fn shares_add_up() {
        for (total, parts) in [(0, 1), (7, 3), (3, 7), (12, 4)] {
            assert_eq!((0..parts).map(|place| share(total, parts, place)).sum::<u64>(), total);
        }
    }
}
