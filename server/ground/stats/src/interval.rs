//! The difference between two snapshots of the same server: counters become rates, and histograms cover the
//! time between.

use crate::durations::{DurationSummary, FineBuckets};
use crate::figures::Merged;
use crate::handlers::HandlerFigures;
use crate::server::{ServerSnapshot, WorkerSnapshot};
use crate::totals::{ConnectionCounts, FaultCounts, RequestCounts};

/// The difference between two snapshots.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interval {
    /// The length of the interval.
    pub seconds: f64,
    /// Requests that ended in the interval.
    pub requests: RequestCounts,
    pub failures: FaultCounts,
    pub connections: ConnectionCounts,
    /// Body bytes that were sent.
    pub sent_body_bytes: u64,
    /// The time from the first byte of a request to the last of its response, in milliseconds.
    pub total_ms: DurationSummary,
    /// The same by fine bucket, to be added to those of other servers.
    pub total: FineBuckets,
    /// The wait for a worker, in milliseconds.
    pub queue_ms: DurationSummary,
    /// The time in the app, in milliseconds.
    pub app_ms: DurationSummary,
    /// The number of CPUs that all processes used; 1.5 is one and a half CPUs.
    pub cpus: f64,
    /// Workers that were replaced.
    pub restarts: u32,
    /// The figures of each worker, in the order of the later snapshot.
    pub workers: Vec<WorkerInterval>,
    /// The figures of mruby handlers; `None` if there are none.
    pub handlers: Option<HandlerFigures>,
}

/// The figures of one worker between two snapshots.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct WorkerInterval {
    /// Its index.
    pub index: u32,
    /// Its process id. While one worker replaces another, both have the same index.
    pub pid: u32,
    /// Requests that it finished.
    pub requests: u64,
    /// The number of CPUs that it used.
    pub cpus: f64,
}

impl Interval {
    /// Returns the difference from `earlier` to `later`. `seconds` is the time between them, by a monotonic
    /// clock if there is one. `None` if they are from different servers (it was restarted in between) or from
    /// the same moment.
    pub fn between(earlier: &ServerSnapshot, later: &ServerSnapshot, seconds: f64) -> Option<Interval> {
        if (earlier.pid, earlier.started_at) != (later.pid, later.started_at) || seconds <= 0.0 {
            return None;
        }
        let (old, new) = (&earlier.front, &later.front);
        let workers: Vec<WorkerInterval> =
            later.workers.iter().map(|worker| worker.since(earlier, seconds)).collect();
        let front_cpus = cpus(later.cpu_ms.saturating_sub(earlier.cpu_ms), seconds);
        let total = FineBuckets::between(&old.total_ms, &new.total_ms);
        Some(Interval {
            seconds,
            requests: new.requests.since(&old.requests),
            failures: new.failures.since(&old.failures),
            connections: new.connections.since(&old.connections),
            sent_body_bytes: new.sent_body_bytes.saturating_sub(old.sent_body_bytes),
            total_ms: total.summary(),
            total,
            queue_ms: new.queue_ms.since(&old.queue_ms),
            app_ms: new.app_ms.since(&old.app_ms),
            cpus: front_cpus + workers.iter().map(|worker| worker.cpus).sum::<f64>(),
            restarts: restarts(later).saturating_sub(restarts(earlier)),
            workers,
            // Routes are never added while a server runs. Counts that were not read before began at 0.
            handlers: later.handlers.as_ref().map(|new| match &earlier.handlers {
                Some(old) => new.all.since(&old.all),
                None => new.all.clone(),
            }),
        })
    }

    /// Returns `count` as a rate per second.
    pub fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }
}

