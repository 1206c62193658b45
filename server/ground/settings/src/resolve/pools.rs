//! The pools of workers: the table `[pools]`, and `fibers` with `fiber_paths`.
//!
//! Contract: pools of threads come before pools of fibers, so that a Ruby without fibers has a beginning of the
//! list.

use super::ResolveContext;
use super::named::Reader;
use crate::kind::lists::{PathPrefixes, ThreadRange};
use crate::kind::numbers::Count;
use crate::kind::{Mistake, ValueKind};
use crate::origin::ValueSource;
use crate::table::taker::Taker;
use crate::table::workers::{FIBER_PATHS, FIBERS};
use crate::table::{limits, queue, timeouts};
use crate::value::pool::Pool;
use crate::value::threads::Threads;
use crate::value::workers::Workers;
use crate::written::{Written, WrittenValues};

/// The keys of a pool.
const KEYS: [&str; 8] = [
    "paths",
    "workers",
    "threads",
    "fibers",
    "limits.max_queue",
    "queue.fair",
    "timeouts.queue",
    "timeouts.worker",
];
/// The most concurrent requests of a worker.
const SEATS: u64 = 65_535;
/// Memory maps per fiber: its stack and the guard page.
const MAPS: u64 = 2;
/// Ruby, its extensions and the app's threads take so many memory maps at most.
const OTHER_MAPS: u64 = 4_000;
/// With `fiber_paths`: the number of workers of the default pool for each worker of fibers. Fibers mostly wait,
/// so that one process holds those of several.
const WORKERS_FOR_ONE: u32 = 4;
/// The least number of workers of fibers if there are that many workers: one call that stops the loop of a
/// worker, or the worker's death, leaves another.
const LEAST: u32 = 2;

/// Returns the number of fibers per thread of the default pool (0: none), and the other pools. The default pool
/// is `own`, whose `workers` are the most that it may have.
pub(super) fn pools(
    taker: &Taker<'_>,
    given: &WrittenValues,
    facts: &ResolveContext,
    own: &Pool,
) -> (u32, Vec<Pool>) {
    let most = most_fibers(facts);
    let mut pools: Vec<Pool> = Vec::new();
    for named in &given.pools {
        let reader = Reader { table: "pools", taker, named };
        if facts.attached {
            let problem = "it needs workers that the server starts, and this one is attached to your process";
            reader.refuse("", &named.written, problem.to_owned());
        } else if pools.len() == Pool::MOST {
            reader.refuse("", &named.written, format!("there can be {} pools or less", Pool::MOST));
            break;
        } else if let Some(pool) = reader.pool(own, &pools, most) {
            pools.push(pool);
        }
    }
    let (mut fibers, paths) = fibers(taker, facts, own, most);
    if !paths.is_empty() {
        let twice = pools.iter().find_map(|pool| {
            let path = pool.paths.iter().find(|path| paths.contains(path));
            match path {
                Some(path) => Some(format!("pools.{} has the path {path:?}, too", pool.name)),
                None if pool.name == Pool::FIBERS => Some("pools.fibers is the pool of this name".to_owned()),
                None => None,
            }
        });
        match twice {
            Some(problem) => taker.conflict(&FIBER_PATHS.about, problem),
            None => pools.push(of_fiber_paths(paths, fibers, own, most)),
        }
        fibers = 0;
    }
    pools.sort_by_key(|pool| pool.fibers > 0);
    (fibers, pools)
}

/// Returns the pool that `fiber_paths` makes, with as many fibers in all as `fibers` in each of the workers.
fn of_fiber_paths(paths: Vec<String>, fibers: u32, own: &Pool, most: u64) -> Pool {
    let all = u64::from(own.workers) * u64::from(fibers);
    let few = own.workers.div_ceil(WORKERS_FOR_ONE).max(LEAST).min(own.workers);
    let workers = few.max(all.div_ceil(most) as u32);
    Pool {
        name: Pool::FIBERS.to_owned(),
        paths,
        workers,
        threads: Threads { min: 1, max: 1 },
        fibers: all.div_ceil(u64::from(workers)) as u32,
        ..own.clone()
    }
}

/// Returns the number of fibers that fit in a process.
fn most_fibers(facts: &ResolveContext) -> u64 {
    let maps = facts.machine.max_map_count.unwrap_or(u64::MAX);
    SEATS.min(maps.saturating_sub(OTHER_MAPS) / MAPS)
}

/// Explains the number of fibers that fit in a process.
fn why_most(facts: &ResolveContext, most: u64) -> String {
    if most == SEATS {
        return format!("a worker serves at most {SEATS} requests at a time");
    }
    format!(
        "a process may have {} memory maps (vm.max_map_count), and a fiber takes {MAPS}",
        facts.machine.max_map_count.unwrap_or(0)
    )
}

