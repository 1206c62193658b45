//! The picture of the whole server that the control socket shows.

use control::Provider;
use pool::Shared;
use pool::supervisor::{AppFacts, Command};
use pool::table::{Row, Stage};
use settings::{Machine, Settings};
use stats::{
    HandlerCounts, HandlersSnapshot, InFlight, QueueSnapshot, Recorder, RubyVersion, ServerSnapshot,
    Snapshot, WorkerSnapshot, WorkerState,
};
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokio::sync::{mpsc, oneshot};

/// Everything that a picture is made of.
#[derive(Clone)]
pub(crate) struct Camera {
    pub(crate) settings: Arc<Settings>,
    /// Of the app, if there is one.
    pub(crate) facts: Option<AppFacts>,
    pub(crate) shared: Option<Arc<Shared>>,
    pub(crate) recorders: Vec<Recorder>,
    pub(crate) handlers: Vec<HandlerCounts>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) started: SystemTime,
    pub(crate) template: Option<u32>,
}

/// What a process takes.
#[derive(Clone, Copy, Default)]
struct Taken {
    pss_bytes: u64,
    rss_bytes: u64,
    cpu_ms: u64,
}

impl Taken {
    fn by(pid: u32) -> Taken {
        use stats::memory::{cpu_ms, pss_bytes, rss_bytes};
        Taken { pss_bytes: pss_bytes(pid), rss_bytes: rss_bytes(pid), cpu_ms: cpu_ms(pid) }
    }
}

impl std::iter::Sum for Taken {
    fn sum<I: Iterator<Item = Taken>>(all: I) -> Taken {
        all.fold(Taken::default(), |sum, one| Taken {
            pss_bytes: sum.pss_bytes + one.pss_bytes,
            rss_bytes: sum.rss_bytes + one.rss_bytes,
            cpu_ms: sum.cpu_ms + one.cpu_ms,
        })
    }
}

impl Provider for Camera {
    /// Takes a picture. Memory is measured on another thread: it takes the kernel some time.
    async fn stats(&self) -> ServerSnapshot {
        let rows = self.rows().await;
        let pids: Vec<u32> = rows.iter().map(|row| row.pid).collect();
        let own = [Some(std::process::id()), self.template];
        let measured = tokio::task::spawn_blocking(move || {
            let own: Taken = own.into_iter().flatten().map(Taken::by).sum();
            (own, Machine::read(), pids.into_iter().map(Taken::by).collect::<Vec<Taken>>())
        });
        let Ok((own, machine, workers)) = measured.await else {
            // Only a panic gets here; the figures are left out rather than the answer.
            return self.picture(
                Taken::default(),
                None,
                rows.iter().zip(std::iter::repeat(Taken::default())),
            );
        };
        self.picture(own, Some(&machine), rows.iter().zip(workers))
    }

    async fn requests(&self, limit: usize, backtraces: bool) -> Vec<InFlight> {
        self.in_flight(limit, backtraces).await
    }
}

impl Camera {
    pub(crate) async fn rows(&self) -> Vec<Row> {
        let (answer, rows) = oneshot::channel();
        // While the server ends, the supervisor no longer answers: then there are no workers to show.
        if self.commands.send(Command::Rows(answer)).await.is_err() {
            return Vec::new();
        }
        rows.await.unwrap_or_default()
    }

    fn picture<'a>(
        &self,
        own: Taken,
        machine: Option<&Machine>,
        rows: impl Iterator<Item = (&'a Row, Taken)>,
    ) -> ServerSnapshot {
        let now = (Instant::now(), SystemTime::now());
        ServerSnapshot {
            version: crate::VERSION.to_owned(),
            ruby: self.facts.as_ref().map(|facts| RubyVersion::from(facts.ruby.as_str())).unwrap_or_default(),
            rack: self.facts.as_ref().map(|facts| facts.rack.clone()).unwrap_or_default(),
            environment: self.settings.environment.clone(),
            dir: self.settings.dir.display().to_string(),
            pid: std::process::id(),
            started_at: self.started,
            taken_at: now.1,
            phase: 0,
            clustered: self.shared.is_some() && self.settings.workers > 1,
            pss_bytes: own.pss_bytes,
            rss_bytes: own.rss_bytes,
            cpu_ms: own.cpu_ms,
            cores: machine.map_or(0.0, Machine::cpu_time),
            memory_limit_bytes: machine.and_then(Machine::memory).unwrap_or(0),
            workers: rows.filter_map(|(row, taken)| self.worker(row, taken, now)).collect(),
            queue: self.queue(now.0),
            handlers: HandlersSnapshot::of(&self.handlers),
            front: Snapshot::of(&self.recorders),
        }
    }

    fn worker(&self, row: &Row, taken: Taken, (now, wall): (Instant, SystemTime)) -> Option<WorkerSnapshot> {
        let shared = self.shared.as_ref()?;
        let slot = shared.slot(row.index as usize);
        let in_flight = shared.dispatch().taken(row.serial);
        Some(WorkerSnapshot {
            index: row.index,
            pid: row.pid,
            state: match row.stage {
                Stage::Booting => WorkerState::Booting,
                Stage::Up => WorkerState::Ready,
                Stage::Leaving => WorkerState::Draining,
            },
            phase: 0,
            started_at: wall.checked_sub(now.saturating_duration_since(row.forked)).unwrap_or(wall),
            last_checkin: wall,
            requests: slot.requests,
            failures: slot.failures,
            busy_threads: slot.busy.len() as u32,
            threads_started: slot.threads as u32,
            threads_max: self.settings.threads.max.into(),
            in_flight,
            waiting: in_flight.saturating_sub(slot.busy.len() as u32),
            pss_bytes: taken.pss_bytes,
            rss_bytes: taken.rss_bytes,
            cpu_ms: taken.cpu_ms,
            restarts: row.restarts,
        })
    }

    fn queue(&self, now: Instant) -> QueueSnapshot {
        let Some(shared) = &self.shared else { return QueueSnapshot::default() };
        let dispatch = shared.dispatch();
        let oldest =
            dispatch.oldest().map_or(0.0, |since| now.saturating_duration_since(since).as_secs_f64() * 1e3);
        QueueSnapshot {
            length: dispatch.waiting() as u64,
            oldest_wait_ms: oldest,
            longest: dispatch.longest() as u64,
            max: self.settings.limits.max_queue as u64,
        }
    }
}
