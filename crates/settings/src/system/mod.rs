//! What differs between Linux and other systems: which CPUs may be used, and how long the path of a socket may be.
//!
//! Control groups and `/proc` need nothing here: where their files are missing, nothing is known.

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
pub(crate) use linux::*;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
pub(crate) use portable::*;
