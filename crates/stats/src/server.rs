//! The state of the whole server: plain structs that the pool fills in.
//!
//! [`ServerSnapshot::to_json`] returns the native format, which docs/stats.md specifies. Field names contain
//! their units.

use crate::certificates::CertificateSnapshot;
use crate::deaths::DeathCounts;
use crate::handlers::HandlersSnapshot;
use crate::health::ServerState;
use crate::libraries::Library;
use crate::rate_limits::RateLimitsSnapshot;
use crate::reloads::{ReforksSnapshot, ReloadsSnapshot, UpgradesSnapshot};
use crate::services::ServiceSnapshot;
use crate::snapshot::Snapshot;
use crate::tls::TlsSnapshot;
use crate::when;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;

/// The state of a running server at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerSnapshot {
    /// The version of Firebrick.
    pub version: String,
    /// The Ruby that runs the app.
    pub ruby: RubyVersion,
    /// The release of the Rack that the app loads.
    pub rack: String,
    /// How well the app's libraries work with fibers, the worst first; empty if this Ruby does not report it.
    #[serde(default)]
    pub libraries: Vec<Library>,
    /// `RACK_ENV`.
    pub environment: String,
    /// The folder of the app.
    pub dir: String,
    /// The process id of the front.
    pub pid: u32,
    #[serde(with = "when")]
    pub started_at: SystemTime,
    /// When this snapshot was taken.
    #[serde(with = "when")]
    pub taken_at: SystemTime,
    /// How often the app was restarted while the server ran (phased restarts).
    pub phase: u32,
    #[serde(default)]
    pub state: ServerState,
    /// Whether the server was started with more than one worker. Selects the shape of Puma's stats.
    pub clustered: bool,
    /// The memory of front and template in bytes, including their share of shared memory (PSS).
    pub pss_bytes: u64,
    /// The resident memory of front and template in bytes, in which shared memory counts twice.
    #[serde(default)]
    pub rss_bytes: u64,
    /// The CPU time of front and template since the start, in milliseconds; 0 if the system does not report
    /// it.
    #[serde(default)]
    pub cpu_ms: u64,
    /// The number of CPUs that the server may use: the CPUs of its affinity, or the cgroup's quota if that is
    /// less. 0 if unknown.
    #[serde(default)]
    pub cores: f64,
    /// The memory that the server may use, in bytes: the cgroup's limit, or otherwise the machine's memory. 0
    /// if unknown.
    #[serde(default)]
    pub memory_limit_bytes: u64,
    /// The resources that the front holds for clients.
    #[serde(default)]
    pub held: HeldSnapshot,
    /// The wanted number of workers; `None` if there is no app.
    #[serde(default)]
    pub sizing: Option<SizingSnapshot>,
    /// The workers by index.
    pub workers: Vec<WorkerSnapshot>,
    /// The workers that have ended, by cause.
    #[serde(default)]
    pub deaths: DeathCounts,
    /// The calls that have blocked a thread's fibers for longer than allowed, including those in workers that
    /// have ended.
    #[serde(default)]
    pub blocking_calls: u64,
    /// The total duration of those calls, in milliseconds.
    #[serde(default)]
    pub blocked_ms: u64,
    #[serde(default)]
    pub reloads: ReloadsSnapshot,
    #[serde(default)]
    pub reforks: ReforksSnapshot,
    #[serde(default)]
    pub upgrades: UpgradesSnapshot,
    /// The services, by name.
    #[serde(default)]
    pub services: Vec<ServiceSnapshot>,
    /// Full garbage collections between requests.
    #[serde(default)]
    pub out_of_band_gc: OutOfBandGc,
    /// Requests that wait for a worker.
    pub queue: QueueSnapshot,
    /// The mruby handlers; `None` if no route leads to one.
    #[serde(default)]
    pub handlers: Option<HandlersSnapshot>,
    /// The rate limits; `None` without any.
    #[serde(default)]
    pub rate_limits: Option<RateLimitsSnapshot>,
    /// The certificates that the server obtains itself; empty if there are none.
    #[serde(default)]
    pub acme: Vec<CertificateSnapshot>,
    /// Handshakes and certificates; `None` if no address uses TLS.
    #[serde(default)]
    pub tls: Option<TlsSnapshot>,
    /// The counters of the front threads.
    #[serde(flatten)]
    pub front: Snapshot,
}

/// The resources that the front holds for uploads, and for responses that clients have not taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSnapshot {
    /// Open files.
    pub descriptors: u32,
    /// Bytes in memory, including those of files in memory.
    pub memory_bytes: u64,
    /// Bytes of files that exist for one response or upload.
    pub disk_bytes: u64,
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

/// Full garbage collections of workers between requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfBandGc {
    pub count: u64,
    /// Their total duration in milliseconds.
    pub ms: u64,
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

