//! The pause of a user between two requests.

use std::time::Duration;

/// The time between a response and the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Think {
    /// No pause.
    None,
    Fixed(Duration),
    /// Uniformly distributed between 0 and this (siege's `-d`).
    UpTo(Duration),
}

impl Think {
    /// Returns the length of the next pause.
    pub(crate) fn pause(self) -> Duration {
        match self {
            Think::None => Duration::ZERO,
            Think::Fixed(pause) => pause,
            Think::UpTo(most) => most.mul_f64(fastrand::f64()),
        }
    }
}
