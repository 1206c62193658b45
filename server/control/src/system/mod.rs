//! The differences between Linux and other systems: the process at the other end of a socket, and the identity of a process.
//!
//! Contract:
//! 1. `KEEPS_MODE`: a socket's file takes its mode from the socket, so that no other user can connect at any moment.
//! 2. `listener`: returns the process that listens at the other end; `None` if the system does not tell.
//! 3. [`Process::end`] sends TERM; `None` if there is no such process. [`Process::ended`] waits until the
//!    process has exited; `false` on time-out.
//! 4. `program`: returns the program of a process; `None` if there is no such process, or it has exited.
//!    `PROGRAMS_ARE_KNOWN`: whether the system tells the program.

/// The program of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Program {
    /// The command line, or the title that the process has set.
    pub(crate) words: Vec<String>,
    /// The executable file, if this user may see it.
    pub(crate) file: Option<std::path::PathBuf>,
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
