//! Takes snapshots of the whole server for the control server.

use super::interruptions::Interruptions;
use super::threads::Threads;
use crate::boot::{RunningApp, RunningWorkers};
use crate::caching;
use crate::handover::UpgradeRecord;
use crate::hub::SharedHub;
use crate::release::Releases;
use crate::services::ServiceStates;
use crate::tls::Encryption;
use crate::vitals::Vitals;
use cache::Store;
use ratelimit::LimiterState;
use settings::{Machine, Pool, Settings};
use stats::{
    Death, FiberSeats, HandlerCounts, HandlersSnapshot, HeldSnapshot, KeptRequest, Load, Merged, OutOfBandGc,
    PoolSnapshot, QueueClassSnapshot, QueueSnapshot, RateLimitsSnapshot, Recorder, RouteOrder,
    RoutesSnapshot, RubyVersion, ServerSnapshot, ShadowReport, SizingSnapshot, Snapshot, TlsSnapshot,
    WaiterSnapshot, WorkerSnapshot,
};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{mpsc, oneshot, watch};
use workers::reconciler::{FIRST, Row};
use workers::supervisor::{Command, Processes, Sizing};
use workers::{ClassIndex, ClassShare, Dispatch, PoolIndex, Shared, clients};

#[derive(Clone)]
pub(crate) struct Snapshotter {
    /// The settings at the start.
    settings: Arc<Settings>,
    /// The settings in force.
    current: watch::Receiver<Arc<Settings>>,
    app: Option<RunningApp>,
    recorders: Vec<Recorder>,
    handlers: Vec<HandlerCounts>,
    ledger: Arc<LimiterState>,
    /// `None` if no response is kept.
    store: Option<Arc<Store>>,
    /// `None` if the hub is off.
    hub: Option<Arc<SharedHub>>,
    encryption: Arc<Encryption>,
    vitals: Arc<Vitals>,
    interruptions: Interruptions,
    services: ServiceStates,
    upgrades: UpgradeRecord,
    commands: mpsc::Sender<Command>,
    started: SystemTime,
}

/// The most routes in `/stats`.
const ROUTES: usize = 10;
/// The most clients of a pool in the list of those that wait.
const WAITERS: usize = 10;
/// The maximum age of a measured PSS for interactive readers.
const PSS_AGE: Duration = Duration::from_millis(500);

/// The figures of processes that a reader needs. Others are not read: each file of `/proc` costs as much as
/// all other figures of the process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Detail {
    /// The maximum age of a measured PSS.
    age: Duration,
    /// Whether to read the CPU time.
    cpu: bool,
    /// Whether the routes are those of `/metrics`.
    labelled: bool,
}

impl Detail {
    pub(super) const ALL: Detail = Detail { age: PSS_AGE, cpu: true, labelled: false };
    /// The figures in `/metrics`.
    pub(super) const SCRAPED: Detail = Detail { age: sys::process::KEPT, cpu: false, labelled: true };
}

#[derive(Clone, Copy, Default)]
struct Usage {
    pss_bytes: u64,
    rss_bytes: u64,
    cpu_ms: u64,
}

impl Usage {
    fn of(pid: u32, detail: Detail) -> Usage {
        Usage {
            pss_bytes: sys::process::recent_pss_bytes(pid, detail.age),
            rss_bytes: sys::process::rss_bytes(pid),
            cpu_ms: if detail.cpu { sys::process::cpu_ms(pid) } else { 0 },
        }
    }
}

impl std::iter::Sum for Usage {
    fn sum<I: Iterator<Item = Usage>>(all: I) -> Usage {
        all.fold(Usage::default(), |sum, one| Usage {
            pss_bytes: sum.pss_bytes + one.pss_bytes,
            rss_bytes: sum.rss_bytes + one.rss_bytes,
            cpu_ms: sum.cpu_ms + one.cpu_ms,
        })
    }
}

impl Snapshotter {
    /// Takes a snapshot, with memory figures as old as `detail` allows. Measures memory on another thread because it blocks for some time.
    pub(crate) async fn stats(&self, detail: Detail) -> ServerSnapshot {
        let processes = self.processes().await;
        let pids: Vec<u32> = processes.workers.iter().map(|row| row.pid).collect();
        let own: Vec<u32> = std::iter::once(std::process::id()).chain(processes.templates.clone()).collect();
        let measured = tokio::task::spawn_blocking(move || {
            let own: Usage = own.into_iter().map(|pid| Usage::of(pid, detail)).sum();
            (
                own,
                Machine::recent(),
                pids.into_iter().map(|pid| Usage::of(pid, detail)).collect::<Vec<Usage>>(),
            )
        });
        let Ok((own, machine, workers)) = measured.await else {
            // Only a panic leads here. The figures are then left out.
            return self.snapshot(
                Usage::default(),
                None,
                &processes,
                std::iter::repeat(Usage::default()),
                detail,
            );
        };
        self.snapshot(own, Some(&machine), &processes, workers, detail)
    }

