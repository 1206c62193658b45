//! Systems other than Linux. The contracts are in the modules that publish these functions.
#![cfg_attr(all(test, not(firebrick_portable)), allow(dead_code))] // Tests on Linux compare some of it.

use crate::other_side::{Delivery, inet};
use crate::proc::{ProcessMemory, RunningProgram, Stat};
use rustix::io::{Errno, FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::net::{RecvFlags, SendFlags, acceptfrom};
use rustix::process::{Pid, Signal, test_kill_process};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

// Sockets.

pub const NO_SIGNAL: SendFlags = SendFlags::empty();
pub const MORE: SendFlags = SendFlags::empty();
pub const ARRIVES_CLOSED_ON_EXEC: RecvFlags = RecvFlags::empty();
pub const LONGEST_PATH: usize = 103;
pub const FILE_KEEPS_MODE: bool = false;
pub const SPREADS: bool = false;

pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    Ok((ours, theirs))
}

/// Sets the flag after the fact: a process that another thread starts before this call inherits the
/// descriptor, because there is no flag that closes the gap.
pub fn close_on_exec(arrived: OwnedFd) -> OwnedFd {
    // Cannot fail for an open descriptor.
    let _ = fcntl_setfd(&arrived, FdFlags::CLOEXEC);
    arrived
}

/// Uses three calls.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, std::net::SocketAddr)> {
    let (socket, address) = acceptfrom(listener)?;
    fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    ioctl_fionbio(&socket, true)?;
    Ok((socket, inet(address)?))
}

/// Bytes of a file that are read for one send.
const SLICE: usize = 64 << 10;

thread_local!(static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) });

/// Reads and sends a slice. Bytes that the socket does not take are read again next time.
pub fn send_file(socket: BorrowedFd<'_>, file: &File, offset: u64, len: usize) -> io::Result<usize> {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.resize(SLICE, 0);
        let slice = &mut scratch[..len.min(SLICE)];
        let read = file.read_at(slice, offset)?;
        if read == 0 {
            return Ok(0);
        }
        loop {
            match rustix::net::send(socket, &slice[..read], NO_SIGNAL) {
                Err(Errno::INTR) => {}
                sent => return Ok(sent?),
            }
        }
    })
}

pub fn delivery(_socket: impl AsFd) -> Option<Delivery> {
    None
}

pub fn bound_unsent(_socket: impl AsFd, _bytes: u32) {}

pub fn defer_accept(_listener: impl AsFd, _wait: Duration) {}

pub fn wait_for_end(_socket: impl AsFd, _time: Duration) {}

pub fn abandon_after(_socket: impl AsFd, _time: Duration) {}

pub fn do_not_pace(_socket: impl AsFd) {}

pub fn is_listener(_socket: impl AsFd) -> bool {
    true
}

pub fn peer(_socket: impl AsFd) -> io::Result<Option<Pid>> {
    Ok(None)
}

pub fn abstract_address(_name: &[u8]) -> io::Result<SocketAddr> {
    Err(io::Error::other("this system knows no abstract sockets"))
}

pub fn listener_of(_port: u16) -> Option<String> {
    None
}

pub fn listening_paths() -> Vec<PathBuf> {
    Vec::new()
}

// Files.

pub fn unnamed(dir: &Path) -> io::Result<File> {
    crate::unlinked::create(dir)
}

pub fn is_in_memory(_dir: &Path) -> bool {
    false
}

pub fn in_memory(_name: &str) -> io::Result<File> {
    unnamed(&std::env::temp_dir())
}

pub fn read_cached(_file: &File, _offset: u64, _buffer: &mut [u8]) -> io::Result<usize> {
    Err(ErrorKind::Unsupported.into())
}

// Processes.

