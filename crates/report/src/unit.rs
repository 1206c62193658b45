//! What a figure measures, and so how it is written: with a unit, at most three significant digits, thousands apart.

use serde::{Deserialize, Serialize};

/// The measure of a figure. Values are always in the unit named; how they are shown follows from their size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A plain number: `12,300`, `0.25`.
    #[default]
    Number,
    /// How many; ticks are whole numbers.
    Count,
    /// Milliseconds, shown as `250 µs`, `12.3 ms`, `1.5 s`.
    Milliseconds,
    /// Seconds of a clock that started with the run, shown as `30 s`, `2 min`, `1:30 min`, `1 h`.
    Seconds,
    /// Seconds since 1970, shown as `14:05` or `14:05:30`, in UTC; add the zone's offset to the value for another zone.
    Clock,
    /// Bytes, shown as `512 KiB`, `64 MiB`.
    Bytes,
    /// A part of one, shown as `42 %`.
    Fraction,
    /// Events per second, shown as `12,300/s`.
    PerSecond,
    /// Events per minute, shown as `375/min`.
    PerMinute,
    /// Any other, written behind the number: `cores`.
    Named(String),
}
