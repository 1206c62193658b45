//! On Linux.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

pub(crate) const KEEPS_MODE: bool = true;

pub(crate) fn listener(socket: impl AsFd) -> io::Result<Option<Pid>> {
    Ok(Some(rustix::net::sockopt::socket_peercred(socket)?.pid))
}

/// Its id may be used again; this is still the same process.
pub(crate) struct Process(OwnedFd);

impl Process {
    pub(crate) fn end(pid: Pid) -> Result<Option<Process>, Errno> {
        let sent = pidfd_open(pid, PidfdFlags::empty()).and_then(|process| {
            pidfd_send_signal(&process, Signal::TERM)?;
            Ok(process)
        });
        match sent {
            Ok(process) => Ok(Some(Process(process))),
            Err(Errno::SRCH) => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub(crate) fn ended(&self, wait: Duration) -> Result<bool, String> {
        let time = Timespec::try_from(wait).map_err(|e| e.to_string())?;
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&time)) {
            Ok(count) => Ok(count > 0),
            Err(Errno::INTR) => Ok(false),
            Err(e) => Err(format!("cannot wait for the process: {e}")),
        }
    }
}
