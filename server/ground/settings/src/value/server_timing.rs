//! Clients that may request timings.

/// The clients whose `Firebrick-Timing` field is honoured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerTiming {
    Local,
    Always,
    Off,
}
