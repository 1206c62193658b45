//! The figures of a queue.

use crate::waits::Waits;

/// The number of requests that got no seat, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refusals {
    /// `max_queue` requests were waiting.
    pub full: u64,
    /// The predicted wait was too long.
    pub early: u64,
    /// The request waited for too long.
    pub expired: u64,
}

/// The load since the last call of [`Dispatch::take_load`](crate::Dispatch::take_load).
#[derive(Debug, Clone, Default)]
pub struct Load {
    /// The waits of the requests that got a seat.
    pub waits: Waits,
    /// The time in the app of the requests whose waits for the GVL were measured, in microseconds.
    pub app_us: u64,
    /// The GVL waits of those requests, in microseconds.
    pub gvl_us: u64,
    /// The number of those requests.
    pub measured: u32,
}