    /// Returns the server's load. Reads no file.
    pub(crate) async fn load(&self) -> Load {
        if self.app.is_none() {
            return Load::default();
        }
        let (processes, now) = (self.processes().await, (Instant::now(), SystemTime::now()));
        let rows = processes.workers.iter();
        let workers: Vec<WorkerSnapshot> =
            rows.filter_map(|row| self.worker(row, Usage::default(), now)).collect();
        Load::of_workers(&workers, &self.queue(now.0), &self.pools(&processes, now.0))
    }

    pub(crate) fn deaths(&self) -> Vec<Death> {
        self.shared().map(|shared| shared.deaths().list()).unwrap_or_default()
    }

    pub(crate) fn differences(&self) -> Option<ShadowReport> {
        self.shared().and_then(|shared| shared.differences())
    }

    pub(crate) fn kept_requests(&self, death: u64) -> Vec<KeptRequest> {
        self.shared().map(|shared| shared.deaths().requests(death)).unwrap_or_default()
    }

    pub(crate) fn new(
        releases: &Releases,
        pool: &RunningWorkers,
        threads: &Threads,
        encryption: &Arc<Encryption>,
        interruptions: &Interruptions,
        upgrades: &UpgradeRecord,
        started: SystemTime,
    ) -> Snapshotter {
        Snapshotter {
            settings: releases.settings(),
            current: releases.watch_settings(),
            app: pool.app().cloned(),
            recorders: threads.recorders.clone(),
            handlers: threads.handlers.clone(),
            ledger: threads.ledger.clone(),
            store: threads.store.clone(),
            hub: threads.hub.clone(),
            encryption: encryption.clone(),
            vitals: interruptions.vitals(),
            interruptions: interruptions.clone(),
            services: ServiceStates::default(),
            upgrades: upgrades.clone(),
            commands: pool.commands.clone(),
            started,
        }
    }

    /// Returns the figures by route.
    pub(crate) fn routes(&self) -> RoutesSnapshot {
        Recorder::routes(&self.recorders)
    }

    /// Forgets the figures by route.
    pub(crate) fn reset_routes(&self) {
        self.recorders.iter().for_each(Recorder::reset_routes);
    }

    /// Returns the counts of the rate limits in force.
    fn rate_limits(&self) -> Option<RateLimitsSnapshot> {
        let settings = self.current.borrow();
        self.ledger.snapshot(&settings.rate_limits, settings.shared.redis.is_some())
    }

    /// Returns the kept responses of all threads.
    pub(crate) fn store(&self) -> Option<&Arc<Store>> {
        self.store.as_ref()
    }

    /// Returns the hub of live pages.
    pub(crate) fn hub(&self) -> Option<&Arc<SharedHub>> {
        self.hub.as_ref()
    }

    /// Returns the state of the services, for the manager to update.
    pub(crate) fn services(&self) -> ServiceStates {
        self.services.clone()
    }

    /// Returns the state that front threads and workers share, if there is an app.
    pub(crate) fn shared(&self) -> Option<&Shared> {
        self.app.as_ref().map(|app| &*app.shared)
    }

    /// The sender of orders to the supervisor, for example for backtraces.
    pub(crate) fn commands(&self) -> &mpsc::Sender<Command> {
        &self.commands
    }

    pub(crate) async fn processes(&self) -> Processes {
        let (reply, processes) = oneshot::channel();
        // During shutdown the supervisor no longer replies; then no workers are shown.
        if self.commands.send(Command::Processes(reply)).await.is_err() {
            return Processes::default();
        }
        processes.await.unwrap_or_default()
    }

