//! How many processes and threads share the work.

use super::entry::{Category, entries, long, short};
use crate::kind::lists::ThreadRange;
use crate::kind::numbers::{Count, Size};
use crate::kind::wrappers::Auto;

entries! { Category::Workers;
    WORKERS: Auto<Count> = Auto(Count { min: 1, max: 1024 }), {
        key: "workers",
        flags: &[short('w', "workers", "N|auto")],
        env: &["WEB_CONCURRENCY"],
        default: "auto",
        doc: "Ruby processes",
        more: "auto is one per CPU that may be used (affinity and the cgroup's CPU quota), as long as the memory \
               limit has room for worker_memory_estimate each. At least one worker always runs.",
        known_as: &["processes", "worker_processes", "cluster"],
    }
    THREADS: ThreadRange = ThreadRange, {
        key: "threads",
        flags: &[short('t', "threads", "RANGE")],
        env: &["RAILS_MAX_THREADS", "RAILS_MIN_THREADS"],
        default: "1:3",
        doc: "Threads of each worker, MIN:MAX or one number",
        more: "Each of the two variables sets its half; if the other half, from a weaker place, contradicts it, that \
               one follows.",
        known_as: &["max_threads", "min_threads"],
    }
    FRONT_THREADS: Auto<Count> = Auto(Count { min: 1, max: 256 }), {
        key: "front_threads",
        flags: &[long("front-threads", "N|auto")],
        default: "auto",
        doc: "Event-loop threads that speak HTTP",
        more: "auto is one per CPU that may be used, at most 16.",
    }
    WORKER_MEMORY_ESTIMATE: Size = Size { min: 1 << 20, max: 1 << 40 }, {
        key: "worker_memory_estimate",
        flags: &[long("worker-memory-estimate", "SIZE")],
        default: "256MiB",
        doc: "Memory that `workers = \"auto\"` counts for each worker",
    }
}
