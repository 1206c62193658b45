//! Numbers of processes and threads.

use super::entry::{Category, entries, long, short};
use crate::kind::lists::ThreadRange;
use crate::kind::numbers::{Count, Size};
use crate::kind::wrappers::Auto;
use crate::value::threads::Threads;

entries! { Category::Workers;
    /// Worker processes
    WORKERS: Option<u32> = Auto(Count { min: 1, max: 1024 }), {
        key: "workers",
        flags: &[short('w', "workers", "N|auto")],
        env: &["WEB_CONCURRENCY"],
        default: "auto",
        more: "auto is one per CPU that may be used (affinity and the cgroup's CPU quota), as long as the memory \
               limit has room for worker_memory_estimate each. At least one worker always runs.",
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
    /// Event-loop threads of the front
    FRONT_THREADS: Option<u32> = Auto(Count { min: 1, max: 256 }), {
        key: "front_threads",
        flags: &[long("front-threads", "N|auto")],
        default: "auto",
        more: "auto is one per CPU that may be used, at most 16.",
    }
    /// Memory that `workers = \"auto\"` assumes for each worker
    WORKER_MEMORY_ESTIMATE: u64 = Size { min: 1 << 20, max: 1 << 40 }, {
        key: "worker_memory_estimate",
        flags: &[long("worker-memory-estimate", "SIZE")],
        default: "256MiB",
    }
}
