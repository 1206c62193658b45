//! Fibers, whose number is bounded by what the system gives a process.

use super::Facts;
use super::taker::Taker;
use crate::table::workers::FIBERS;
use crate::value::threads::Threads;

/// Most requests that a worker can be sent at a time: the number travels in 16 bits.
const SEATS: u64 = 65_535;
/// Memory maps of a fiber: its stack, and the page that guards it.
const MAPS: u64 = 2;
/// Memory maps that are left for everything else: Ruby, its extensions, the app's threads.
const OTHER_MAPS: u64 = 4_000;

/// Fibers of each thread; 0 for none.
pub(super) fn fibers(taker: &Taker<'_>, threads: Threads, facts: &Facts) -> u32 {
    let taken = taker.take(&FIBERS);
    let Some(fibers) = taken.value else { return 0 };
    if facts.attached {
        taker.warn(format!(
            "fibers has no effect: the threads of an attached server belong to your process ({})",
            taken.origin
        ));
        return 0;
    }
    let count = u64::from(threads.max);
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
        taker.conflict(
            &FIBERS.about,
            format!("{all} fibers in a worker ({count} threads of {fibers}) are too many: {why}; set fibers to {most} or less"),
        );
        return 0;
    }
    fibers as u32
}
