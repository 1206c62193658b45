//! Linux. The contracts are in the modules that publish these functions.

use crate::other_side::{Delivery, inet};
use crate::proc::{
    ProcessMemory, RunningProgram, Stat, name, numbers, rollup, schedstat, status, working_dir,
};
use crate::tcp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, acceptfrom_with, socketpair, sockopt,
};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fs::{self, File};
use std::io::{self, ErrorKind, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

// Sockets.

pub const NO_SIGNAL: SendFlags = SendFlags::NOSIGNAL;
pub const MORE: SendFlags = SendFlags::MORE;
pub const ARRIVES_CLOSED_ON_EXEC: RecvFlags = RecvFlags::CMSG_CLOEXEC;
pub const LONGEST_PATH: usize = 107;
pub const FILE_KEEPS_MODE: bool = true;
pub const SPREADS: bool = true;

pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok((ours.into(), theirs.into()))
}

/// Returns the descriptor unchanged, because [`ARRIVES_CLOSED_ON_EXEC`] has set the flag already.
#[inline]
pub fn close_on_exec(arrived: OwnedFd) -> OwnedFd {
    arrived
}

/// Uses a single call.
#[inline]
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, std::net::SocketAddr)> {
    let (socket, address) = acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    Ok((socket, inet(address)?))
}

#[inline]
pub fn send_file(socket: BorrowedFd<'_>, file: &File, mut offset: u64, len: usize) -> io::Result<usize> {
    Ok(rustix::fs::sendfile(socket, file, Some(&mut offset), len)?)
}

pub fn delivery(socket: impl AsFd) -> Option<Delivery> {
    tcp::delivery(socket).ok()
}

pub fn bound_unsent(socket: impl AsFd, bytes: u32) {
    // Fails only for a Unix socket, which does not need the limit.
    let _ = tcp::unsent_low_water(socket, bytes);
}

pub fn defer_accept(listener: impl AsFd, wait: Duration) {
    let _ = tcp::defer_accept(listener, wait);
}

pub fn wait_for_end(socket: impl AsFd, time: Duration) {
    let _ = tcp::wait_for_end(socket, time);
}

/// Uses `TCP_USER_TIMEOUT`. Not suitable while a connection is in use: if a slow reader repeatedly makes room
/// for only a part of the next segment, the kernel counts that as one long wait.
pub fn abandon_after(socket: impl AsFd, time: Duration) {
    let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    // Fails only if the connection is gone. Has no effect on a Unix socket.
    let _ = sockopt::set_tcp_user_timeout(socket, millis);
}

/// Every Linux has Reno; if it is missing, the socket stays as it is.
pub fn do_not_pace(socket: impl AsFd) {
    if sockopt::tcp_congestion(&socket).is_ok_and(|name| name.starts_with("bbr")) {
        let _ = sockopt::set_tcp_congestion(socket, "reno");
    }
}

pub fn is_listener(socket: impl AsFd) -> bool {
    sockopt::socket_acceptconn(socket).unwrap_or(true)
}

pub fn peer(socket: impl AsFd) -> io::Result<Option<Pid>> {
    Ok(Some(sockopt::socket_peercred(socket)?.pid))
}

pub fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name)
}

pub fn listener_of(port: u16) -> Option<String> {
    let listening = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, own) = fields.get(1)?.rsplit_once(':')?;
        // 0A is LISTEN.
        let is_it = u16::from_str_radix(own, 16) == Ok(port) && fields.get(3) == Some(&"0A");
        is_it.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]")))?
    };
    let tables =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| fs::read_to_string(table).unwrap_or_default());
    let sockets: Vec<String> = tables.iter().flat_map(|table| table.lines().filter_map(listening)).collect();
    let is_one = |target: PathBuf| sockets.iter().any(|socket| target.as_os_str() == socket.as_str());
    let has_one = |pid: &i32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(is_one)
    };
    let pid = if sockets.is_empty() { None } else { numbers("/proc").find(has_one) }?;
    let shown = |text: &str| text.replace(char::is_control, "?");
    let name = shown(&name(pid).unwrap_or_default());
    let dir = pid.try_into().ok().and_then(working_dir);
    let dir = dir.map(|dir| format!(", {}", shown(&dir.display().to_string()))).unwrap_or_default();
    Some(format!("process {pid} ({name}{dir})"))
}

pub fn listening_paths() -> Vec<PathBuf> {
    /// `__SO_ACCEPTCON` of the kernel's `linux/net.h`.
    const ACCEPTS: u32 = 1 << 16;
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let path = |line: &str| {
        // Num RefCount Protocol Flags Type St Inode Path. A path may contain blanks; that of an abstract socket begins with @.
        let mut rest = line;
        let mut fields = [""; 7];
        for field in &mut fields {
            (*field, rest) = rest.trim_start().split_once(' ')?;
        }
        let accepts = u32::from_str_radix(fields[3], 16).ok()? & ACCEPTS != 0;
        (accepts && rest.starts_with('/')).then(|| PathBuf::from(rest))
    };
    table.lines().filter_map(path).collect()
}

// Files.

pub fn unnamed(dir: &Path) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => Ok(fd.into()),
        // The file system does not support it.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => crate::unlinked::create(dir),
        Err(error) => Err(error.into()),
    }
}

