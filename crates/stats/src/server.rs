//! What the whole server is doing: plain structs that the pool fills in.
//!
//! [`ServerSnapshot::to_json`] is the native shape that docs/stats.md specifies; names of fields carry their units.

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

/// Everything there is to know about a running server at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServerSnapshot {
    /// Firebrick's version.
    pub version: String,
    /// The Ruby that runs the app.
    pub ruby: RubyVersion,
    /// Release of the Rack that the app loads.
    pub rack: String,
    /// How the app's libraries get along with fibers, the worst first; empty where the Ruby does not say.
    #[serde(default)]
    pub libraries: Vec<Library>,
    /// `RACK_ENV`.
    pub environment: String,
    /// The app's folder.
    pub dir: String,
    /// Process id of the front.
    pub pid: u32,
    /// When the server started.
    #[serde(with = "when")]
    pub started_at: SystemTime,
    /// When this snapshot was taken.
    #[serde(with = "when")]
    pub taken_at: SystemTime,
    /// How often the app was restarted while the server ran (phased restarts).
    pub phase: u32,
    /// What the server is at.
    #[serde(default)]
    pub state: ServerState,
    /// Whether it was started with more than one worker: decides the shape that Puma's tools see.
    pub clustered: bool,
    /// Memory of front and template, in bytes: their share of what is shared, too.
    pub pss_bytes: u64,
    /// Resident memory of front and template, in bytes; what they share counts for each.
    #[serde(default)]
    pub rss_bytes: u64,
    /// CPU time of front and template since the start, in milliseconds; 0 where the system does not report it.
    #[serde(default)]
    pub cpu_ms: u64,
    /// CPUs' worth of time that the server may use: those it may run on, or the cgroup's quota if that is less. 0 when unknown.
    #[serde(default)]
    pub cores: f64,
    /// Bytes of memory that the server may use: the cgroup's limit, or else the machine's memory. 0 when unknown.
    #[serde(default)]
    pub memory_limit_bytes: u64,
    /// What clients make the front hold.
    #[serde(default)]
    pub held: HeldSnapshot,
    /// How many workers there should be; `None` where there is no app.
    #[serde(default)]
    pub sizing: Option<SizingSnapshot>,
    /// The workers, by index.
    pub workers: Vec<WorkerSnapshot>,
    /// Workers that have ended, by cause.
    #[serde(default)]
    pub deaths: DeathCounts,
    /// Calls that have stopped a thread's fibers for longer than they may, also in workers that have ended.
    #[serde(default)]
    pub blocking_calls: u64,
    /// How long those took, in milliseconds.
    #[serde(default)]
    pub blocked_ms: u64,
    /// Reloads of the app.
    #[serde(default)]
    pub reloads: ReloadsSnapshot,
    /// Warm workers that became the next template.
    #[serde(default)]
    pub reforks: ReforksSnapshot,
    /// New programs that took over, or should have.
    #[serde(default)]
    pub upgrades: UpgradesSnapshot,
    /// Processes beside the workers, by name.
    #[serde(default)]
    pub services: Vec<ServiceSnapshot>,
    /// Full garbage collections between requests.
    #[serde(default)]
    pub out_of_band_gc: OutOfBandGc,
    /// Requests that wait for a worker.
    pub queue: QueueSnapshot,
    /// Handlers on mruby; `None` when there are no routes to any.
    #[serde(default)]
    pub handlers: Option<HandlersSnapshot>,
    /// Rate limits; `None` without any.
    #[serde(default)]
    pub rate_limits: Option<RateLimitsSnapshot>,
    /// Certificates that the server obtains by itself; empty when there are none to obtain.
    #[serde(default)]
    pub acme: Vec<CertificateSnapshot>,
    /// Handshakes and certificates; `None` when no address speaks TLS.
    #[serde(default)]
    pub tls: Option<TlsSnapshot>,
    /// What the front threads have counted.
    #[serde(flatten)]
    pub front: Snapshot,
}

/// What responses that clients have not taken, and uploads, make the front hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSnapshot {
    /// Open files.
    pub descriptors: u32,
    /// Bytes in memory, those of files in memory included.
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
    /// `RUBY_PATCHLEVEL`, when known.
    pub patchlevel: Option<i32>,
}

/// Full garbage collections that workers have made between requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfBandGc {
    /// How many.
    pub count: u64,
    /// How long they took together, in milliseconds.
    pub ms: u64,
}

/// What a worker is at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkerState {
    /// Forked, not ready yet.
    #[default]
    Booting,
    /// Takes requests.
    Ready,
    /// Finishes what it has, takes no more.
    Draining,
    /// Has ended; its successor is still to come.
    Gone,
}

