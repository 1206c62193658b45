//! Fibers: their number is limited by the memory maps of a process.

use super::Facts;
use super::taker::Taker;
use crate::origin::Origin;
use crate::table::workers::{FIBER_PATHS, FIBERS};
use crate::value::threads::Threads;

/// The most concurrent requests of a worker: the protocol counts them in 16 bits.
const SEATS: u64 = 65_535;
/// Memory maps per fiber: its stack and the guard page.
const MAPS: u64 = 2;
/// Memory maps reserved for everything else: Ruby, its extensions, the app's threads.
const OTHER_MAPS: u64 = 4_000;

/// The most front threads that allow two links each to every worker.
const FRONT_THREADS: u32 = super::LINKS / 2;

/// Returns the number of fibers per thread (0: none) and the paths that they serve.
pub(super) fn fibers(
    taker: &Taker<'_>,
    threads: Threads,
    front_threads: u32,
    facts: &Facts,
) -> (u32, Vec<String>) {
    let (taken, paths) = (taker.take(&FIBERS), taker.take(&FIBER_PATHS));
    let written = !paths.value.is_empty();
    let Some(fibers) = taken.value else {
        if written && taken.origin == Origin::Default {
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
    if written && front_threads > FRONT_THREADS {
        taker.conflict(
            &FIBER_PATHS.about,
            format!("it takes front_threads of {FRONT_THREADS} or less, and there are {front_threads}"),
        );
    }
    // With `fiber_paths` there is one thread of fibers beside the plain threads.
    let count = if written { 1 } else { u64::from(threads.max) };
    let fits = facts.machine.max_map_count.map_or(u64::MAX, |maps| maps.saturating_sub(OTHER_MAPS) / MAPS);
    let all = fibers.saturating_mul(count);
    if all > SEATS.min(fits) {
        let most = SEATS.min(fits) / count.max(1);
        let why = if fits < SEATS {
            format!(
                "a process may have {} memory maps (vm.max_map_count), and a fiber takes {MAPS}",
                facts.machine.max_map_count.unwrap_or(0)
            )
        } else {
            format!("a worker serves at most {SEATS} requests at a time")
        };
        let of = if written { String::new() } else { format!(" ({count} threads of {fibers})") };
        taker.conflict(
            &FIBERS.about,
            format!("{all} fibers in a worker{of} are too many: {why}; set fibers to {most} or less"),
        );
        return (0, Vec::new());
    }
    (fibers as u32, paths.value)
}