    fn snapshot(
        &self,
        own: Usage,
        machine: Option<&Machine>,
        processes: &Processes,
        workers: impl IntoIterator<Item = Usage>,
        detail: Detail,
    ) -> ServerSnapshot {
        let now = (Instant::now(), SystemTime::now());
        let rows = processes.workers.iter().zip(workers);
        let facts = processes.facts.as_ref().or(self.app.as_ref().map(|app| &app.facts));
        let workers: Vec<WorkerSnapshot> =
            rows.filter_map(|(row, taken)| self.worker(row, taken, now)).collect();
        let (calls_before, us_before) =
            self.shared().map(|shared| shared.blocked_before()).unwrap_or_default();
        let blocking_calls = calls_before + workers.iter().map(|worker| worker.blocking_calls).sum::<u64>();
        let blocked_ms = us_before / 1000 + workers.iter().map(|worker| worker.blocked_ms).sum::<u64>();
        ServerSnapshot {
            version: crate::VERSION.to_owned(),
            ruby: facts.map(|facts| RubyVersion::from(facts.ruby.as_str())).unwrap_or_default(),
            rack: facts.map(|facts| facts.rack.clone()).unwrap_or_default(),
            libraries: facts.map(|facts| facts.libraries.clone()).unwrap_or_default(),
            database_connections: facts.and_then(|facts| facts.connections),
            environment: self.settings.process.environment.clone(),
            dir: self.settings.dir.display().to_string(),
            pid: std::process::id(),
            started_at: self.started,
            taken_at: now.1,
            phase: processes.phase,
            state: self.vitals.state(),
            clustered: self.app.is_some()
                && (self.settings.workers.max > 1 || !self.settings.pools.is_empty()),
            pss_bytes: own.pss_bytes,
            rss_bytes: own.rss_bytes,
            cpu_ms: own.cpu_ms,
            cores: machine.map_or(0.0, Machine::cpu_time),
            memory_limit_bytes: machine.and_then(Machine::memory).unwrap_or(0),
            held: held(),
            memory: crate::memory::snapshot(),
            sizing: self.app.as_ref().map(|_| sizing(&processes.sizing)),
            shape: processes.shape.clone(),
            workers,
            deaths: self.shared().map(|shared| shared.deaths().counts()).unwrap_or_default(),
            blocking_calls,
            blocked_ms,
            reloads: processes.reloads.clone(),
            reforks: processes.reforks.clone(),
            upgrades: self.upgrades.snapshot(),
            services: self.services.list(),
            pause: self.interruptions.paused(),
            maintenance: self.interruptions.maintenance(),
            changed_settings: self.interruptions.changes().described(),
            out_of_band_gc: OutOfBandGc {
                count: processes.collections.0,
                ms: processes.collections.1.as_millis() as u64,
            },
            queue: self.queue(now.0),
            queue_classes: self.queue_classes(),
            waiters: self.waiters(now.0),
            pools: self.pools(processes, now.0),
            handlers: HandlersSnapshot::of(&self.handlers),
            rate_limits: self.rate_limits(),
            kept_responses: self.store.as_deref().map(caching::snapshot),
            hub: self.hub.as_ref().map(|hub| hub.snapshot()),
            acme: self.encryption.obtained(),
            tls: self
                .encryption
                .is_used()
                .then(|| TlsSnapshot::of(&self.recorders, crate::tls::certificates(&self.encryption))),
            routes: match detail.labelled {
                true => self.routes().labelled(self.current.borrow().stats.route_metrics),
                false => self.routes().first(ROUTES, RouteOrder::Time),
            },
            front: Snapshot::of(&self.recorders),
        }
    }

    fn worker(&self, row: &Row, taken: Usage, (now, wall): (Instant, SystemTime)) -> Option<WorkerSnapshot> {
        let shared = self.shared()?;
        let slot = shared.scoreboard().slot(row.index as usize);
        let (in_flight, seats) = (shared.dispatch(row.pool).taken(row.serial), shared.seats(row.pool));
        let busy = seats.serving(&slot) as u32;
        let name = self.pool_name(row.pool);
        Some(WorkerSnapshot {
            index: row.index,
            pid: row.pid,
            state: row.state,
            phase: row.generation - FIRST,
            started_at: wall.checked_sub(now.saturating_duration_since(row.forked)).unwrap_or(wall),
            last_checkin: wall,
            requests: slot.requests,
            failures: slot.failures,
            blocking_calls: slot.blocking_calls,
            blocked_ms: slot.blocked_us / 1000,
            busy_threads: busy,
            threads_started: slot.threads as u32,
            threads_max: seats.count(),
            fibers: seats.fibers,
            fiber_paths: (name == Pool::FIBERS).then(|| FiberSeats { busy, max: seats.count() }),
            pool: name.to_owned(),
            in_flight,
            waiting: u32::saturating_sub(in_flight, busy),
            pss_bytes: taken.pss_bytes,
            rss_bytes: taken.rss_bytes,
            cpu_ms: taken.cpu_ms,
            restarts: row.restarts,
        })
    }

    fn queue(&self, now: Instant) -> QueueSnapshot {
        let Some(shared) = self.shared() else { return QueueSnapshot::default() };
        let mut for_fibers = None;
        let all = shared.pools().indexes().map(|pool| {
            let (queue, name) = (shared.dispatch(pool), self.pool_name(pool));
            let one = of_queue(&queue, now);
            if name == Pool::FIBERS {
                for_fibers = Some(one.length);
            }
            one
        });
        let sum = all.reduce(|mut sum, one| {
            sum.add(&one);
            sum
        });
        QueueSnapshot { for_fibers, ..sum.unwrap_or_default() }
    }

