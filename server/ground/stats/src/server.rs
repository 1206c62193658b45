//! The state of the whole server: structs of [figures](crate::figures) that the front fills in.
//!
//! [`ServerSnapshot::to_json`] returns the native format, whose tables in docs/stats.md are made from the comments here. Field names
//! contain their units.

use crate::cache::CacheSnapshot;
use crate::certificates::CertificateSnapshot;
use crate::deaths::DeathCounts;
use crate::figures::figures;
use crate::handlers::HandlersSnapshot;
use crate::health::ServerState;
use crate::hub::HubSnapshot;
use crate::interruptions::{MaintenanceSnapshot, PauseSnapshot};
use crate::libraries::Library;
use crate::memory::MemorySnapshot;
use crate::queue::{QueueClassSnapshot, WaiterSnapshot};
use crate::rate_limits::RateLimitsSnapshot;
use crate::reloads::{ReforksSnapshot, ReloadsSnapshot, UpgradesSnapshot};
use crate::route::RouteSnapshot;
use crate::services::ServiceSnapshot;
use crate::shape::ShapeSnapshot;
use crate::snapshot::Snapshot;
use crate::tls::TlsSnapshot;
use crate::when;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::SystemTime;

figures! {
    /// The state of a running server at one moment.
    pub struct ServerSnapshot {
        /// Version of Firebrick.
        version: String,
        /// `engine`, `version`, `patchlevel` (null when unknown) of the Ruby that runs the app.
        ruby: RubyVersion,
        /// Release of the Rack that the app loads.
        rack: String,
        /// How the app's loaded libraries work with [fibers](fibers.md): `name`, `with_fibers` (`forbids`, `stops` the thread, `slows`,
        /// `waits`), `text`; the worst first. Empty if this Ruby does not report it.
        #[serde(default)]
        libraries: Vec<Library>,
        /// Connections to the database that a worker may have: the size of Active Record's pool. Null without Active Record.
        #[serde(default)]
        database_connections: Option<u32>,
        /// `RACK_ENV`.
        environment: String,
        /// The app's folder.
        dir: String,
        /// Process id of the front.
        pid: u32,
        /// When the server started.
        #[serde(with = "when")]
        started_at: SystemTime = own("firebrick_start_time_seconds"; "When the server started, since the epoch"),
        /// When these numbers were read.
        #[serde(with = "when")]
        taken_at: SystemTime,
        /// Number of templates before the newest: reloads, reforks, and templates that have died.
        phase: u32,
        /// `booting`, `serving`, `leaving` (`timeouts.lame_duck`), `draining`.
        #[serde(default)]
        state: ServerState,
        /// Started with more than one worker. Selects the shape of Puma's stats.
        clustered: bool,
        /// Proportional set size (PSS) of front and template, measured at most twice a second.
        pss_bytes: u64 = gauge(
            "firebrick_memory_pss_bytes", process = "front";
            "Memory by process (PSS: private memory plus its share of shared memory)"
        ),
        /// Resident memory of front and template; shared memory counts for each.
        #[serde(default)]
        rss_bytes: u64 = gauge(
            "firebrick_memory_rss_bytes", process = "front"; "Resident memory by process; what is shared counts for each"
        ),
        /// CPU time of front and template since the start; 0 if the system does not report it.
        #[serde(default)]
        cpu_ms: u64,
        /// CPUs that the server may use: by affinity, or the cgroup's quota if that is less; 0 when unknown.
        #[serde(default)]
        cores: f64 = gauge("firebrick_cpus"; "CPUs' worth of time that the server may use; 0 when unknown"),
        /// Memory limit of the cgroup, or else the machine's memory; 0 when unknown.
        #[serde(default)]
        memory_limit_bytes: u64 =
            gauge("firebrick_memory_limit_bytes"; "Memory that the server may use; 0 when unknown"),
        /// Resources that the front holds for responses that clients have not read, and for uploads in files ([clients that do not
        /// read](http2.md#clients-that-do-not-read)).
        #[serde(default)]
        held: HeldSnapshot = part,
        /// The memory that the front uses for clients ([memory](memory.md)).
        #[serde(default)]
        memory: MemorySnapshot = part,
        /// The wanted number of workers ([workers](workers.md#how-many)). Null without an app.
        #[serde(default)]
        sizing: Option<SizingSnapshot> = part,
        /// The objective of response times and the [shape](shape.md) that follows it; null without `slo`.
        #[serde(default)]
        shape: Option<ShapeSnapshot> = part,
        /// See below.
        workers: Vec<WorkerSnapshot> = part(newest_workers),
        /// Workers that have ended since the start of the server, by [cause](#deaths-of-workers).
        #[serde(default)]
        deaths: DeathCounts = counter("firebrick_worker_deaths", cause; "Workers that have ended, by why" if sizing.is_some()),
        /// Calls that have [stopped a thread's fibers](fibers.md#calls-that-stop-a-thread) for longer than `rack.blocking_call`, in any
        /// worker since the start.
        #[serde(default)]
        blocking_calls: u64 = counter(
            "firebrick_worker_blocking_calls";
            "Calls that have stopped a thread's fibers for longer than rack.blocking_call" if sizing.is_some()
        ),
        /// The total time of those calls.
        #[serde(default)]
        blocked_ms: u64 = counter("firebrick_worker_blocking_seconds"; "How long those calls took" if sizing.is_some()),
        /// [Reloads](reload.md) of the app, see [below](#reloads).
        #[serde(default)]
        reloads: ReloadsSnapshot = counter("firebrick_reloads", outcome; "Reloads of the app that have ended, by how"),
        /// Warm workers that became the next template ([reforks](refork.md)), see [below](#reforks).
        #[serde(default)]
        reforks: ReforksSnapshot = counter(
            "firebrick_reforks", outcome; "Warm workers that were to become the next template, by how that ended"
        ),
        /// New processes that took over ([upgrades](upgrade.md)), see [below](#upgrades).
        #[serde(default)]
        upgrades: UpgradesSnapshot =
            counter("firebrick_upgrades", outcome; "New programs that were to take over, by how that ended"),
        /// [Services](services.md).
        #[serde(default)]
        services: Vec<ServiceSnapshot> = part,
        /// A pause of the app's requests ([maintenance](maintenance.md#pause)).
        #[serde(default)]
        pause: PauseSnapshot = part,
        /// The [maintenance](maintenance.md) of the server.
        #[serde(default)]
        maintenance as "maintenance_state": MaintenanceSnapshot = part,
        /// The [changes of settings](set.md) in force, in words: the setting, its value, who, when and why.
        #[serde(default)]
        changed_settings: Vec<String>,
        /// Full garbage collections between requests ([workers](workers.md#garbage-collection-between-requests)).
        #[serde(default)]
        out_of_band_gc: OutOfBandGc = part,
        /// See below.
        queue: QueueSnapshot = part,
        /// The [classes](queue.md#classes) of waiting requests, the default one first, see below; empty without `[queue.classes]`.
        #[serde(default)]
        queue_classes: Vec<QueueClassSnapshot> = part,
        /// The clients with the most waiting requests, at most ten of each pool, see below.
        #[serde(default)]
        waiters: Vec<WaiterSnapshot>,
        /// The [pools of workers](pools.md), the default one first, see below; empty without `[pools]` and `fiber_paths`.
        #[serde(default)]
        pools: Vec<PoolSnapshot> = part,
        /// Handlers on mruby, see below; null without `[routes]` to any.
        #[serde(default)]
        handlers: Option<HandlersSnapshot> = part,
        /// [Rate limits](rate-limits.md), null without any.
        #[serde(default)]
        rate_limits: Option<RateLimitsSnapshot> = part,
        /// The [cache of responses](caching.md), see below; null if it is off.
        #[serde(default)]
        kept_responses: Option<CacheSnapshot> = part,
        /// The [hub of live pages](live-pages.md), null if it is off.
        #[serde(default)]
        hub: Option<HubSnapshot> = part,
        /// Certificates that the server obtains by itself, see below; empty without `[acme]`.
        #[serde(default)]
        acme: Vec<CertificateSnapshot> = part,
        /// Handshakes and certificates, see below; null when no address begins with `ssl://`.
        #[serde(default)]
        tls: Option<TlsSnapshot> = part,
        /// The routes with the most time in the app, at most ten, see below; `GET /routes` has all. Empty if [`stats.routes`](settings.md#statsroutes)
        /// is 0.
        #[serde(default)]
        routes: Vec<RouteSnapshot> = part,
        /// The counters of the front threads.
        #[serde(flatten)]
        front: Snapshot = flat,
    }

    /// The resources that the front holds for uploads, and for responses that clients have not taken.
    #[derive(Copy, Default, Eq)]
    pub struct HeldSnapshot {
        /// Open files.
        descriptors: u32 = gauge(
            "firebrick_held_descriptors"; "Open files of responses that clients have not taken, and of uploads"
        ),
        /// Bytes in memory, files in memory included.
        memory_bytes: u64 =
            gauge("firebrick_held_memory_bytes"; "Memory of responses that clients have not taken"),
        /// Bytes of files that exist for one response or upload.
        disk_bytes: u64 = gauge(
            "firebrick_held_disk_bytes"; "Files made for responses that clients have not taken, and for uploads"
        ),
    }

    /// Full garbage collections of workers between requests.
    #[derive(Copy, Default, Eq)]
    pub struct OutOfBandGc {
        /// Their number.
        count: u64,
        /// Their total duration in milliseconds.
        ms: u64,
    }

    /// A worker process.
    pub struct WorkerSnapshot [worker = |it| it.index.to_string()] {
        /// Its number, from 0.
        index: u32,
        /// Process id; 0 while there is none.
        pid: u32,
        /// `booting`, `ready`, `draining` (takes no more requests), `gone` (its replacement has not started).
        state: WorkerState,
        /// The server's `phase` when it was forked: its generation is one more.
        phase: u32,
        /// When it was forked.
        #[serde(with = "when")]
        started_at: SystemTime,
        /// When it last reported.
        #[serde(with = "when")]
        last_checkin: SystemTime,
        /// Requests it has finished.
        requests: u64,
        /// Requests that ended in an exception of the app.
        failures: u64,
        /// Calls that have stopped a thread's fibers for longer than `rack.blocking_call`
        /// ([fibers](fibers.md#calls-that-stop-a-thread)).
        #[serde(default)]
        blocking_calls: u64,
        /// The total time of those calls.
        #[serde(default)]
        blocked_ms: u64,
        /// Threads that are serving a request; with fibers, requests that are being served.
        busy_threads: u32,
        /// Threads that run.
        threads_started: u32,
        /// Threads that may run. With fibers, the number of requests that it serves at a time: threads x fibers.
        threads_max: u32,
        /// Fibers of each thread; 0 if threads serve.
        #[serde(default)]
        fibers: u32,
        /// In a worker of the pool `fibers` ([`fiber_paths`](fibers.md#fibers-for-some-paths)): `busy_threads` and `threads_max` again;
        /// otherwise null.
        #[serde(default)]
        fiber_paths: Option<FiberSeats> = part,
        /// The name of its [pool](pools.md).
        #[serde(default = "default_pool")]
        pool: String,
        /// Requests it was given and has not finished.
        in_flight: u32,
        /// Requests of `in_flight` that no thread has started.
        #[serde(default)]
        waiting: u32,
        /// Proportional set size, which can be added up over processes. Resident size if the system does not report it; 0 outside of
        /// Linux.
        pss_bytes: u64 = gauge(
            "firebrick_worker_pss_bytes"; "Memory of a worker (PSS: private memory plus its share of shared memory)"
        ),
        /// Resident memory, shared memory included; 0 outside of Linux.
        #[serde(default)]
        rss_bytes: u64 = gauge("firebrick_worker_rss_bytes"; "Resident memory of a worker, what is shared included"),
        /// CPU time since it was forked, in steps of 10 ms; 0 outside of Linux.
        #[serde(default)]
        cpu_ms: u64,
        /// Number of times that the worker with this number was replaced.
        restarts: u32 = gauge("firebrick_worker_restarts"; "How often the worker of this number was replaced"),
    }

    /// The seats of a worker of the pool `fibers`.
    #[derive(Copy, Default, Eq)]
    pub struct FiberSeats {
        /// Requests that the fibers are serving.
        busy: u32,
        /// Requests that the fibers can serve at a time.
        max: u32,
    }

    /// A pool of workers.
    pub struct PoolSnapshot [pool = |it| it.name.clone()] {
        /// Its name; `default` for the paths of no other pool.
        name: String,
        /// Its workers, those that boot or leave included.
        workers: u64,
        /// Requests that its workers are serving.
        busy: u64 = gauge("firebrick_pool_requests", stage = "app"; "Requests of a pool by where they are"),
        /// Requests that its workers can serve at a time.
        seats: u64 = gauge("firebrick_pool_seats"; "Requests that the workers of a pool can serve at a time"),
        /// Requests that wait now.
        length: u64 = gauge("firebrick_pool_requests", stage = "queue"),
        /// Wait of the first of them.
        oldest_wait_ms: f64,
        /// The largest `length` since the start.
        longest: u64,
        /// The limit (`limits.max_queue` of the pool).
        max: u64,
        /// Requests since the start that got 503 because `max` were waiting.
        refused_full: u64 = counter("firebrick_pool_refusals", reason = "full"; "Requests of a pool that got no seat (503), by why"),
        /// Requests that got 503 at once, because they would have waited longer than `timeouts.queue` of the pool.
        refused_early: u64 = counter("firebrick_pool_refusals", reason = "early"),
        /// Requests that got 503 after `timeouts.queue` of the pool.
        expired: u64 = counter("firebrick_pool_refusals", reason = "expired"),
    }

    /// The wanted number of workers of the default pool.
    #[derive(Default, Eq)]
    pub struct SizingSnapshot {
        /// The wanted number of workers of the default pool now.
        wanted: u32 = gauge("firebrick_workers_wanted"; "How many workers there should be"),
        /// The least that the setting `workers` allows.
        min: u32 = gauge(
            "firebrick_workers_limit", bound = "min"; "The least and the most workers that the settings allow"
        ),
        /// The most that it allows; the same as `min` if the number does not follow the load.
        max: u32 = gauge("firebrick_workers_limit", bound = "max"),
        /// A signal (TTIN, TTOU) has set `wanted`, so that it does not follow the load until the next reload.
        pinned: bool,
        /// When and why it changed last: `at`, `from`, `to`, `why`; null when it has not.
        #[serde(default)]
        last: Option<SizeChange>,
    }

    /// Requests that wait for a worker.
    #[derive(Copy, Default)]
    #[serde(default)]
    pub struct QueueSnapshot: Merged {
        /// Number of requests that wait now.
        length: u64 = gauge,
        /// Wait of the first of them.
        oldest_wait_ms: f64 = peak(
            "firebrick_queue_oldest_seconds"; "How long the first request of the queue has been waiting"
        ),
        /// The largest `length` since the start.
        longest: u64 = peak,
        /// The limit (`limits.max_queue`). With [pools](pools.md) each has a queue: `longest` and `oldest_wait_ms` are the greatest of all,
        /// all other numbers their sums.
        max: u64 = gauge("firebrick_queue_limit"; "Requests that may wait (limits.max_queue)"),
        /// Requests since the start that got 503 because `max` were waiting.
        refused_full: u64 = counter("firebrick_queue_refusals", reason = "full"; "Requests for the app that got no seat (503), by why"),
        /// Requests that got 503 at once, because they would have waited longer than `timeouts.queue`
        /// ([workers](workers.md#requests-that-would-wait-too-long)).
        refused_early: u64 = counter("firebrick_queue_refusals", reason = "early"),
        /// Requests that got 503 after `timeouts.queue`.
        expired: u64 = counter("firebrick_queue_refusals", reason = "expired"),
        /// Clients whose requests wait now ([queue.fair](queue.md)). A client in several pools or classes counts in each.
        clients: u64 = gauge("firebrick_queue_clients"; "Clients with requests in the queue"),
        /// The waiting requests of the client that has the most.
        most_of_client: u64 = peak("firebrick_queue_most_of_client"; "Waiting requests of the client that has the most"),
        /// With `fiber_paths`: the part of `length` that waits in the pool `fibers`; otherwise null.
        for_fibers: Option<u64> = own,
    }
}

