//! Numbers of processes and threads.

use super::entry::{Category, entries, long, short};
use crate::kind::lists::{PathPrefixes, ThreadRange, WorkerRange};
use crate::kind::numbers::{Count, Size};
use crate::kind::wrappers::{Auto, OrOff};
use crate::value::threads::Threads;
use crate::value::workers::Workers;

entries! { Category::Workers;
    /// Worker processes: a number, MIN:MAX, or auto
    WORKERS: Option<Workers> = Auto(WorkerRange), {
        key: "workers",
        flags: &[short('w', "workers", "N|RANGE|auto")],
        env: &["WEB_CONCURRENCY"],
        default: "auto",
        default_shown: Some("auto; 1 in development"),
        more: "auto is one per CPU that may be used (affinity and the cgroup's CPU quota), as long as the memory \
               limit has room for worker_memory_estimate each. At least one worker always runs. With MIN:MAX the \
               number follows the load (docs/workers.md): it starts with MIN, grows while requests wait and CPU and \
               memory have room, and shrinks when fewer are needed; in development it stays at MIN. A reload raises it up to \
               the largest number that the server started with, or 12 if that is more; beyond that it needs a restart.",
        reloadable: true,
        known_as: &["processes", "worker_processes", "cluster"],
    }
    /// Threads of each worker, MIN:MAX or one number
    THREADS: Threads = ThreadRange, {
        key: "threads",
        flags: &[short('t', "threads", "RANGE")],
        env: &["RAILS_MAX_THREADS", "RAILS_MIN_THREADS"],
        default: "1:3",
        more: "Each of the two variables sets its half. If the other half comes from a weaker source and contradicts it, \
               the other half is adjusted.",
        known_as: &["max_threads", "min_threads"],
    }
    /// Fibers of each thread; each serves a request
    FIBERS: Option<u64> = OrOff(Count { min: 0, max: 65_535 }), {
        key: "fibers",
        flags: &[long("fibers", "N|off")],
        default: "off",
        more: "Requests that wait (for a database, another service, a sleep) then cost some kilobytes each instead of a thread, and a \
               worker holds thousands of them. The app must not mind that requests of one thread take turns where they wait; Rails needs \
               config.active_support.isolation_level = :fiber. docs/fibers.md tells when threads, processes or fibers are the better \
               choice. Not for an attached server.",
    }
    /// Paths whose requests run in fibers; all others run in plain threads
    FIBER_PATHS: Vec<String> = PathPrefixes, {
        key: "fiber_paths",
        flags: &[long("fiber-paths", "PATHS")],
        env: &["FIREBRICK_FIBER_PATHS"],
        default_shown: Some("all, if `fibers` is set"),
        more: "Each path stands for itself and all below it: /events for /events and /events/1, not for /eventsource. A worker then has its \
               threads, as without fibers, and one more thread with `fibers` fibers. It is compared with PATH_INFO as the app gets \
               it, not decoded: /%65vents is another path. Separate paths with commas or repeat the flag. A reload changes the list; from \
               none to some, or back, takes a restart: docs/fibers.md.",
        reloadable: true,
        known_as: &["fibers.paths", "fiber_path"],
    }
    /// Event-loop threads of the front
    FRONT_THREADS: Option<u32> = Auto(Count { min: 1, max: 256 }), {
        key: "front_threads",
        flags: &[long("front-threads", "N|auto")],
        default: "auto",
        more: "auto is three quarters of the CPUs that may be used, as the workers of an app need the rest; without an app it is all of them. At most 16.",
    }
    /// Memory that is assumed for each worker before any is measured
    WORKER_MEMORY_ESTIMATE: u64 = Size { min: 1 << 20, max: 1 << 40 }, {
        key: "worker_memory_estimate",
        flags: &[long("worker-memory-estimate", "SIZE")],
        default: "256MiB",
        more: "It decides what workers = \"auto\" means, and whether a range of workers is warned of. A server with a range \
               goes by the measured memory of its workers.",
        reloadable: true,
    }
}