pub fn is_in_memory(dir: &Path) -> bool {
    /// As statfs(2) names them: tmpfs and ramfs.
    const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];
    // The type of the field differs between architectures; these numbers have 32 bits on all of them.
    rustix::fs::statfs(dir).is_ok_and(|found| IN_MEMORY.contains(&(found.f_type as u32)))
}

pub fn in_memory(name: &str) -> io::Result<File> {
    Ok(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

/// Uses `RWF_NOWAIT`.
#[inline]
pub fn read_cached(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
    let mut parts = [IoSliceMut::new(buffer)];
    loop {
        return match rustix::io::preadv2(file, &mut parts, offset, ReadWriteFlags::NOWAIT) {
            Err(Errno::INTR) => continue,
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Err(ErrorKind::Unsupported.into()),
            read => Ok(read?),
        };
    }
}

// Processes.

pub const PROGRAMS_ARE_KNOWN: bool = true;
pub const BY_DESCRIPTOR: bool = true;
pub const DESCRIPTORS: &str = "/proc/self/fd";
pub const DUMP: (&str, Signal) = ("PWR", Signal::POWER);

pub fn own_program() -> io::Result<PathBuf> {
    Ok("/proc/self/exe".into())
}

pub fn state(pid: u32) -> Option<u8> {
    // The state follows the name, which may itself contain parentheses.
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    stat.get(name_end + 2).copied()
}

/// Reads whether the process has a handler for the signal. Without one, the signal would end a process that
/// has just been started.
pub fn catches_dump(pid: u32) -> bool {
    let status = status(pid);
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    caught >> (DUMP.1.as_raw() - 1) & 1 == 1
}

pub fn die_with_parent() {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

pub fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Returns the children of the main thread, because orphans become children of the first thread of their new parent.
pub fn children() -> Vec<u32> {
    let children = format!("/proc/self/task/{}/children", std::process::id());
    let text = fs::read_to_string(children).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

pub fn program(pid: Pid) -> Option<RunningProgram> {
    let place = format!("/proc/{}", pid.as_raw_nonzero());
    // Empty for a process that has exited, and for kernel threads.
    let line = fs::read(format!("{place}/cmdline")).ok().filter(|line| !line.is_empty())?;
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let words = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let file = fs::read_link(format!("{place}/exe")).ok();
    Some(RunningProgram { words, file, began: began(pid) })
}

/// Returns the start time of a process. The kernel reports it in clock ticks since the boot.
fn began(pid: Pid) -> Option<SystemTime> {
    let stat = Stat::parse(&fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?)?;
    let machine = fs::read_to_string("/proc/stat").ok()?;
    let boot: u64 = machine.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let since = Duration::from_millis(stat.started.checked_mul(1000)? / per_second);
    Some(UNIX_EPOCH + Duration::from_secs(boot) + since)
}

pub fn running() -> Vec<Stat> {
    let stat = |pid| Stat::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?);
    numbers("/proc").filter_map(stat).collect()
}

pub fn memory(pid: i32) -> ProcessMemory {
    let [pss, rss] = rollup(pid, ["Pss:", "Rss:"]).map(Option::unwrap_or_default);
    ProcessMemory { pss, rss }
}

pub fn affinity(of: Option<Pid>) -> Option<Vec<usize>> {
    let set = sched_getaffinity(of).ok()?;
    Some((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

pub fn run_on(cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    let _ = sched_setaffinity(None, &set);
}

/// A pidfd.
#[derive(Debug)]
pub struct Handle(OwnedFd);

impl Handle {
    pub fn open(pid: Pid) -> Result<Handle, Errno> {
        pidfd_open(pid, PidfdFlags::empty()).map(Handle)
    }

    pub fn signal(&self, signal: Signal) -> Result<(), Errno> {
        pidfd_send_signal(&self.0, signal)
    }

    pub fn wait(&self, time: Duration) -> Result<bool, Errno> {
        let time = Timespec::try_from(time).map_err(|_| Errno::INVAL)?;
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&time)) {
            Err(Errno::INTR) => Ok(false),
            polled => Ok(polled? > 0),
        }
    }

    pub fn reap(&self) -> Option<Result<i32, i32>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let status = waitid(WaitId::PidFd(self.0.as_fd()), options).ok().flatten()?;
        Some(match status.exit_status() {
            Some(code) => Ok(code),
            None => Err(status.terminating_signal().unwrap_or_default()),
        })
    }
}

impl AsRawFd for Handle {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[derive(Debug)]
pub struct ThreadClock {
    /// The path of the thread's scheduler statistics.
    schedstat: String,
    begun: Instant,
}

impl ThreadClock {
    pub fn of_this_thread() -> ThreadClock {
        let schedstat = format!("/proc/self/task/{}/schedstat", rustix::thread::gettid().as_raw_nonzero());
        ThreadClock { schedstat, begun: Instant::now() }
    }

    pub fn read(&self) -> Duration {
        // A kernel may lack the statistics.
        schedstat(&self.schedstat).map_or_else(|| self.begun.elapsed(), |(ran, _)| Duration::from_nanos(ran))
    }
}