fn default_pool() -> String {
    "default".to_owned()
}

/// Engine, version and patch level of a Ruby.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RubyVersion {
    /// `RUBY_ENGINE`.
    pub engine: String,
    /// `RUBY_ENGINE_VERSION`.
    pub version: String,
    /// `RUBY_PATCHLEVEL`, if known.
    pub patchlevel: Option<i32>,
}

/// The state of a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerState {
    /// Forked but not ready.
    #[default]
    Booting,
    Ready,
    /// Finishing its requests; takes no new ones.
    Draining,
    /// Ended; its successor does not exist yet.
    Gone,
}

/// A change of the wanted number of workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeChange {
    #[serde(with = "when")]
    pub at: SystemTime,
    pub from: u32,
    pub to: u32,
    /// The reason, for users.
    pub why: String,
}

impl SizeChange {
    /// Returns the change as text, such as `grew 2 → 3`.
    pub fn course(&self) -> String {
        let verb = if self.to > self.from { "grew" } else { "shrank" };
        format!("{verb} {} → {}", self.from, self.to)
    }
}

impl ServerSnapshot {
    /// Returns the native JSON format, indented.
    ///
    /// # Errors
    /// None in practice, because all keys are text and no number is infinite.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// Returns the seconds since the start.
    pub fn uptime(&self) -> f64 {
        when::between(self.started_at, self.taken_at)
    }

