//! Differences between Linux and other systems: the usable CPUs, and the maximum length of a socket path.
//!
//! Control groups and `/proc` need nothing here: a missing file means that the value is unknown.

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
pub(crate) use linux::*;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
pub(crate) use portable::*;
