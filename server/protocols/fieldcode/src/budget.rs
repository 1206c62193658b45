//! Limits floods in HTTP/2 and HTTP/3 with budgets: a client may repeat actions that are cheap for it and
//! costly for the server only so often.
//!
//! Each kind has a number of units that may be spent at once, and a rate at which they refill. Useful work
//! also earns units, so a client that does much of it may do more of the rest. The numbers are far above the
//! usage of browsers, proxies and load generators, and far below harmful amounts.

use std::time::Instant;

/// The kind of a flood. Each kind has its own budget, which refills with time and with useful work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Flood {
    /// RST_STREAM, and STOP_SENDING of QUIC, before the response was complete (CVE-2023-44487).
    Resets,
    /// Errors that made the server reset streams (CVE-2025-8671).
    StreamErrors,
    /// A header section in too many frames or bytes (CONTINUATION), or too many unfinished sections (HTTP/3).
    Continuations,
    /// A header section far beyond the limits when decoded (HPACK bomb).
    Headers,
    Settings,
    Pings,
    /// PRIORITY and PRIORITY_UPDATE frames.
    Priorities,
    WindowUpdates,
    /// DATA frames with little or no data, and no end.
    SmallData,
    /// Empty HEADERS and CONTINUATION frames.
    EmptyHeaders,
    /// Frames of unknown types, and frames on closed streams.
    Ignored,
    /// Unidirectional streams of an unknown type, or without a type (HTTP/3).
    UnknownStreams,
    /// Control frames that the client has not read (acknowledgements and resets).
    Unread,
}

impl Flood {
    /// All kinds, in the order of their numbers (`flood as usize`).
    pub const ALL: [Flood; 13] = [
        Flood::Resets,
        Flood::StreamErrors,
        Flood::Continuations,
        Flood::Headers,
        Flood::Settings,
        Flood::Pings,
        Flood::Priorities,
        Flood::WindowUpdates,
        Flood::SmallData,
        Flood::EmptyHeaders,
        Flood::Ignored,
        Flood::UnknownStreams,
        Flood::Unread,
    ];

    /// Returns the reason for logs.
    pub fn name(self) -> &'static str {
        match self {
            Flood::Resets => "too many requests were cancelled by the client",
            Flood::StreamErrors => "too many streams with errors",
            Flood::Continuations => "header sections in too many frames or bytes",
            Flood::Headers => "a header section far beyond max_header_bytes or max_headers",
            Flood::Settings => "too many SETTINGS frames",
            Flood::Pings => "too many PING frames",
            Flood::Priorities => "too many PRIORITY or PRIORITY_UPDATE frames",
            Flood::WindowUpdates => "too many WINDOW_UPDATE frames",
            Flood::SmallData => "too many DATA frames with little or no data",
            Flood::EmptyHeaders => "too many empty HEADERS or CONTINUATION frames",
            Flood::Ignored => "too many frames of unknown types or on closed streams",
            Flood::UnknownStreams => "too many unidirectional streams of unknown types",
            Flood::Unread => "too many answers to control frames that the client does not read",
        }
    }
}

const KINDS: usize = Flood::ALL.len();

/// Units at once, and units per second; in the order of `Flood`.
const BUDGETS: [(u32, u32); KINDS] = [
    (256, 50),        // Resets
    (100, 10),        // StreamErrors
    (1, 0),           // Continuations: each section has its own bounds
    (1, 0),           // Headers: the same
    (50, 2),          // Settings
    (300, 100),       // Pings: some clients send one with each reset
    (300, 30),        // Priorities
    (4000, 1000),     // WindowUpdates
    (20_000, 20_000), // SmallData: an upload line by line is no flood
    (20, 1),          // EmptyHeaders
    (10_000, 500),    // Ignored
    (32, 1),          // UnknownStreams: clients open one or two, so that servers stay used to them
    (1000, 0),        // Unread: reset when the output is empty
];

/// DATA frames below this are small.
const SMALL_DATA: u64 = 64;
/// The cost of an empty DATA frame in the budget for small ones.
const EMPTY_DATA: u32 = 200;
/// DATA frames from this size on are useful work.
const USEFUL_DATA: u64 = 256;
/// The cost of a refused stream in the budget for ignored frames.
pub const REFUSED: u32 = 10;
/// The limit for the heads of all open streams of a connection, in multiples of max_header_bytes.
pub const HEADS: usize = 16;

/// The cost and the use of DATA frames.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DataFrames {
    cost: u32,
    useful: u32,
}

impl DataFrames {
    /// Counts one frame of `len` bytes.
    #[inline]
    pub fn one(len: u64) -> DataFrames {
        let mut frames = DataFrames::default();
        frames.count(len);
        frames
    }

    /// Removes the cost, for frames that end a stream.
    #[inline]
    #[must_use]
    pub fn without_cost(self) -> DataFrames {
        DataFrames { cost: 0, ..self }
    }

    /// Adds one frame of `len` bytes.
    #[inline]
    pub fn count(&mut self, len: u64) {
        match len {
            0 => self.cost = self.cost.saturating_add(EMPTY_DATA),
            1..SMALL_DATA => self.cost = self.cost.saturating_add(1),
            USEFUL_DATA.. => self.useful = self.useful.saturating_add(1),
            _ => {}
        }
    }
}

/// The spent units.
#[derive(Debug)]
pub struct FloodBudget {
    spent: [u32; KINDS],
    filled: Instant,
}

impl FloodBudget {
    /// Creates an unspent budget.
    pub fn new(now: Instant) -> FloodBudget {
        FloodBudget { spent: [0; KINDS], filled: now }
    }

    /// Returns the units that the elapsed time has earned.
    #[inline]
    pub fn refill(&mut self, now: Instant) {
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
    /// No units are left: this is a flood.
    #[inline]
    pub fn spend(&mut self, kind: Flood, units: u32) -> Result<(), Flood> {
        let spent = &mut self.spent[kind as usize];
        *spent = spent.saturating_add(units);
        if *spent > BUDGETS[kind as usize].0 { Err(kind) } else { Ok(()) }
    }

    /// Counts DATA frames.
    ///
    /// # Errors
    /// There were too many small ones.
    #[inline]
    pub fn data(&mut self, frames: DataFrames) -> Result<(), Flood> {
        if frames.useful > 0 {
            self.earn(Flood::Pings, frames.useful);
            self.earn(Flood::SmallData, frames.useful);
        }
        if frames.cost > 0 { self.spend(Flood::SmallData, frames.cost) } else { Ok(()) }
    }

    /// Returns units.
    #[inline]
    pub fn earn(&mut self, kind: Flood, units: u32) {
        let spent = &mut self.spent[kind as usize];
        *spent = spent.saturating_sub(units);
    }

    /// Rewards a response that was sent completely.
    #[inline]
    pub fn earn_response(&mut self) {
        for spent in &mut self.spent[..Flood::Unread as usize] {
            *spent = spent.saturating_sub(1);
        }
    }
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
            let mut budget = FloodBudget::new(start);
            assert_eq!(budget.spend(kind, units), Ok(()));
            assert_eq!(budget.spend(kind, 1), Err(kind));
            budget.earn(kind, 2);
            assert_eq!(budget.spend(kind, 1), Ok(()));
            budget.refill(start + Duration::from_millis(2999));
            assert_eq!(budget.spend(kind, (2 * rate).min(units)), Ok(()));
            assert!(budget.spend(kind, 1).is_err() || 2 * rate >= units);
        }
    }
}
