//! On Linux.

use rustix::thread::{CpuSet, sched_getaffinity};

/// The longest path that fits `sun_path` with its final NUL.
pub(crate) const MAX_SOCKET_PATH: usize = 107;

/// The CPUs of the affinity mask; `None` when it is unknown.
pub(crate) fn affinity() -> Option<Vec<usize>> {
    let set = sched_getaffinity(None).ok()?;
    Some((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}
