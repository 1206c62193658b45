//! Systems other than Linux.

use super::Program;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The interval between two checks whether a process has exited.
const LOOK: Duration = Duration::from_millis(20);

pub(crate) const KEEPS_MODE: bool = false;
pub(crate) const PROGRAMS_ARE_KNOWN: bool = false;

pub(crate) fn program(_pid: Pid) -> Option<Program> {
    None
}

pub(crate) fn listener(_socket: impl AsFd) -> io::Result<Option<Pid>> {
    Ok(None)
}

/// The system has no better handle for a process than its id.
pub(crate) struct Process(Pid);

impl Process {
    pub(crate) fn end(pid: Pid) -> Result<Option<Process>, Errno> {
        match kill_process(pid, Signal::TERM) {
            Ok(()) => Ok(Some(Process(pid))),
            Err(Errno::SRCH) => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub(crate) fn ended(&self, wait: Duration) -> Result<bool, String> {
        let until = Instant::now() + wait;
        while test_kill_process(self.0).is_ok() {
            if Instant::now() >= until {
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
        Ok(true)
    }
}
