//! Workers as processes: the state of each, and the record of its death.

use super::*;
use crate::deaths::{Cause, DeathFacts, WorkerExit};
use crate::in_flight::Served;
use crate::memory::Memory;
use crate::oom::OomCount;
use crate::process::Process;
use crate::progress::Progress;
use crate::reconciler::End;
use settings::Machine;
use stats::DeathCause;
use std::time::SystemTime;
use wire::recorder::Flight;

/// The state of a worker beyond its row. Kept until all front threads have cleaned up after the worker's
/// death.
pub(super) struct Worker {
    pub(super) pool: PoolIndex,
    pub(super) generation: Generation,
    /// `None` until the fork has been reported.
    pub(super) process: Option<Process>,
    /// The number of requests that the worker serves at a time; 0 until it is ready.
    pub(super) seats: u32,
    pub(super) progress: Progress,
    pub(super) memory: Memory,
    pub(super) requests: deadlines::Requests,
    pub(super) traces: deadlines::Traces,
    pub(super) death: Death,
}

/// The facts about the death of a worker, collected until all front threads have reported.
#[derive(Default)]
pub(super) struct Death {
    exit: Option<WorkerExit>,
    /// The number of front threads that have not cleaned up yet.
    uncleared: usize,
    /// The requests that the worker had taken up when it died.
    served: Vec<Served>,
    /// The number of requests that it had finished.
    requests: u64,
    /// Its record, and when that was read.
    flight: (Flight, u64),
    /// The kernel's OOM-kill counter, interpreted for this death.
    oom: OomCount,
    /// Why the worker was replaced or killed because of its limits, for the log.
    pub(super) recycled: Option<(DeathCause, String)>,
}

impl Worker {
    pub(super) fn new(pool: PoolIndex, generation: Generation, front_threads: usize, now: Instant) -> Worker {
        Worker {
            pool,
            generation,
            process: None,
            seats: 0,
            progress: Progress::new(now),
            memory: Memory::default(),
            requests: deadlines::Requests::default(),
            traces: deadlines::Traces::default(),
            death: Death { uncleared: front_threads, ..Death::default() },
        }
    }

    /// Takes a report about the worker's requests.
    pub(super) fn told(&mut self, report: SupervisorMessage, now: Instant) {
        match report {
            SupervisorMessage::Withdrawn { count, .. } => self.progress.withdrawn(count),
            SupervisorMessage::Traces { traces, .. } => self.traces.arrived(traces),
            SupervisorMessage::Kept { thread, count, .. } => self.requests.kept(thread, count, now),
            SupervisorMessage::Extended { link, id, until_us, .. } => {
                self.requests.extended(link, id, until_us)
            }
            _ => {}
        }
    }
}

impl Supervisor {
    pub(super) fn has_served(&self, index: u32) -> bool {
        self.shared.scoreboard().slot(index as usize).taken.iter().any(|&taken| taken > 0)
    }

    pub(super) fn link_lost(&mut self, serial: Serial, why: &str) {
        let index = self.reconciler.index_of(serial);
        if why != "closed" {
            let name = index.map_or("gone".to_owned(), |index| index.to_string());
            self.log(format!("worker {name}: {why}"));
        }
        let served = index.is_some_and(|index| self.has_served(index));
        self.see(Change::Ended { serial, served, end: End::Link });
    }

    pub(super) fn process_ended(&mut self, serial: Serial) {
        let served = self.reconciler.index_of(serial).is_some_and(|index| self.has_served(index));
        self.see(Change::Ended { serial, served, end: End::Process });
    }

    pub(super) fn gone(&mut self, mut exit: WorkerExit) {
        let process = self.workers.get(&exit.serial).and_then(|worker| worker.process.as_ref());
        // A worker whose template has died is a child of this process, on systems that support that.
        exit.status = exit.status.or_else(|| process.and_then(Process::reap));
        let slot = self.shared.scoreboard().slot(exit.index as usize);
        self.shared.add_blocked(&slot);
        // The next worker of this slot overwrites it.
        let flight = (self.shared.scoreboard().flight(exit.index as usize), crate::os::monotonic_us());
        let taken: Arc<[u64]> = slot.taken.into();
        let kernel = deaths::may_be_the_kernels(&exit);
        let oom = self.subjects.meter.oom_kills.death(Machine::oom_kills(), kernel, Instant::now());
        let (serial, stuck) = (exit.serial, exit.cause == Cause::Stuck);
        self.subjects.collections.gone(serial);
        self.shared.to_all(|| ThreadMessage::Gone { serial, taken: taken.clone(), stuck });
        if let Some(worker) = self.workers.get_mut(&serial) {
            self.shared.dispatch(worker.pool).worker_gone(serial);
            worker.traces.close();
            let death = &mut worker.death;
            (death.exit, death.requests, death.oom) = (Some(exit), slot.requests, oom);
            death.flight = flight;
        }
    }

    /// Writes one record and one log line for each worker, once all front threads have reported the requests
    /// that they lost. Workers that exit as ordered, because of a shutdown or a replacement, are not logged.
    pub(super) fn cleared(&mut self, serial: Serial, served: Vec<Served>) {
        let Some(Worker { death, .. }) = self.workers.get_mut(&serial) else { return };
        death.served.extend(served);
        death.uncleared = death.uncleared.saturating_sub(1);
        if death.uncleared > 0 {
            return;
        }
        let Some(Worker { pool, memory, requests: running, traces, death, .. }) =
            self.workers.remove(&serial)
        else {
            return;
        };
        let Death { exit: Some(exit), mut served, requests, oom, recycled, flight, .. } = death else {
            return;
        };
        let ordinary =
            recycled.is_none() && deaths::finished(&exit) && !(exit.status.is_none() && oom.is_kill());
        let quiet = exit.cause == Cause::Ordered
            && (self.is_stopping() || ordinary)
            && served.iter().all(|one| !one.failed);
        let kept = served.iter_mut().filter_map(|one| one.kept.take()).collect();
        let most = self.options.settings.borrow().stats.keep_requests;
        let facts = DeathFacts {
            exit: &exit,
            recycled: recycled.as_ref().map(|(cause, why)| (*cause, why.as_str())),
            requests,
            memory,
            oom,
            stuck: running.stuck(),
            served,
            traces: traces.last(),
            worker_timeout: self.options.worker_timeout(pool),
            noticed: Instant::now(),
            // Most workers end so, and each record takes room.
            flight: if ordinary { Default::default() } else { flight },
        };
        let death = facts.record(SystemTime::now());
        if !quiet {
            let word = if deaths::finished(&exit) { "" } else { "warning: " };
            self.log(format!("{word}{}", death.text));
        }
        self.shared.deaths().add(death, kept, most);
    }
}
