//! `MIN:MAX` threads of a worker.

/// Threads of each worker: `min` are started at once, more up to `max` when needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threads {
    /// At least 1, at most `max`.
    pub min: u16,
    /// 1 to 512.
    pub max: u16,
}
