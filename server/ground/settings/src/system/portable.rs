//! The part for other systems.

/// The longest path that fits `sun_path` with its final NUL.
pub(crate) const MAX_SOCKET_PATH: usize = 103;

/// Returns `None`: all CPUs may be used.
pub(crate) fn affinity() -> Option<Vec<usize>> {
    None
}
