//! Differences between Linux and other systems: the CPUs of a thread, and the processes of a server.
//!
//! Contract:
//! 1. `divide` returns three sets: all CPUs on which the calling thread may run, the given number of them for the server, and the others;
//!    `None` where that is not possible. `run_on` moves the calling thread, and the processes that it starts, to the CPUs of a set. A
//!    failure shows in the results.
//! 2. `running`: all processes that have not ended; `started`: see [`Stat::started`]; `memory_of`: 0 if unknown.

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
pub(crate) use linux::*;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
pub(crate) use portable::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) group: i32,
    /// CPU time in ticks, including that of reaped children; 0 if unknown.
    pub(crate) ticks: u64,
    /// The start time in ticks since boot; together with the pid it identifies a process uniquely. 0 if unknown.
    pub(crate) started: u64,
}

/// Memory of a set of processes in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Proportional set size: shared pages are divided among the processes that share them.
    pub(crate) pss: u64,
    /// Resident set size: shared pages count for each process.
    pub(crate) rss: u64,
}
