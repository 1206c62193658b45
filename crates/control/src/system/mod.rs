//! What differs between Linux and other systems: who is at the other end of a socket, and which process a process id means.
//!
//! Contract:
//! 1. `KEEPS_MODE`: a socket's file takes its mode from the socket, so that there is no moment at which others may connect.
//! 2. `listener`: the process that listens at the other end; `None` where the system does not tell.
//! 3. [`Process::end`] sends TERM; `None` when there is no such process. [`Process::ended`] waits until that process has ended; `false` when
//!    the time is over.

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
pub(crate) use linux::*;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
pub(crate) use portable::*;
