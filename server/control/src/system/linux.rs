//! Linux.

use super::Program;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) const KEEPS_MODE: bool = true;
pub(crate) const PROGRAMS_ARE_KNOWN: bool = true;

pub(crate) fn program(pid: Pid) -> Option<Program> {
    let place = format!("/proc/{}", pid.as_raw_nonzero());
    // Empty for a process that has exited, and for kernel threads.
    let line = fs::read(format!("{place}/cmdline")).ok().filter(|line| !line.is_empty())?;
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let words = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    Some(Program { words, file: fs::read_link(format!("{place}/exe")).ok(), began: began(&place) })
}

/// Returns the start time of a process. The kernel reports it in clock ticks since the boot.
fn began(place: &str) -> Option<SystemTime> {
    let stat = fs::read_to_string(format!("{place}/stat")).ok()?;
    // The name is in parentheses and may contain anything. The start time is the 20th field after it.
    let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let machine = fs::read_to_string("/proc/stat").ok()?;
    let boot: u64 = machine.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let since =
        Duration::from_millis(ticks.checked_mul(1000)? / rustix::param::clock_ticks_per_second().max(1));
    Some(UNIX_EPOCH + Duration::from_secs(boot) + since)
}

pub(crate) fn listener(socket: impl AsFd) -> io::Result<Option<Pid>> {
    Ok(Some(rustix::net::sockopt::socket_peercred(socket)?.pid))
}

/// A handle that refers to the same process even if its id is reused.
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
