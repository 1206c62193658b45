//! Counters of the process, for what a measured request has used of them.

use crate::raw::gvl::Gvl;
use crate::raw::{os, ruby};

/// Readings of the process's counters, or their differences.
#[derive(Clone, Copy, Default)]
pub(crate) struct Gauge {
    /// The time in the garbage collector, in milliseconds: what Ruby tells.
    gc_ms: u64,
    /// The objects that were allocated.
    allocations: u64,
    /// Processor time, in microseconds; 0 when it is not needed.
    process_us: u64,
}

impl Gauge {
    /// Reads the counters. `shared`: other threads run Ruby, too, so that the processor time is needed to divide what is used.
    pub(crate) fn read(gvl: &Gvl, shared: bool) -> Gauge {
        let (gc_ms, allocations) = ruby::gc_figures(gvl);
        Gauge { gc_ms, allocations, process_us: if shared { os::process_us() } else { 0 } }
    }

    pub(crate) fn since(&self, earlier: &Gauge) -> Gauge {
        Gauge {
            gc_ms: self.gc_ms.saturating_sub(earlier.gc_ms),
            allocations: self.allocations.saturating_sub(earlier.allocations),
            process_us: self.process_us.saturating_sub(earlier.process_us),
        }
    }

    pub(crate) fn and(&self, other: &Gauge) -> Gauge {
        Gauge {
            gc_ms: self.gc_ms + other.gc_ms,
            allocations: self.allocations + other.allocations,
            process_us: self.process_us + other.process_us,
        }
    }

    /// Returns the microseconds in the collector and the number of objects that belong to a thread which has used `own_us` of the processor time. The
    /// counters are those of the process, so they are divided by processor time.
    pub(crate) fn part_of(&self, own_us: u64) -> (u64, u64) {
        let part = |of: u64| match self.process_us {
            0 => of,
            all => (u128::from(of) * u128::from(own_us.min(all)) / u128::from(all)) as u64,
        };
        (part(self.gc_ms * 1_000), part(self.allocations))
    }
}
