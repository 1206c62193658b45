//! The operating system: sockets with descriptors, waiting, wake-ups, timers, shared memory, children.
//!
//! Contract of the functions that differ between Linux and other systems, which have a file each:
//! 1. [`Wakeup`] wakes a thread that waits without the GVL, even if it begins to wait later. [`Timer`] expires once, for one thread.
//!    Both are descriptors to wait for. `renew` replaces descriptors inherited by a fork, `close` closes them in a child that does not serve.
//! 2. [`memory_file`]: a regular file without a name, in memory where the system supports that. [`unnamed_file`]: one in a directory.
//! 3. [`parent_death_signal`]: the kernel sends `signal` (0: none) when the thread that started this process ends, where it can.
//! 4. [`shed_descriptors`], where the system lists descriptors: all sockets and files of this process become `/dev/null`, apart from `keep` and
//!    standard error. A process forked only to read its memory must not hold connections open, write what its parent has buffered, or end
//!    a session of a database. Descriptors of Ruby itself (pipes, events) stay.
//! 5. [`resident_kib`]: the resident memory of this process, 0 where it is not known. [`thread_waits`] changes when the calling thread waits for something other than a processor.
//! 6. `SEND` and `RECEIVE` are flags of sendmsg(2) and recvmsg(2); each received descriptor goes through
//!    `close_on_exec`.

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
use linux::{PEAK_UNIT, RECEIVE, SEND, close_on_exec, thread_clock};
#[cfg(all(target_os = "linux", not(firebrick_portable)))]
pub(crate) use linux::{
    Timer, Wakeup, memory_file, parent_death_signal, resident_kib, shed_descriptors, thread_waits,
    unnamed_file,
};
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
use portable::{PEAK_UNIT, RECEIVE, SEND, close_on_exec, thread_clock};
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
pub(crate) use portable::{
    Timer, Wakeup, memory_file, parent_death_signal, resident_kib, shed_descriptors, thread_waits,
    unnamed_file,
};