/// Returns `fibers` and `fiber_paths`: the number of fibers per thread (0: none) and the paths that they serve.
fn fibers(taker: &Taker<'_>, facts: &ResolveContext, own: &Pool, most: u64) -> (u32, Vec<String>) {
    let (taken, paths) = (taker.take(&FIBERS), taker.take(&FIBER_PATHS));
    let written = !paths.value.is_empty();
    let Some(fibers) = taken.value else {
        if written && taken.origin == ValueSource::Default {
            let problem =
                "fibers is not set: set it to how many requests for these paths may be served at a time";
            taker.conflict(&FIBER_PATHS.about, problem);
        } else if written {
            taker.warn(format!(
                "fiber_paths ({}) has no effect, because fibers is off ({})",
                paths.origin, taken.origin
            ));
        }
        return (0, Vec::new());
    };
    if facts.attached {
        let (what, has) = if written { ("fibers and fiber_paths", "have") } else { ("fibers", "has") };
        taker.warn(format!(
            "{what} {has} no effect: the threads of an attached server belong to your process ({})",
            taken.origin
        ));
        return (0, Vec::new());
    }
    // A worker of `fiber_paths` has one thread.
    let count = if written { 1 } else { u64::from(own.threads.max) };
    let all = fibers.saturating_mul(count);
    if all > most {
        let fit = most / count.max(1);
        let of = if written { String::new() } else { format!(" ({count} threads of {fibers})") };
        let why = why_most(facts, most);
        taker.conflict(
            &FIBERS.about,
            format!("{all} fibers in a worker{of} are too many: {why}; set fibers to {fit} or less"),
        );
        return (0, Vec::new());
    }
    (fibers as u32, paths.value)
}

impl Reader<'_> {
    /// Reads a pool. Keys that it does not set have the values of `own`, the default pool, except for the number of
    /// workers, which is one.
    fn pool(&self, own: &Pool, others: &[Pool], most: u64) -> Option<Pool> {
        if !self.has_a_name() {
            return None;
        }
        let name = self.named.name.clone();
        if name == Pool::DEFAULT {
            let problem =
                "the pool of this name has all paths that no other pool has, and the ordinary settings";
            self.refuse("", &self.named.written, problem.to_owned());
            return None;
        }
        let mut pool = Pool { name, workers: 1, ..own.clone() };
        let (mut paths, mut threads) = (None, None);
        for (key, written) in &self.named.keys {
            match key.as_str() {
                "paths" => paths = Some((written, self.value(key, written, &PathPrefixes)?)),
                "workers" => {
                    pool.workers = self.value(key, written, &Count { min: 1, max: Workers::MOST.into() })?
                }
                "threads" => {
                    pool.threads = self.value(key, written, &ThreadRange)?;
                    threads = Some(written);
                }
                "fibers" => pool.fibers = self.value(key, written, &Count { min: 1, max: most })?,
                "limits.max_queue" => pool.max_queue = self.value(key, written, limits::max_queue.kind)?,
                "queue.fair" => pool.fair = self.value(key, written, queue::FAIR.kind)?,
                "timeouts.queue" => pool.queue = self.value(key, written, timeouts::queue.kind)?,
                "timeouts.worker" => pool.worker = self.value(key, written, timeouts::worker.kind)?,
                _ => self.unknown(key, written, &KEYS),
            }
        }
        let Some((written, paths)) = paths.filter(|(_, paths): &(_, Vec<String>)| !paths.is_empty()) else {
            let problem = format!("expected paths: {}", PathPrefixes.expected());
            self.refuse("", &self.named.written, problem);
            return None;
        };
        for other in others {
            if let Some(path) = paths.iter().find(|path| other.paths.contains(path)) {
                self.refuse("paths", written, format!("pools.{} has the path {path:?}, too", other.name));
            }
        }
        pool.paths = paths;
        if pool.fibers > 0 {
            if let Some(Written { origin, .. }) = threads {
                let fibers = self.named.keys.iter().find(|(key, _)| key == "fibers");
                fibers.into_iter().for_each(|(key, written)| {
                    self.refuse(
                        key,
                        written,
                        format!("a pool has threads or fibers, and threads is set as well ({origin})"),
                    );
                });
            }
            pool.threads = Threads { min: 1, max: 1 };
        }
        Some(pool)
    }

    fn value<T>(&self, key: &str, written: &Written, kind: &dyn ValueKind<T>) -> Option<T> {
        let refuse = |why: Mistake| {
            self.refuse(key, written, format!("expected {}", why.explain(&kind.expected())));
        };
        kind.read(&written.raw).map_err(refuse).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn no_worker_has_more_fibers_than_a_process_may() {
        let own = Pool { workers: 4, ..Settings::defaults(std::path::Path::new("/")).default_pool() };
        let pool = |most| of_fiber_paths(vec!["/a".to_owned()], 30_000, &own, most).to_string();
        assert_eq!(pool(SEATS), "2 workers x 60000 fibers for /a");
        assert_eq!(pool(30_765), "4 workers x 30000 fibers for /a");
    }
}