pub const PROGRAMS_ARE_KNOWN: bool = false;
pub const BY_DESCRIPTOR: bool = false;
pub const DESCRIPTORS: &str = "/dev/fd";
/// The same signal as in Ruby. Not every system has SIGPWR.
#[cfg(target_os = "linux")]
pub const DUMP: (&str, Signal) = ("PWR", Signal::POWER);
#[cfg(not(target_os = "linux"))]
pub const DUMP: (&str, Signal) = ("INFO", Signal::INFO);

pub fn own_program() -> io::Result<PathBuf> {
    std::env::current_exe()
}

/// Asks ps(1), which takes milliseconds. Returns `R` if ps cannot be run.
pub fn state(pid: u32) -> Option<u8> {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    if test_kill_process(number) == Err(Errno::SRCH) {
        return None;
    }
    // The output is empty if the process has ended in the meantime.
    let told = ps(&["-o", "stat=", "-p", &pid.to_string()]);
    told.map_or(Some(b'R'), |told| told.trim_start().bytes().next())
}

/// SIGINFO is ignored by default, SIGPWR is not.
pub fn catches_dump(_pid: u32) -> bool {
    cfg!(not(target_os = "linux"))
}

pub fn die_with_parent() {}

pub fn adopt_orphans() -> io::Result<()> {
    Ok(())
}

pub fn children() -> Vec<u32> {
    Vec::new()
}

pub fn program(_pid: Pid) -> Option<RunningProgram> {
    None
}

pub fn running() -> Vec<Stat> {
    ps(&["-A", "-o", "pid=,ppid=,pgid=,stat="]).unwrap_or_default().lines().filter_map(stat).collect()
}

/// Parses process, parent, group and state; `None` for a zombie.
fn stat(line: &str) -> Option<Stat> {
    let mut fields = line.split_whitespace();
    let mut number = || fields.next()?.parse().ok();
    let (pid, parent, group) = (number()?, number()?, number()?);
    let is_zombie = fields.next()?.starts_with('Z');
    (!is_zombie).then_some(Stat { pid, parent, group, ..Stat::default() })
}

pub fn memory(pid: i32) -> ProcessMemory {
    let told = ps(&["-o", "rss=", "-p", &pid.to_string()]).unwrap_or_default();
    let rss = told.trim().parse::<u64>().unwrap_or(0) * 1_024;
    ProcessMemory { pss: rss, rss }
}

/// Returns what ps(1) prints, if it can be run.
fn ps(arguments: &[&str]) -> Option<String> {
    let told = Command::new("ps").args(arguments).stderr(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&told.stdout).into_owned())
}

pub fn affinity(_of: Option<Pid>) -> Option<Vec<usize>> {
    None
}

pub fn run_on(_cpus: &[usize]) {}

/// Has no values, because there is no handle that stays valid after the process has been reaped.
#[derive(Debug)]
pub enum Handle {}

impl Handle {
    pub fn open(_pid: Pid) -> Result<Handle, Errno> {
        Err(Errno::NOSYS)
    }

    pub fn signal(&self, _signal: Signal) -> Result<(), Errno> {
        match *self {}
    }

    pub fn wait(&self, _time: Duration) -> Result<bool, Errno> {
        match *self {}
    }

    pub fn reap(&self) -> Option<Result<i32, i32>> {
        match *self {}
    }
}

impl AsRawFd for Handle {
    fn as_raw_fd(&self) -> RawFd {
        match *self {}
    }
}

/// The time includes waiting for a processor.
#[derive(Debug)]
pub struct ThreadClock(Instant);

impl ThreadClock {
    pub fn of_this_thread() -> ThreadClock {
        ThreadClock(Instant::now())
    }

    pub fn read(&self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ps_are_parsed() {
        let found = Some(Stat { pid: 42, parent: 1, group: 40, ..Stat::default() });
        assert_eq!(stat("   42     1    40 Ss+"), found);
        assert_eq!(stat("   42     1    40 Z"), None);
        assert_eq!(stat("ps: no such option"), None);
    }
}
