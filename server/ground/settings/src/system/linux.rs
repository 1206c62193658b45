//! The Linux part.

use rustix::thread::{CpuSet, sched_getaffinity};

/// The longest path that fits `sun_path` with its final NUL.
pub(crate) const MAX_SOCKET_PATH: usize = 107;

/// Returns the CPUs of the affinity mask, or `None` if it is unknown.
pub(crate) fn affinity() -> Option<Vec<usize>> {
    let set = sched_getaffinity(None).ok()?;
    Some((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}