impl WorkerSnapshot {
    fn since(&self, earlier: &ServerSnapshot, seconds: f64) -> WorkerInterval {
        // A successor with the same index has counted from 0.
        let before = earlier.workers.iter().find(|old| (old.index, old.pid) == (self.index, self.pid));
        let (requests, cpu_ms) = before.map_or((0, 0), |old| (old.requests, old.cpu_ms));
        WorkerInterval {
            index: self.index,
            pid: self.pid,
            requests: self.requests.saturating_sub(requests),
            cpus: cpus(self.cpu_ms.saturating_sub(cpu_ms), seconds),
        }
    }
}

fn restarts(server: &ServerSnapshot) -> u32 {
    server.workers.iter().map(|worker| worker.restarts).fold(0, u32::saturating_add)
}

fn cpus(cpu_ms: u64, seconds: f64) -> f64 {
    cpu_ms as f64 / 1_000.0 / seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::HandlersSnapshot;
    use crate::server::tests::server;
    use crate::{Finished, Recorder, Snapshot};

    fn page(recorder: &Recorder, status: u16, total_us: u64) {
        recorder.finished(&Finished { status, total_us, ..Finished::default() });
    }

    #[test]
    fn counters_become_what_came_between() {
        let recorder = Recorder::new();
        (0..100).for_each(|_| page(&recorder, 200, 1_000));
        let (mut earlier, mut later) = (server(2), server(2));
        earlier.front = Snapshot::of([&recorder]);
        (0..50).for_each(|_| page(&recorder, 200, 80_000));
        (0..10).for_each(|_| page(&recorder, 500, 200_000));
        later.front = Snapshot::of([&recorder]);
        later.cpu_ms += 500;
        later.workers[0].cpu_ms += 2_000;
        later.workers[0].requests += 60;
        let found = Interval::between(&earlier, &later, 2.0).unwrap();
        assert_eq!((found.requests.total, found.requests.server_errors), (60, 10));
        assert_eq!(found.per_second(found.requests.total), 30.0);
        assert!((found.total_ms.p50 - 80.0).abs() < 1.0, "{:?}", found.total_ms);
        assert!((found.total_ms.p99 - 200.0).abs() < 2.0, "{:?}", found.total_ms);
        assert!((found.total_ms.mean - 100.0).abs() < 1.0, "{:?}", found.total_ms);
        assert_eq!(found.cpus, 1.25);
        assert_eq!(found.workers[0], WorkerInterval { index: 0, pid: 100, requests: 60, cpus: 1.0 });
        assert_eq!(found.restarts, 0);
    }

    #[test]
    fn a_successor_counts_from_nothing() {
        let (earlier, mut later) = (server(1), server(1));
        let worker = &mut later.workers[0];
        (worker.pid, worker.requests, worker.cpu_ms, worker.restarts) = (900, 7, 100, 1);
        let found = Interval::between(&earlier, &later, 1.0).unwrap();
        assert_eq!(found.workers[0], WorkerInterval { index: 0, pid: 900, requests: 7, cpus: 0.1 });
        assert_eq!(found.restarts, 1);
    }

    #[test]
    fn handlers_count_as_everybody_does() {
        let counted = |requests, failures, refused, vms_replaced| HandlersSnapshot {
            all: HandlerFigures { requests, failures, refused, vms_replaced, ..HandlerFigures::default() },
            threads: Vec::new(),
        };
        let (mut earlier, mut later) = (server(0), server(0));
        assert_eq!(Interval::between(&earlier, &later, 1.0).unwrap().handlers, None);
        earlier.handlers = Some(counted(10, 3, 1, 1));
        later.handlers = Some(counted(25, 5, 2, 1));
        let expected = HandlerFigures { requests: 15, failures: 2, refused: 1, ..HandlerFigures::default() };
        assert_eq!(Interval::between(&earlier, &later, 1.0).unwrap().handlers, Some(expected));
    }

    #[test]
    fn two_servers_have_nothing_between_them() {
        let (earlier, mut later) = (server(1), server(1));
        later.pid += 1;
        assert_eq!(Interval::between(&earlier, &later, 1.0), None);
        assert_eq!(Interval::between(&earlier, &earlier, 0.0), None);
    }
}