    /// Returns the workers with the newest of each number: while one worker replaces another, both have the same.
    fn newest_workers(&self) -> impl Iterator<Item = &WorkerSnapshot> {
        let mut seen = BTreeSet::new();
        self.workers.iter().rev().filter(move |worker| seen.insert(worker.index))
    }

    /// Returns the word for the seats of the workers: threads or fibers, or seats if there are both kinds.
    pub fn seats_word(&self) -> &'static str {
        let fibers = |worker: &WorkerSnapshot| worker.fibers > 0;
        match (self.workers.iter().any(fibers), self.workers.iter().all(fibers)) {
            (false, _) => "threads",
            (true, true) => "fibers",
            (true, false) => "seats",
        }
    }

    /// Returns the CPU time of all processes that are running, in milliseconds.
    pub fn total_cpu_ms(&self) -> u64 {
        self.workers.iter().map(|worker| worker.cpu_ms).fold(self.cpu_ms, u64::saturating_add)
    }

    /// Returns the sum of the resident memory of all processes in bytes, in which shared memory counts
    /// several times.
    pub fn total_rss_bytes(&self) -> u64 {
        self.workers.iter().map(|worker| worker.rss_bytes).fold(self.rss_bytes, u64::saturating_add)
    }

    /// Returns the memory of all processes in bytes (PSS).
    pub fn total_pss_bytes(&self) -> u64 {
        self.workers.iter().map(|worker| worker.pss_bytes).fold(self.pss_bytes, u64::saturating_add)
    }
}

