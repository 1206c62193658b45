//! Numbers of processes and threads.

use super::entry::{Category, entries, long, short};
use crate::kind::lists::{Objectives, PathPrefixes, ThreadRange, WorkerRange};
use crate::kind::numbers::{Count, Size};
use crate::kind::texts::Switch;
use crate::kind::wrappers::{Auto, OrOff};
use crate::value::slo::Slo;
use crate::value::threads::Threads;
use crate::value::workers::Workers;

entries! { Category::Workers;
    /// Number of worker processes: N, MIN:MAX or auto
    WORKERS: Option<Workers> = Auto(WorkerRange), {
        key: "workers",
        flags: &[short('w', "workers", "N|RANGE|auto")],
        env: &["WEB_CONCURRENCY"],
        default: "auto",
        default_shown: Some("auto; 1 in development"),
        more: "auto starts one worker per available CPU (affinity and the cgroup's CPU quota), but no more than the memory limit allows at \
               worker_memory_estimate each, and at least one. With MIN:MAX the \
               number follows the load (docs/workers.md): it starts at MIN, grows while requests wait and CPU and \
               memory are free, and shrinks when fewer are needed; in development it stays at MIN. A reload can raise the number to \
               the maximum at the start of the server, or to 12 if that is more; higher numbers need a restart.",
        reloadable: true,
        reload_only: true,
        known_as: &["processes", "worker_processes", "cluster"],
    }
    /// Number of threads per worker: MIN:MAX or one number
    THREADS: Threads = ThreadRange, {
        key: "threads",
        flags: &[short('t', "threads", "RANGE")],
        env: &["RAILS_MAX_THREADS", "RAILS_MIN_THREADS"],
        default: "1:3",
        more: "RAILS_MAX_THREADS sets the maximum and RAILS_MIN_THREADS the minimum. If the other bound comes from a source of lower precedence \
               and contradicts it, the server adjusts the other bound.",
        known_as: &["max_threads", "min_threads"],
    }
    /// Number of fibers per thread; each fiber serves one request
    FIBERS: Option<u64> = OrOff(Count { min: 0, max: 65_535 }), {
        key: "fibers",
        flags: &[long("fibers", "N|off")],
        default: "off",
        more: "A waiting request (for a database, another service, a sleep) then takes some kilobytes instead of a thread, so a \
               worker can hold thousands of them. The requests of a thread take turns when they wait, so the app must support that; Rails needs \
               config.active_support.isolation_level = :fiber. docs/fibers.md describes when to choose threads, processes or fibers. \
               Not available for an attached server.",
    }
    /// Paths whose requests run in fibers; other requests run in threads
    FIBER_PATHS: Vec<String> = PathPrefixes, {
        key: "fiber_paths",
        flags: &[long("fiber-paths", "PATHS")],
        env: &["FIREBRICK_FIBER_PATHS"],
        default_shown: Some("all, if `fibers` is set"),
        more: "A short form of a pool named fibers (docs/pools.md). The pool has `workers` x `fibers` fibers in total, in one worker per \
               four `workers`, but at least two workers if `workers` is at least two: docs/fibers.md. Each path includes all paths below it: /events matches \
               /events and /events/1, but not /eventsource. The server compares the paths with the app's PATH_INFO, which is not decoded: /%65vents is another path. Separate paths with commas or repeat the flag. A reload can change the list, but \
               adding the first path or removing the last one needs a restart.",
        reloadable: true,
        reload_only: true,
        known_as: &["fibers.paths", "fiber_path"],
    }
    /// Objective of response times, which workers and threads follow
    SLO: Option<Slo> = OrOff(Objectives), {
        key: "slo",
        flags: &[long("slo", "OBJECTIVE")],
        env: &["FIREBRICK_SLO"],
        default: "off",
        more: "With \"p95 < 200ms\", 95 of 100 responses are to begin within 200 ms after the request is complete. The server starts with \
               `workers` and `threads`, and changes both while it serves, in trials that it takes back if they do not help, within shape.workers \
               and shape.threads. When nothing helps, it refuses the requests that would miss the objective (503). `firebrick shape` \
               shows each step with its reason. It concerns the default pool, and has no effect in an attached server. Without it, `workers` and \
               `threads` count again. docs/shape.md has the rules.",
        reloadable: true,
        known_as: &["objective", "service_level_objective", "target_latency"],
    }
    /// Bounds of the threads in use in each worker, with slo
    SHAPE_THREADS: Option<Threads> = Auto(ThreadRange), {
        key: "shape.threads",
        flags: &[long("shape-threads", "RANGE|auto")],
        env: &["FIREBRICK_SHAPE_THREADS"],
        default: "auto",
        more: "auto is `threads` if that is written as a range, else 1:64; never more than Active Record's pool has connections. An \
               app that is not thread-safe needs 1. With fibers the bounds have no effect. A running worker keeps the threads of its start: \
               `firebrick reload` brings more, up to 64, or up to the maximum at the start of the server if that is more.",
        reloadable: true,
    }
    /// Bounds of the number of workers, with slo
    SHAPE_WORKERS: Option<Workers> = Auto(WorkerRange), {
        key: "shape.workers",
        flags: &[long("shape-workers", "RANGE|auto")],
        env: &["FIREBRICK_SHAPE_WORKERS"],
        default: "auto",
        more: "auto is `workers` if that is written as a range, else from 1 to one per available CPU, or `workers` if that is more. \
               CPU and memory are limits as well.",
        reloadable: true,
    }
    /// Begin with the shape of the last run, with slo
    SHAPE_KEEP: bool = Switch, {
        key: "shape.keep",
        flags: &[long("shape-keep", "on|off")],
        env: &["FIREBRICK_SHAPE_KEEP"],
        default: "on",
        more: "What the server has learnt is kept in `shapes` in $STATE_DIRECTORY, $XDG_STATE_HOME/firebrick or ~/.local/state/firebrick, \
               and the next start or upgrade begins with it, if the objective, the bounds, the numbers of the start, CPUs and memory are the same.",
        reloadable: true,
    }
    /// Number of event-loop threads of the front process
    FRONT_THREADS: Option<u32> = Auto(Count { min: 1, max: 256 }), {
        key: "front_threads",
        flags: &[long("front-threads", "N|auto")],
        default: "auto",
        more: "auto is three quarters of the available CPUs, because the app's workers need the rest; without an app, or with hub.path, it is all CPUs. At most 16.",
    }
    /// Assumed memory of a worker until the server has measured it
    WORKER_MEMORY_ESTIMATE: u64 = Size { min: 1 << 20, max: 1 << 40 }, {
        key: "worker_memory_estimate",
        flags: &[long("worker-memory-estimate", "SIZE")],
        default: "256MiB",
        more: "The server uses the estimate to choose the number for workers = \"auto\", and to warn of a range of workers that does not fit in \
               memory. With a range, the server then uses the measured memory of its workers.",
        reloadable: true,
        reload_only: true,
    }
}
