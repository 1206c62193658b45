//! Who may request timings.

/// Whose `Firebrick-Timing` is honoured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerTiming {
    /// Clients on this machine.
    Local,
    /// All clients.
    Always,
    /// No client.
    Off,
}