impl WorkerSnapshot {
    /// Returns busy and total seats: `2/5`.
    pub fn seats_text(&self) -> String {
        format!("{}/{}", self.busy_threads, self.threads_max)
    }

    /// Returns the seconds from its fork to `now`.
    pub fn uptime(&self, now: SystemTime) -> f64 {
        when::between(self.started_at, now)
    }
}

/// Parses `ruby 3.1.2`, `ruby 3.1.2p20` and similar texts.
impl From<&str> for RubyVersion {
    fn from(text: &str) -> RubyVersion {
        let mut words = text.split_whitespace();
        let engine = words.next().unwrap_or_default().to_owned();
        let version = words.next().unwrap_or_default();
        let (version, patchlevel) = match version.split_once('p').map(|(v, p)| (v, p.parse())) {
            Some((release, Ok(patchlevel))) => (release, Some(patchlevel)),
            _ => (version, None),
        };
        RubyVersion { engine, version: version.to_owned(), patchlevel }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::handlers::HandlerFigures;
    use std::time::Duration;

    /// Creates a server with `workers` workers, each with five threads, of which two are busy, and one
    /// prefetched request.
    pub(crate) fn server(workers: u32) -> ServerSnapshot {
        let started_at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_769_860_800);
        let worker = |index| WorkerSnapshot {
            index,
            pid: 100 + index,
            state: WorkerState::Ready,
            phase: 0,
            started_at,
            last_checkin: started_at,
            requests: 1_000,
            failures: 1,
            blocking_calls: 2,
            blocked_ms: 320,
            busy_threads: 2,
            threads_started: 4,
            threads_max: 5,
            fibers: 0,
            fiber_paths: None,
            pool: default_pool(),
            in_flight: 3,
            waiting: 1,
            pss_bytes: 10 << 20,
            rss_bytes: 40 << 20,
            cpu_ms: 1_500,
            restarts: 0,
        };
        ServerSnapshot {
            version: "0.1.0".into(),
            ruby: RubyVersion::from("ruby 3.1.2p20"),
            rack: "2.2.4".into(),
            libraries: Vec::new(),
            database_connections: None,
            environment: "production".into(),
            dir: "/srv/app".into(),
            pid: 99,
            started_at,
            taken_at: started_at + Duration::from_secs(60),
            phase: 0,
            state: ServerState::Serving,
            clustered: true,
            pss_bytes: 5 << 20,
            rss_bytes: 20 << 20,
            cpu_ms: 250,
            cores: 2.0,
            memory_limit_bytes: 512 << 20,
            held: HeldSnapshot { descriptors: 3, memory_bytes: 1 << 20, disk_bytes: 2 << 20 },
            memory: MemorySnapshot {
                limit_bytes: 256 << 20,
                used_bytes: 3 << 20,
                ..MemorySnapshot::default()
            },
            shape: None,
            sizing: Some(SizingSnapshot {
                wanted: workers,
                min: 1,
                max: workers + 2,
                pinned: false,
                last: None,
            }),
            workers: (0..workers).map(worker).collect(),
            deaths: DeathCounts::default(),
            blocking_calls: 5,
            blocked_ms: 800,
            reloads: ReloadsSnapshot::default(),
            reforks: ReforksSnapshot::default(),
            upgrades: UpgradesSnapshot::default(),
            services: Vec::new(),
            pause: PauseSnapshot::default(),
            maintenance: MaintenanceSnapshot::default(),
            changed_settings: Vec::new(),
            out_of_band_gc: OutOfBandGc::default(),
            queue: QueueSnapshot { longest: 8, max: 10_000, refused_early: 3, ..QueueSnapshot::default() },
            pools: Vec::new(),
            handlers: None,
            rate_limits: None,
            kept_responses: None,
            hub: None,
            queue_classes: Vec::new(),
            waiters: Vec::new(),
            acme: Vec::new(),
            tls: None,
            routes: Vec::new(),
            front: Snapshot::default(),
        }
    }