    /// Returns the figures of each class, over all pools; empty if there is only the default one.
    fn queue_classes(&self) -> Vec<QueueClassSnapshot> {
        let Some(shared) = self.shared() else { return Vec::new() };
        let mut all: Vec<QueueClassSnapshot> = Vec::new();
        for pool in shared.pools().indexes() {
            for (ClassShare { name, weight }, figures) in shared.dispatch(pool).classes() {
                let known = all.iter().position(|one| one.name == *name);
                let at = known.unwrap_or_else(|| {
                    all.push(QueueClassSnapshot {
                        name: name.clone(),
                        weight: *weight,
                        ..Default::default()
                    });
                    all.len() - 1
                });
                let sum = &mut all[at];
                sum.waiting += figures.waiting;
                sum.clients += figures.clients;
                sum.served += figures.served;
                sum.waited_ms += figures.waited.as_millis() as u64;
                sum.refused += figures.refused;
            }
        }
        if all.len() > 1 { all } else { Vec::new() }
    }

    /// Returns the clients with the most waiting requests.
    fn waiters(&self, now: Instant) -> Vec<WaiterSnapshot> {
        let Some(shared) = self.shared() else { return Vec::new() };
        let mut all = Vec::new();
        for pool in shared.pools().indexes() {
            let queue = shared.dispatch(pool);
            let name =
                |class: ClassIndex| queue.classes().nth(class.0.into()).map(|(share, _)| share.name.clone());
            all.extend(queue.waiters(WAITERS).into_iter().map(|one| WaiterSnapshot {
                client: clients::describe(one.key.client),
                pool: self.pool_name(pool).to_owned(),
                class: name(one.key.class).unwrap_or_default(),
                waiting: one.waiting,
                served: one.seats,
                oldest_wait_ms: now.saturating_duration_since(one.since).as_secs_f64() * 1e3,
            }));
        }
        all.sort_by_key(|one| std::cmp::Reverse(one.waiting));
        all
    }

    /// Returns the figures of each pool; empty if there is only the default one.
    fn pools(&self, processes: &Processes, now: Instant) -> Vec<PoolSnapshot> {
        let Some(shared) = self.shared().filter(|shared| shared.pools().indexes().count() > 1) else {
            return Vec::new();
        };
        let one = |pool: PoolIndex| {
            let queue = shared.dispatch(pool);
            let figures = of_queue(&queue, now);
            PoolSnapshot {
                name: self.pool_name(pool).to_owned(),
                workers: processes.workers.iter().filter(|row| row.pool == pool).count() as u64,
                busy: queue.busy().into(),
                seats: queue.seats().into(),
                length: figures.length,
                oldest_wait_ms: figures.oldest_wait_ms,
                longest: figures.longest,
                max: figures.max,
                refused_full: figures.refused_full,
                refused_early: figures.refused_early,
                expired: figures.expired,
            }
        };
        shared.pools().indexes().map(one).collect()
    }

    /// Returns the name of a pool by its number.
    fn pool_name(&self, pool: PoolIndex) -> &str {
        let other = usize::from(pool.0).checked_sub(1).and_then(|at| self.settings.pools.get(at));
        other.map_or(Pool::DEFAULT, |pool| pool.name.as_str())
    }
}

fn of_queue(queue: &Dispatch, now: Instant) -> QueueSnapshot {
    let refusals = queue.refusals();
    let oldest = queue.oldest().map(|since| now.saturating_duration_since(since));
    QueueSnapshot {
        length: queue.waiting() as u64,
        oldest_wait_ms: oldest.unwrap_or_default().as_secs_f64() * 1e3,
        longest: queue.longest() as u64,
        max: queue.max() as u64,
        refused_full: refusals.full,
        refused_early: refusals.early,
        expired: refusals.expired,
        clients: queue.clients() as u64,
        most_of_client: queue.most_of_client().into(),
        for_fibers: None,
    }
}

fn held() -> HeldSnapshot {
    let held = handler::held::total();
    HeldSnapshot { descriptors: held.descriptors, memory_bytes: held.memory, disk_bytes: held.disk }
}

fn sizing(of: &Sizing) -> SizingSnapshot {
    let [wanted, min, max] =
        [of.wanted, of.min, of.max].map(|number| u32::try_from(number).unwrap_or(u32::MAX));
    SizingSnapshot { wanted, min, max, pinned: of.pinned, last: of.last.clone() }
}