use super::panics;
use std::ffi::{CStr, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// Opens a directory only as a reference to it.
#[cfg(target_os = "linux")]
const PLACE: i32 = libc::O_PATH;
#[cfg(not(target_os = "linux"))]
const PLACE: i32 = libc::O_RDONLY;

/// Opens the working directory of the process, for [`change_directory`].
///
/// # Errors
/// As open(2).
pub(crate) fn working_directory() -> io::Result<RawFd> {
    // SAFETY: a C string.
    check(unsafe { libc::open(c".".as_ptr(), PLACE | libc::O_DIRECTORY | libc::O_CLOEXEC) })
}

/// Makes a directory the working directory of the process. Does nothing if it no longer exists.
pub(crate) fn change_directory(fd: RawFd) {
    // SAFETY: no pointers.
    let _ = unsafe { libc::fchdir(fd) };
}

/// For opening paths that may be pipes or devices.
pub(crate) const NONBLOCK: i32 = libc::O_NONBLOCK;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn check_len(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Returns the monotonic clock in microseconds.
#[inline]
pub(crate) fn now_us() -> u64 {
    clock_us(libc::CLOCK_MONOTONIC)
}

/// Returns the monotonic clock in nanoseconds.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let time = clock(libc::CLOCK_MONOTONIC);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the processor time of the calling thread in microseconds. A system call, unlike [`now_us`].
pub(crate) fn thread_us() -> u64 {
    clock_us(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the processor time of all threads of the process in microseconds.
pub(crate) fn process_us() -> u64 {
    clock_us(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Returns the number and the clock of the calling thread, by which others can observe it; `None` where the system has none.
pub(crate) fn this_thread() -> Option<(i32, libc::clockid_t)> {
    #[cfg(target_os = "linux")]
    // SAFETY: no arguments.
    let number = unsafe { libc::gettid() };
    #[cfg(not(target_os = "linux"))]
    let number = 0;
    thread_clock().map(|clock| (number, clock))
}

/// The times of a thread, readable from other threads.
pub(crate) struct ThreadView {
    clock: Option<libc::clockid_t>,
    /// The thread's `schedstat` file.
    schedule: Option<File>,
}

impl ThreadView {
    /// Opens the view of the calling thread.
    pub(crate) fn here() -> ThreadView {
        let schedule = File::open("/proc/thread-self/schedstat").ok();
        ThreadView { clock: thread_clock(), schedule }
    }

    /// Returns its processor time in microseconds; 0 once the thread has ended, and where the system does not
    /// report it.
    pub(crate) fn used_us(&self) -> u64 {
        self.clock.map_or(0, clock_us)
    }

    /// Returns the microseconds that it was ready to run but had no processor; 0 where the system does not
    /// report it. Allocates nothing.
    pub(crate) fn starved_us(&self) -> u64 {
        let mut text = [0; 96];
        let read = self.schedule.as_ref().map_or(0, |file| file.read_at(&mut text, 0).unwrap_or(0));
        // Nanoseconds run, nanoseconds waited, the number of times it ran.
        let words = std::str::from_utf8(&text[..read]).unwrap_or_default();
        words.split(' ').nth(1).and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0) / 1000
    }
}

/// Finds the function of this name in the running Ruby and the libraries of this process.
pub(super) fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a C string; the search has no side effects.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

#[inline]
pub(crate) fn clock_us(id: libc::clockid_t) -> u64 {
    let time = clock(id);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

#[inline]
fn clock(id: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    time
}

/// The largest number of descriptors in the control messages of one read. They are the links of a worker,
/// which the front sends to a template together. Further descriptors are lost.
const MOST_FDS: usize = 64;
// SAFETY: it only computes.
const CONTROL: usize = unsafe { libc::CMSG_SPACE((MOST_FDS * size_of::<RawFd>()) as u32) } as usize;

#[repr(align(8))]
struct Control([MaybeUninit<u8>; CONTROL]);

/// Receives into the spare capacity of `buffer` (which must have some). Received descriptors are appended to `fds`.
/// `Ok(0)` is end of file.
///
/// # Errors
/// As recvmsg(2); `WouldBlock` when `wait` is false and there is nothing to read.
pub(crate) fn receive(
    fd: RawFd,
    buffer: &mut Vec<u8>,
    fds: &mut Vec<RawFd>,
    wait: bool,
) -> io::Result<usize> {
    let mut control = Control([MaybeUninit::uninit(); CONTROL]);
    let spare = buffer.spare_capacity_mut();
    let mut part = libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: spare.len() };
    // SAFETY: all zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    let flags = RECEIVE | if wait { 0 } else { libc::MSG_DONTWAIT };
    // SAFETY: the header names the spare capacity and the control buffer with their true sizes. The kernel has
    // initialised the bytes that it counts, and control messages lie inside the buffer as CMSG_* walk it.
    unsafe {
        let received = check_len(libc::recvmsg(fd, &raw mut message, flags))?;
        buffer.set_len(buffer.len() + received);
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for at in 0..bytes / size_of::<RawFd>() {
                    fds.push(close_on_exec(data.add(at).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
        Ok(received)
    }
}

/// Sends without waiting. A descriptor travels with the first byte.
///
/// # Errors
/// As sendmsg(2); `WouldBlock` when the socket is full.
pub(crate) fn send(fd: RawFd, bytes: &[u8], passed: Option<RawFd>) -> io::Result<usize> {
    let Some(passed) = passed else {
        // SAFETY: pointer and length belong together.
        return check_len(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), SEND) });
    };
    let mut control = Control([MaybeUninit::new(0); CONTROL]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zero is a valid msghdr; the control buffer has room for one descriptor.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(passed);
        check_len(libc::sendmsg(fd, &raw const message, SEND))
    }
}

/// Sends as much of these pieces as the socket takes without waiting. Returns the number of bytes. The next user of the
/// connection gets its errors.
pub(crate) fn send_some(fd: RawFd, pieces: &[&[u8]]) -> usize {
    let mut sent = 0;
    for piece in pieces {
        let mut left = *piece;
        while !left.is_empty() {
            match send(fd, left, None) {
                Ok(count) => {
                    sent += count;
                    left = &left[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return sent,
            }
        }
    }
    sent
}

/// Descriptors to wait for.
pub(crate) struct Wait(Vec<libc::pollfd>);

impl Wait {
    /// Waits for any of them to be readable, or at its end.
    pub(crate) fn readable(fds: impl Iterator<Item = RawFd>) -> Wait {
        Wait(fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect())
    }

    /// Waits for the descriptor to be writable.
    pub(crate) fn writable(fd: RawFd) -> Wait {
        Wait(vec![libc::pollfd { fd, events: libc::POLLOUT, revents: 0 }])
    }

    /// Returns whether a descriptor is readable now, or at its end.
    pub(crate) fn is_readable(fd: RawFd) -> bool {
        let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which is writable.
        unsafe { libc::poll(&raw mut entry, 1, 0) > 0 }
    }

    /// Waits. Returns early, with nothing ready, on a signal.
    pub(crate) fn wait(&mut self) {
        self.poll(-1);
    }

    /// Polls without waiting. Returns whether a descriptor is ready.
    pub(crate) fn look(&mut self) -> bool {
        self.poll(0)
    }

    fn poll(&mut self, timeout_ms: libc::c_int) -> bool {
        // SAFETY: pointer and length belong together.
        let count = unsafe { libc::poll(self.0.as_mut_ptr(), self.0.len() as libc::nfds_t, timeout_ms) };
        if count < 0 {
            self.0.iter_mut().for_each(|entry| entry.revents = 0);
        }
        count > 0
    }

    /// Waits for at most `us` microseconds. Returns early, with nothing ready, on a signal.
    pub(crate) fn wait_for(&mut self, us: u64) {
        #[cfg(target_os = "linux")]
        // SAFETY: pointer and length belong together; the time is readable, and the signal mask stays.
        let count = unsafe {
            let time =
                libc::timespec { tv_sec: (us / 1_000_000) as _, tv_nsec: (us % 1_000_000 * 1000) as _ };
            libc::ppoll(self.0.as_mut_ptr(), self.0.len() as libc::nfds_t, &raw const time, std::ptr::null())
        };
        #[cfg(not(target_os = "linux"))]
        // SAFETY: pointer and length belong together.
        let count = unsafe {
            let ms = us.div_ceil(1000).min(60_000) as libc::c_int;
            libc::poll(self.0.as_mut_ptr(), self.0.len() as libc::nfds_t, ms)
        };
        if count < 0 {
            self.0.iter_mut().for_each(|entry| entry.revents = 0);
        }
    }

    /// Returns whether the descriptor given as number `at` is ready.
    pub(crate) fn ready(&self, at: usize) -> bool {
        self.0.get(at).is_some_and(|entry| entry.revents != 0)
    }
}

/// Work for a native thread of the library's own.
pub(crate) trait Work: Sync {
    /// Does the work. Must not call Ruby. Called again after a panic.
    fn run(&self);
}

/// Starts a native thread for the work, with all signals blocked and a small stack.
///
/// # Errors
/// As pthread_create(3).
pub(crate) fn native_thread<W: Work>(work: &'static W) -> io::Result<()> {
    const STACK: usize = 128 << 10;
    extern "C" fn start<W: Work>(work: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: the reference that is passed below.
        let work = unsafe { &*work.cast::<W>() };
        panics::persist(|| work.run());
        std::ptr::null_mut()
    }
    // SAFETY: attributes and signal sets are initialised before they are used. The new thread inherits the signal mask.
    let error = unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let mut thread = std::mem::zeroed();
        let error = libc::pthread_create(
            &raw mut thread,
            &raw const attributes,
            start::<W>,
            std::ptr::from_ref(work).cast_mut().cast(),
        );
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        libc::pthread_attr_destroy(&raw mut attributes);
        error
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Maps shared memory as 64-bit words.
///
/// # Errors
/// As mmap(2).
pub(crate) fn map_words(fd: RawFd, bytes: usize) -> io::Result<&'static [AtomicU64]> {
    // SAFETY: the mapping is shared, page aligned, never unmapped, and all access is atomic.
    unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, 0);
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(std::slice::from_raw_parts(at.cast::<AtomicU64>(), bytes / 8))
    }
}

/// Unmaps the memory of [`map_words`]. It must not be used afterwards.
pub(crate) fn unmap_words(words: &'static [AtomicU64]) {
    // SAFETY: a whole mapping; the caller gives it up.
    unsafe { libc::munmap(words.as_ptr().cast_mut().cast(), size_of_val(words)) };
}

/// A descriptor of an object that lives as long as the process. It can be closed, in a child that the app has forked, and replaced later.
struct Own(AtomicI32);

impl Own {
    /// The number of a closed descriptor.
    const CLOSED: RawFd = -1;

    fn new(fd: OwnedFd) -> Own {
        Own(AtomicI32::new(fd.into_raw_fd()))
    }

    #[inline]
    fn fd(&self) -> RawFd {
        self.0.load(Ordering::Relaxed)
    }

    /// Makes the descriptor refer to the same file as `new`, which is closed. Its number stays, unless it was closed.
    fn replace(&self, new: OwnedFd) -> io::Result<()> {
        let fd = self.fd();
        if fd == Own::CLOSED {
            self.0.store(new.into_raw_fd(), Ordering::Relaxed);
            return Ok(());
        }
        // SAFETY: both are open and ours.
        unsafe {
            check(libc::dup2(new.as_raw_fd(), fd))?;
            check(libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC)).map(|_| ())
        }
    }

    /// Returns the descriptor of a new object.
    fn take(&self) -> OwnedFd {
        // SAFETY: open and ours, and forgotten here.
        unsafe { OwnedFd::from_raw_fd(self.0.swap(Own::CLOSED, Ordering::Relaxed)) }
    }

    /// Closes the descriptor. No other thread may use it.
    fn close(&self) {
        let fd = self.0.swap(Own::CLOSED, Ordering::Relaxed);
        if fd != Own::CLOSED {
            close(fd);
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.close();
    }
}

/// Makes a connected pair of stream sockets, closed on exec.
///
/// # Errors
/// As socketpair(2).
pub(crate) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    use std::os::unix::net::UnixStream;
    UnixStream::pair().map(|(ours, theirs)| (ours.into(), theirs.into()))
}

/// Makes a socket or pipe blocking.
///
/// # Errors
/// As fcntl(2).
pub(crate) fn set_blocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: no pointers.
    unsafe {
        let flags = check(libc::fcntl(fd, libc::F_GETFL))?;
        check(libc::fcntl(fd, libc::F_SETFL, flags & !libc::O_NONBLOCK)).map(|_| ())
    }
}

/// Shuts down the sending side of a socket: the other end reads end of file.
pub(crate) fn stop_writing(fd: RawFd) {
    // SAFETY: no pointers.
    unsafe { libc::shutdown(fd, libc::SHUT_WR) };
}

/// Returns the length of a regular file; `None` for other files.
///
/// # Errors
/// As fstat(2).
pub(crate) fn regular_len(fd: RawFd) -> io::Result<Option<u64>> {
    // SAFETY: all zero is a valid stat, which is writable.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        check(libc::fstat(fd, &raw mut stat))?;
        Ok((stat.st_mode & libc::S_IFMT == libc::S_IFREG).then_some(stat.st_size as u64))
    }
}

/// Opens a descriptor a second time, closed on exec.
///
/// # Errors
/// As fcntl(2).
pub(crate) fn duplicate(fd: RawFd) -> io::Result<File> {
    if fd == -1 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the descriptor is only used for the call; one that is not open is an error. -1 is none that a `BorrowedFd` may have.
    unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().map(File::from)
}

pub(crate) fn close(fd: RawFd) {
    // SAFETY: callers give up a descriptor that they own.
    unsafe { libc::close(fd) };
}

/// Wakes the reader of a non-blocking pipe. A full pipe needs no further byte, and without a reader the byte
/// is useless.
pub(crate) fn ring(pipe: RawFd) {
    // SAFETY: one readable byte.
    unsafe { libc::write(pipe, b".".as_ptr().cast(), 1) };
}

/// Writes a few bytes to a pipe that is empty. Its reader may be gone.
pub(crate) fn tell(pipe: RawFd, bytes: &[u8]) {
    // SAFETY: readable bytes.
    unsafe { libc::write(pipe, bytes.as_ptr().cast(), bytes.len()) };
}

/// Ends the process without running Ruby's exit handlers.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// How a child exited.
pub(crate) struct Exit {
    /// The exit code, or the number of the signal.
    pub(crate) code: i32,
    pub(crate) by_signal: bool,
    /// Peak resident memory in KiB.
    pub(crate) peak_kib: u64,
}

/// Reaps a child if it has exited.
///
/// # Errors
/// As wait4(2): the process has no such child, or no longer.
pub(crate) fn reap(pid: i32) -> io::Result<Option<Exit>> {
    let mut status = 0;
    // SAFETY: all zero is a valid rusage; both are writable.
    let (reaped, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (check(libc::wait4(pid, &raw mut status, libc::WNOHANG, &raw mut usage))?, usage)
    };
    if reaped == 0 {
        return Ok(None);
    }
    let by_signal = libc::WIFSIGNALED(status);
    let code = if by_signal { libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) };
    Ok(Some(Exit { code, by_signal, peak_kib: usage.ru_maxrss as u64 / PEAK_UNIT }))
}