    #[test]
    fn json_can_be_read_back() {
        let server = server(2);
        let read: ServerSnapshot = serde_json::from_str(&server.to_json().unwrap()).unwrap();
        assert_eq!(read, server);
        let threads =
            vec![HandlerFigures { index: Some(0), tasks_most: Some(7), ..HandlerFigures::default() }];
        let handlers =
            HandlersSnapshot { all: HandlerFigures { requests: 9, ..HandlerFigures::default() }, threads };
        let with_handlers = ServerSnapshot { handlers: Some(handlers), ..server.clone() };
        assert_eq!(
            serde_json::from_str::<ServerSnapshot>(&with_handlers.to_json().unwrap()).unwrap(),
            with_handlers
        );
        assert_eq!((read.uptime(), read.total_pss_bytes()), (60.0, 25 << 20));
        assert_eq!(read.total_cpu_ms(), 250 + 2 * 1_500);
    }

    #[test]
    fn what_an_older_server_does_not_say_is_zero() {
        let mut json: serde_json::Value = serde_json::from_str(&server(1).to_json().unwrap()).unwrap();
        assert!(json["handlers"].is_null());
        for name in [
            "rss_bytes",
            "cpu_ms",
            "cores",
            "memory_limit_bytes",
            "held",
            "memory",
            "deaths",
            "blocking_calls",
            "blocked_ms",
            "reforks",
            "upgrades",
            "sizing",
            "shape",
            "out_of_band_gc",
            "app_cpu_ms",
            "gvl_ms",
            "handlers",
            "acme",
            "tls",
        ] {
            assert!(json.as_object_mut().unwrap().remove(name).is_some(), "{name}");
        }
        for name in ["refused_full", "refused_early", "expired"] {
            assert!(json["queue"].as_object_mut().unwrap().remove(name).is_some(), "{name}");
        }
        for name in ["rss_bytes", "cpu_ms", "waiting"] {
            assert!(json["workers"][0].as_object_mut().unwrap().remove(name).is_some(), "{name}");
        }
        let read: ServerSnapshot = serde_json::from_value(json).unwrap();
        assert_eq!(
            (read.rss_bytes, read.cores, read.workers[0].cpu_ms, read.front.gvl_ms.count),
            (0, 0.0, 0, 0)
        );
    }

    #[test]
    fn json_is_flat_and_names_units() {
        let json: serde_json::Value = serde_json::from_str(&server(1).to_json().unwrap()).unwrap();
        assert_eq!(json["requests"]["2xx"], 0);
        assert_eq!(json["queue"]["max"], 10_000);
        assert_eq!(json["workers"][0]["state"], "ready");
        assert_eq!(json["app_ms"]["p99"], 0.0);
        assert_eq!(json["started_at"], "2026-01-31T12:00:00.000Z");
    }

    #[test]
    fn rubies_of_all_kinds() {
        let ruby = |engine: &str, version: &str, patchlevel| RubyVersion {
            engine: engine.into(),
            version: version.into(),
            patchlevel,
        };
        assert_eq!(RubyVersion::from("ruby 3.1.2p20 (2022-04-12)"), ruby("ruby", "3.1.2", Some(20)));
        assert_eq!(RubyVersion::from("ruby 3.4.0preview1"), ruby("ruby", "3.4.0preview1", None));
        assert_eq!(RubyVersion::from("truffleruby 24.0"), ruby("truffleruby", "24.0", None));
        assert_eq!(RubyVersion::from(""), ruby("", "", None));
    }
}
