//! Differences between Linux and other systems: the computing time of a thread.
//!
//! Contract: [`ThreadClock`] belongs to the thread that created it, and any thread may read it. It never goes back. Where the system has no such
//! clock, the time includes waiting for a processor.

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
pub(crate) use linux::*;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
pub(crate) use portable::*;
