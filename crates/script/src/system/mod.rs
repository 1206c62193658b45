//! What differs between Linux and other systems: how long a thread has computed.
//!
//! Contract: [`ThreadClock`] is that of the thread that has made it, and any thread may read it. It never goes back. Where the system does not
//! tell, time passes also while the thread waits for a processor.

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
pub(crate) use linux::*;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
pub(crate) use portable::*;