/// A worker process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerSnapshot {
    /// The index, from 0.
    pub index: u32,
    /// The process id; 0 if there is no process at the moment.
    pub pid: u32,
    pub state: WorkerState,
    /// The server's `phase` when it was forked.
    pub phase: u32,
    /// When it was forked.
    #[serde(with = "when")]
    pub started_at: SystemTime,
    /// When it last reported.
    #[serde(with = "when")]
    pub last_checkin: SystemTime,
    /// Finished requests.
    pub requests: u64,
    /// Finished requests that ended in an exception of the app.
    pub failures: u64,
    /// Calls that have blocked a thread's fibers for longer than allowed.
    #[serde(default)]
    pub blocking_calls: u64,
    /// The total duration of those calls, in milliseconds.
    #[serde(default)]
    pub blocked_ms: u64,
    /// The threads that are serving a request; with fibers, the requests being served.
    pub busy_threads: u32,
    /// The threads that have been started.
    pub threads_started: u32,
    /// The threads that it may start; with fibers, the requests that it can serve at a time: threads x
    /// fibers.
    pub threads_max: u32,
    /// The fibers of each thread; 0 if threads serve.
    #[serde(default)]
    pub fibers: u32,
    /// With `fiber_paths`: the fibers of an additional thread, for these paths; the other threads have none.
    /// `busy_threads` and `threads_max` include both. `None`: fibers serve all requests or none.
    #[serde(default)]
    pub fiber_paths: Option<FiberSeats>,
    /// Requests that it was sent and has not finished, both served and prefetched.
    pub in_flight: u32,
    /// Requests that it was sent and no thread has taken up.
    #[serde(default)]
    pub waiting: u32,
    /// The memory in bytes: private memory plus its share of shared memory ([`crate::memory::pss_bytes`]).
    pub pss_bytes: u64,
    /// The resident memory in bytes, including shared memory.
    #[serde(default)]
    pub rss_bytes: u64,
    /// The CPU time since its fork, in milliseconds; 0 if the system does not report it.
    #[serde(default)]
    pub cpu_ms: u64,
    /// How often the worker with this index was replaced.
    pub restarts: u32,
}

/// The seats of a worker's fibers that serve beside its threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FiberSeats {
    /// Requests that the fibers are serving.
    pub busy: u32,
    /// Requests that the fibers can serve at a time.
    pub max: u32,
}

/// The wanted number of workers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizingSnapshot {
    pub wanted: u32,
    /// The smallest and largest number that the settings allow; equal if the number does not follow the load.
    pub min: u32,
    /// See `min`.
    pub max: u32,
    /// Whether a signal (TTIN, TTOU) has set `wanted`, so that it does not follow the load until the next
    /// reload.
    pub pinned: bool,
    /// The time of the last change of `wanted`, and its reason.
    #[serde(default)]
    pub last: Option<SizeChange>,
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

/// Requests that wait for a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueSnapshot {
    pub length: u64,
    /// How long the first of them has waited, in milliseconds.
    pub oldest_wait_ms: f64,
    /// The largest `length` since the start.
    pub longest: u64,
    /// The limit of `length` (`max_queue`).
    pub max: u64,
    /// Requests that were refused since the start because `max` requests were waiting.
    #[serde(default)]
    pub refused_full: u64,
    /// Requests that were refused because their predicted wait was longer than `timeouts.queue`.
    #[serde(default)]
    pub refused_early: u64,
    /// Requests that have waited for `timeouts.queue` without getting a seat.
    #[serde(default)]
    pub expired: u64,
    /// With `fiber_paths`: how many of `length` wait for a fiber. Each kind of seat has its own queue; `max`
    /// is the sum of both, `longest` and `oldest_wait_ms` the larger value.
    #[serde(default)]
    pub for_fibers: Option<u64>,
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
    /// Returns the word for its seats: threads or fibers, or seats if it has both.
    pub fn seats_word(&self) -> &'static str {
        match (self.fibers, self.fiber_paths) {
            (0, _) => "threads",
            (_, None) => "fibers",
            (_, Some(_)) => "seats",
        }
    }

    /// Returns busy and total seats: `2/5`. With `fiber_paths`, those of threads and those of fibers:
    /// `2/5+7/100`.
    pub fn seats_text(&self) -> String {
        let (busy, max) = self.of_threads();
        match self.fiber_paths {
            None => format!("{busy}/{max}"),
            Some(fibers) => format!("{busy}/{max}+{}/{}", fibers.busy, fibers.max),
        }
    }

    /// Returns busy and total seats without those of the fibers that serve `fiber_paths`.
    pub fn of_threads(&self) -> (u32, u32) {
        let fibers = self.fiber_paths.unwrap_or_default();
        (self.busy_threads.saturating_sub(fibers.busy), self.threads_max.saturating_sub(fibers.max))
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
    use crate::handlers::HandlerThread;
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
            out_of_band_gc: OutOfBandGc::default(),
            queue: QueueSnapshot { longest: 8, max: 10_000, refused_early: 3, ..QueueSnapshot::default() },
            handlers: None,
            rate_limits: None,
            acme: Vec::new(),
            tls: None,
            front: Snapshot::default(),
        }
    }

    #[test]
    fn json_can_be_read_back() {
        let server = server(2);
        let read: ServerSnapshot = serde_json::from_str(&server.to_json().unwrap()).unwrap();
        assert_eq!(read, server);
        let threads = vec![HandlerThread { index: 0, tasks_most: 7, ..HandlerThread::default() }];
        let handlers = HandlersSnapshot { requests: 9, threads, ..HandlersSnapshot::default() };
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
            "deaths",
            "blocking_calls",
            "blocked_ms",
            "reforks",
            "upgrades",
            "sizing",
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