/// One worker process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerSnapshot {
    /// Its place, from 0.
    pub index: u32,
    /// Process id; 0 when there is none at the moment.
    pub pid: u32,
    /// What it is at.
    pub state: WorkerState,
    /// The server's `phase` when it was forked.
    pub phase: u32,
    /// When it was forked.
    #[serde(with = "when")]
    pub started_at: SystemTime,
    /// When it last reported.
    #[serde(with = "when")]
    pub last_checkin: SystemTime,
    /// Requests it has finished.
    pub requests: u64,
    /// Those of them that ended in an exception out of the app.
    pub failures: u64,
    /// Calls that have stopped a thread's fibers for longer than they may.
    #[serde(default)]
    pub blocking_calls: u64,
    /// How long those took, in milliseconds.
    #[serde(default)]
    pub blocked_ms: u64,
    /// Threads that are serving a request; with fibers, requests that are being served.
    pub busy_threads: u32,
    /// Threads that have been started.
    pub threads_started: u32,
    /// Threads that it may start; with fibers, requests that it serves at a time: threads x fibers.
    pub threads_max: u32,
    /// Fibers of each thread; 0 where threads serve.
    #[serde(default)]
    pub fibers: u32,
    /// With `fiber_paths` the fibers of one more thread, for these paths; the other threads serve without. `busy_threads` and `threads_max`
    /// count both. `None`: fibers serve all requests, or none.
    #[serde(default)]
    pub fiber_paths: Option<FiberSeats>,
    /// Requests it has been given and has not finished: those being served and those prefetched.
    pub in_flight: u32,
    /// Requests it has been given and no thread has taken up.
    #[serde(default)]
    pub waiting: u32,
    /// Memory in bytes: its own and its share of what it shares ([`crate::memory::pss_bytes`]).
    pub pss_bytes: u64,
    /// Resident memory in bytes, what is shared included.
    #[serde(default)]
    pub rss_bytes: u64,
    /// CPU time since its fork, in milliseconds; 0 where the system does not report it.
    #[serde(default)]
    pub cpu_ms: u64,
    /// How often the worker of this index was replaced.
    pub restarts: u32,
}

/// Of a worker's seats those of the fibers beside its threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FiberSeats {
    /// Requests that they are serving.
    pub busy: u32,
    /// Requests that they serve at a time.
    pub max: u32,
}

/// How many workers there should be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizingSnapshot {
    /// Now.
    pub wanted: u32,
    /// The least and the most that the settings allow; the same when the number does not follow the load.
    pub min: u32,
    /// As `min`.
    pub max: u32,
    /// A signal (TTIN, TTOU) has set `wanted`, and it does not follow the load until the next reload.
    pub pinned: bool,
    /// When and why `wanted` changed last.
    #[serde(default)]
    pub last: Option<SizeChange>,
}

/// The number of workers that there should be has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeChange {
    /// When.
    #[serde(with = "when")]
    pub at: SystemTime,
    /// The number before.
    pub from: u32,
    /// The number since then.
    pub to: u32,
    /// Why, for people.
    pub why: String,
}

impl SizeChange {
    /// From what to what, such as `grew 2 → 3`.
    pub fn course(&self) -> String {
        let verb = if self.to > self.from { "grew" } else { "shrank" };
        format!("{verb} {} → {}", self.from, self.to)
    }
}

/// Requests that wait for a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueSnapshot {
    /// How many there are.
    pub length: u64,
    /// How long the first of them has been waiting, in milliseconds.
    pub oldest_wait_ms: f64,
    /// The largest that `length` has been since the start.
    pub longest: u64,
    /// How many there may be (`max_queue`).
    pub max: u64,
    /// Requests that were refused since the start because `max` were waiting.
    #[serde(default)]
    pub refused_full: u64,
    /// Requests that were refused because they would have waited longer than `timeouts.queue`.
    #[serde(default)]
    pub refused_early: u64,
    /// Requests that have waited for `timeouts.queue` in vain.
    #[serde(default)]
    pub expired: u64,
    /// With `fiber_paths`: how many of `length` wait for a fiber. Each kind has a queue of its own; the other numbers are of both: `max` their
    /// sum, `longest` and `oldest_wait_ms` the greater.
    #[serde(default)]
    pub for_fibers: Option<u64>,
}

impl ServerSnapshot {
    /// The native JSON shape, indented.
    ///
    /// # Errors
    /// None in practice: all keys are text and no number is infinite.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// Seconds since the start.
    pub fn uptime(&self) -> f64 {
        when::between(self.started_at, self.taken_at)
    }

    /// CPU time of all processes that run now, in milliseconds.
    pub fn total_cpu_ms(&self) -> u64 {
        self.workers.iter().map(|worker| worker.cpu_ms).fold(self.cpu_ms, u64::saturating_add)
    }

    /// Resident memory of all processes added up, in bytes; what is shared counts for each.
    pub fn total_rss_bytes(&self) -> u64 {
        self.workers.iter().map(|worker| worker.rss_bytes).fold(self.rss_bytes, u64::saturating_add)
    }

    /// Memory of all processes in bytes.
    pub fn total_pss_bytes(&self) -> u64 {
        self.workers.iter().map(|worker| worker.pss_bytes).fold(self.pss_bytes, u64::saturating_add)
    }
}

impl WorkerSnapshot {
    /// What serves its requests, in a word: threads or fibers, or seats where these are both.
    pub fn seats_word(&self) -> &'static str {
        match (self.fibers, self.fiber_paths) {
            (0, _) => "threads",
            (_, None) => "fibers",
            (_, Some(_)) => "seats",
        }
    }

    /// Busy seats of all: `2/5`, and with `fiber_paths` those of threads and those of fibers: `2/5+7/100`.
    pub fn seats_text(&self) -> String {
        let (busy, max) = self.of_threads();
        match self.fiber_paths {
            None => format!("{busy}/{max}"),
            Some(fibers) => format!("{busy}/{max}+{}/{}", fibers.busy, fibers.max),
        }
    }

    /// Busy seats and all, without those of the fibers that serve `fiber_paths`.
    pub fn of_threads(&self) -> (u32, u32) {
        let fibers = self.fiber_paths.unwrap_or_default();
        (self.busy_threads.saturating_sub(fibers.busy), self.threads_max.saturating_sub(fibers.max))
    }

    /// Seconds from its fork to `now`.
    pub fn uptime(&self, now: SystemTime) -> f64 {
        when::between(self.started_at, now)
    }
}

/// Reads `ruby 3.1.2`, `ruby 3.1.2p20` and what else begins like this.
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

    /// A server with `workers` workers, each with five threads of which two are busy and one request prefetched.
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
