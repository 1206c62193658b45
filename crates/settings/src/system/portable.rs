//! Elsewhere.

/// The longest path that fits `sun_path` with its final NUL.
pub(crate) const MAX_SOCKET_PATH: usize = 103;

/// All CPUs may be used.
pub(crate) fn affinity() -> Option<Vec<usize>> {
    None
}
