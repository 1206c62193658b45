//! What differs between Linux and other systems: who is at the other end of a socket, and which process a process id means.
//!
//! Contract:
//! 1. `KEEPS_MODE`: a socket's file takes its mode from the socket, so that there is no moment at which others may connect.
//! 2. `listener`: the process that listens at the other end; `None` where the system does not tell.
//! 3. [`Process::end`] sends TERM; `None` when there is no such process. [`Process::ended`] waits until that process has ended; `false` when
//!    the time is over.
//! 4. `program`: what a process is; `None` when there is no such process, or it has ended. `PROGRAMS_ARE_KNOWN`: whether the system tells it.

/// What a process is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Program {
    /// Its command line, or what it has put there.
    pub(crate) words: Vec<String>,
    /// The file that runs, if we may know.
    pub(crate) file: Option<std::path::PathBuf>,
    /// Since when.
    pub(crate) began: Option<std::time::SystemTime>,
}

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
pub(crate) use linux::*;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
pub(crate) use portable::*;
