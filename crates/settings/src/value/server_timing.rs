//! Who is told where the time of a request went.

/// Whose `Firebrick-Timing` is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerTiming {
    /// That of clients on this machine.
    Local,
    /// Everybody's.
    Always,
    /// Nobody's.
    Off,
}
