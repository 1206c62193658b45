//! Budgets against floods: what costs a client little and the server something may be done only so often.
//!
//! Each kind has a number of units that may be spent at once, and a rate at which they come back. Useful work gives some back
//! as well, so that a client which does much of it may do more of the rest. The numbers are far above what browsers, proxies
//! and load generators do, and far below what hurts.

use crate::error::{ConnectionError, ErrorCode, Flood};
use std::time::Instant;

const KINDS: usize = Flood::ALL.len();

/// Units at once, and units a second; in the order of `Flood`.
const BUDGETS: [(u32, u32); KINDS] = [
    (256, 50),     // Resets
    (100, 10),     // StreamErrors
    (1, 0),        // Continuations: each section has its own bounds
    (1, 0),        // Headers: the same
    (50, 2),       // Settings
    (300, 20),     // Pings
    (300, 30),     // Priorities
    (4000, 1000),  // WindowUpdates
    (2000, 500),   // SmallData
    (20, 1),       // EmptyHeaders
    (10_000, 500), // Ignored
    (1000, 0),     // Unread: reset when the output is empty
];

/// What has been spent.
#[derive(Debug)]
pub(crate) struct Budget {
    spent: [u32; KINDS],
    filled: Instant,
}

impl Budget {
    pub(crate) fn new(now: Instant) -> Budget {
        Budget { spent: [0; KINDS], filled: now }
    }

    /// Gives back what the time has earned.
    #[inline]
    pub(crate) fn refill(&mut self, now: Instant) {
        let seconds = now.saturating_duration_since(self.filled).as_secs();
        if seconds > 0 {
            self.filled = now;
            let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
            for (spent, (_, rate)) in self.spent.iter_mut().zip(BUDGETS) {
                *spent = spent.saturating_sub(rate.saturating_mul(seconds));
            }
        }
    }

    /// Spends units.
    ///
    /// # Errors
    /// There are none left: it is a flood.
    #[inline]
    pub(crate) fn spend(&mut self, kind: Flood, units: u32) -> Result<(), ConnectionError> {
        let spent = &mut self.spent[kind as usize];
        *spent = spent.saturating_add(units);
        if *spent > BUDGETS[kind as usize].0 { Err(flood(kind)) } else { Ok(()) }
    }

    /// Gives units back.
    #[inline]
    pub(crate) fn earn(&mut self, kind: Flood, units: u32) {
        let spent = &mut self.spent[kind as usize];
        *spent = spent.saturating_sub(units);
    }

    /// A response was sent to its end.
    #[inline]
    pub(crate) fn earn_response(&mut self) {
        for spent in &mut self.spent[..Flood::Unread as usize] {
            *spent = spent.saturating_sub(1);
        }
    }
}

/// The error that a flood is.
#[cold]
pub(crate) fn flood(kind: Flood) -> ConnectionError {
    ConnectionError { code: ErrorCode::ENHANCE_YOUR_CALM, reason: kind.name(), flood: Some(kind) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn budgets_end_and_come_back() {
        let start = Instant::now();
        for kind in Flood::ALL {
            let (units, rate) = BUDGETS[kind as usize];
            let mut budget = Budget::new(start);
            assert_eq!(budget.spend(kind, units), Ok(()));
            assert_eq!(budget.spend(kind, 1).map_err(|error| error.flood), Err(Some(kind)));
            budget.earn(kind, 2);
            assert_eq!(budget.spend(kind, 1), Ok(()));
            budget.refill(start + Duration::from_millis(2999));
            assert_eq!(budget.spend(kind, (2 * rate).min(units)), Ok(()));
            assert!(budget.spend(kind, 1).is_err() || 2 * rate >= units);
        }
    }
}
