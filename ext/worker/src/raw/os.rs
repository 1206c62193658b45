//! The operating system: sockets with descriptors, waiting, wake-ups, timers, shared memory, children.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Most large gaps of the heap that [`settle_heap`] sets aside.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE_GAPS: usize = 4096;

/// The small gaps that [`settle_heap`] has filled: a list whose links are in the gaps. Only the template changes it.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
static GAPS: AtomicPtr<libc::c_void> = AtomicPtr::new(std::ptr::null_mut());

/// For opening paths that may be pipes or devices.
pub(crate) const NONBLOCK: i32 = libc::O_NONBLOCK;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn check_len(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Microseconds of the monotonic clock.
#[inline]
pub(crate) fn now_us() -> u64 {
    clock_us(libc::CLOCK_MONOTONIC)
}

/// Nanoseconds of the monotonic clock.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let time = clock(libc::CLOCK_MONOTONIC);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Microseconds of processor time that the calling thread has used. A system call, unlike [`now_us`].
pub(crate) fn thread_us() -> u64 {
    clock_us(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[inline]
fn clock_us(id: libc::clockid_t) -> u64 {
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

#[repr(align(8))]
struct Control([u8; 64]);

/// Receives into the spare capacity of `buffer` (which must have some); descriptors that came along are appended.
/// `Ok(0)` is end of file.
///
/// # Errors
/// As recvmsg(2); `WouldBlock` with `wait` false and nothing there.
pub(crate) fn receive(
    fd: RawFd,
    buffer: &mut Vec<u8>,
    fds: &mut Vec<RawFd>,
    wait: bool,
) -> io::Result<usize> {
    let mut control = Control([0; 64]);
    let spare = buffer.spare_capacity_mut();
    let mut part = libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: spare.len() };
    // SAFETY: all zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    let flags = libc::MSG_CMSG_CLOEXEC | if wait { 0 } else { libc::MSG_DONTWAIT };
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
                    fds.push(data.add(at).read_unaligned());
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
        Ok(received)
    }
}

/// Sends without waiting; a descriptor travels with the first byte.
///
/// # Errors
/// As sendmsg(2); `WouldBlock` when the socket is full.
pub(crate) fn send(fd: RawFd, bytes: &[u8], passed: Option<RawFd>) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let Some(passed) = passed else {
        // SAFETY: pointer and length belong together.
        return check_len(unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) });
    };
    let mut control = Control([0; 64]);
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
        check_len(libc::sendmsg(fd, &raw const message, flags))
    }
}

/// Sends as much of these pieces as the socket takes without waiting; the number of bytes. Errors of the connection
/// are left to its next user.
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
    /// Until one of them can be read, or has ended.
    pub(crate) fn readable(fds: impl Iterator<Item = RawFd>) -> Wait {
        Wait(fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect())
    }

    /// Until it can be written.
    pub(crate) fn writable(fd: RawFd) -> Wait {
        Wait(vec![libc::pollfd { fd, events: libc::POLLOUT, revents: 0 }])
    }

    /// Whether a descriptor can be read now, or has ended.
    pub(crate) fn is_readable(fd: RawFd) -> bool {
        let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which is writable.
        unsafe { libc::poll(&raw mut entry, 1, 0) > 0 }
    }

    /// Waits. Returns early, with nothing ready, on a signal.
    pub(crate) fn wait(&mut self) {
        self.poll(-1);
    }

    /// Does not wait. Whether something is ready.
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

    /// Waits for no longer than so many microseconds. Returns early, with nothing ready, on a signal.
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

    /// Whether the descriptor that was given as number `at` is ready.
    pub(crate) fn ready(&self, at: usize) -> bool {
        self.0.get(at).is_some_and(|entry| entry.revents != 0)
    }
}

/// Starts the watchdog of the worker at `place`: a thread that is no Ruby thread, with all signals blocked and a small stack. It must never
/// call Ruby.
///
/// # Errors
/// As pthread_create(3).
pub(crate) fn watchdog_thread(place: usize) -> io::Result<()> {
    const STACK: usize = 128 << 10;
    extern "C" fn start(place: *mut libc::c_void) -> *mut libc::c_void {
        // The pointer is a number.
        super::ruby::guard(|| crate::watchdog::run(place.addr()));
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
            start,
            std::ptr::without_provenance_mut(place),
        );
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        libc::pthread_attr_destroy(&raw mut attributes);
        error
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Wakes a thread that waits without the GVL, also if it begins to wait later.
pub(crate) struct Wakeup {
    read: OwnedFd,
    #[cfg(not(target_os = "linux"))]
    write: OwnedFd,
}

impl Wakeup {
    #[cfg(target_os = "linux")]
    pub(crate) fn new() -> io::Result<Wakeup> {
        // SAFETY: no pointers; the descriptor is new and ours.
        let read =
            unsafe { OwnedFd::from_raw_fd(check(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK))?) };
        Ok(Wakeup { read })
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new() -> io::Result<Wakeup> {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors, which are new and ours.
        let (read, write) = unsafe {
            check(libc::pipe(ends.as_mut_ptr()))?;
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        for end in ends {
            // SAFETY: no pointers.
            unsafe {
                check(libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC))?;
                check(libc::fcntl(end, libc::F_SETFL, libc::O_NONBLOCK))?;
            }
        }
        Ok(Wakeup { read, write })
    }

    /// Replaces the inherited descriptors, which are shared with other processes, by new ones of the same numbers.
    ///
    /// # Errors
    /// As eventfd(2) or pipe(2), and dup2(2).
    pub(crate) fn renew(&self) -> io::Result<()> {
        let new = Wakeup::new()?;
        #[cfg(not(target_os = "linux"))]
        replace(self.write.as_raw_fd(), new.write)?;
        replace(self.read.as_raw_fd(), new.read)
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.read.as_raw_fd()
    }

    pub(crate) fn wake(&self) {
        #[cfg(target_os = "linux")]
        let write = &self.read;
        #[cfg(not(target_os = "linux"))]
        let write = &self.write;
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight readable bytes. If it is full, a wake-up is pending already.
        unsafe { libc::write(write.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Takes pending wake-ups back.
    pub(crate) fn clear(&self) {
        let mut bytes = [0u8; 64];
        // SAFETY: writable bytes. Nothing to read is fine.
        unsafe { libc::read(self.fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
    }
}

/// A timer that expires once.
pub(crate) struct Timer(#[cfg(target_os = "linux")] OwnedFd, #[cfg(not(target_os = "linux"))] Wakeup);

impl Timer {
    #[cfg(target_os = "linux")]
    pub(crate) fn new() -> io::Result<Timer> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no pointers; the descriptor is new and ours.
        Ok(Timer(unsafe { OwnedFd::from_raw_fd(check(libc::timerfd_create(libc::CLOCK_MONOTONIC, flags))?) }))
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new() -> io::Result<Timer> {
        Wakeup::new().map(Timer)
    }

    /// As [`Wakeup::renew`].
    ///
    /// # Errors
    /// As timerfd_create(2) and dup2(2).
    pub(crate) fn renew(&self) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        return replace(self.fd(), Timer::new()?.0);
        #[cfg(not(target_os = "linux"))]
        self.0.renew()
    }

    pub(crate) fn fd(&self) -> RawFd {
        #[cfg(target_os = "linux")]
        return self.0.as_raw_fd();
        #[cfg(not(target_os = "linux"))]
        return self.0.fd();
    }

    /// Sets the timer. Off Linux it expires at once, and the thread that it wakes sleeps in [`Timer::clear`].
    #[cfg(target_os = "linux")]
    pub(crate) fn set(&self, after: Duration) {
        let time = libc::timespec { tv_sec: after.as_secs() as _, tv_nsec: after.subsec_nanos().max(1) as _ };
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let timer = libc::itimerspec { it_interval: zero, it_value: time };
        // SAFETY: `timer` is readable; the old value is not wanted.
        unsafe { libc::timerfd_settime(self.fd(), 0, &raw const timer, std::ptr::null_mut()) };
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn set(&self, _after: Duration) {
        self.0.wake();
    }

    /// Resets the timer after it has expired; off Linux this is where the time passes.
    pub(crate) fn clear(&self, _after: Duration) {
        #[cfg(target_os = "linux")]
        {
            let mut bytes = [0u8; 8];
            // SAFETY: writable bytes. Nothing to read is fine.
            unsafe { libc::read(self.fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
        }
        #[cfg(not(target_os = "linux"))]
        {
            self.0.clear();
            std::thread::sleep(_after);
        }
    }
}

/// Shared memory as 64-bit words.
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

/// Unmaps what [`map_words`] has mapped. Nobody may use it afterwards.
pub(crate) fn unmap_words(words: &'static [AtomicU64]) {
    // SAFETY: a whole mapping; the caller gives it up.
    unsafe { libc::munmap(words.as_ptr().cast_mut().cast(), size_of_val(words)) };
}

/// Makes the descriptor `fd` another name of what `new` names, which is closed.
fn replace(fd: RawFd, new: OwnedFd) -> io::Result<()> {
    // SAFETY: both are open and ours.
    unsafe {
        check(libc::dup2(new.as_raw_fd(), fd))?;
        check(libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC)).map(|_| ())
    }
}

/// A regular file in memory, where the system has that; otherwise in the system's folder for temporary files.
///
/// # Errors
/// As memfd_create(2) or open(2).
pub(crate) fn memory_file() -> io::Result<File> {
    #[cfg(target_os = "linux")]
    {
        // SAFETY: a C string; the descriptor is new and ours.
        let fd = check(unsafe { libc::memfd_create(c"firebrick-body".as_ptr(), libc::MFD_CLOEXEC) })?;
        // SAFETY: as above.
        Ok(unsafe { File::from_raw_fd(fd) })
    }
    #[cfg(not(target_os = "linux"))]
    unnamed_file(Path::new("/tmp"))
}

/// A regular file without a name in the folder `dir`.
///
/// # Errors
/// As open(2).
pub(crate) fn unnamed_file(dir: &Path) -> io::Result<File> {
    #[cfg(target_os = "linux")]
    {
        let opened =
            File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(dir);
        match opened.as_ref().err().and_then(io::Error::raw_os_error) {
            // The file system does not have it.
            Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL) => {}
            _ => return opened,
        }
    }
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = dir.join(format!(".firebrick-{}-{number}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path).map(|()| file)
}

/// A connected pair of stream sockets, closed on exec.
///
/// # Errors
/// As socketpair(2).
pub(crate) fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    use std::os::unix::net::UnixStream;
    UnixStream::pair().map(|(ours, theirs)| (ours.into(), theirs.into()))
}

/// Makes a socket blocking.
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

/// Shuts the sending side of a socket down: the other end reads end of file.
pub(crate) fn stop_writing(fd: RawFd) {
    // SAFETY: no pointers.
    unsafe { libc::shutdown(fd, libc::SHUT_WR) };
}

/// Length of a regular file; `None` when it is something else.
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

pub(crate) fn close(fd: RawFd) {
    // SAFETY: callers give up a descriptor that they own.
    unsafe { libc::close(fd) };
}

/// Makes the reader of a non-blocking pipe look. A full pipe, or one without a reader, needs nothing.
pub(crate) fn ring(pipe: RawFd) {
    // SAFETY: one readable byte.
    unsafe { libc::write(pipe, b".".as_ptr().cast(), 1) };
}

/// Ends the process without running Ruby's exit handlers.
pub(crate) fn exit_now(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// Has the kernel send `signal` (0: none) when the thread that started this process ends. Linux only.
pub(crate) fn parent_death_signal(signal: i32) {
    #[cfg(target_os = "linux")]
    // SAFETY: no pointers.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, signal);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = signal;
}

/// Gives free heap pages back to the system, and fills the small gaps of the others, so that what workers allocate lies on pages
/// of its own, and does not turn pages that are full of shared data into private ones. glibc only.
///
/// The gaps are lost until [`release_gaps`]: free memory of less than a page each, once for all workers.
pub(crate) fn settle_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: what is allocated has room for a pointer, is otherwise not touched, and freed at most once.
    unsafe {
        libc::malloc_trim(0);
        let end = libc::sbrk(0) as usize;
        // mallinfo2(3) is missing from older versions; the free end of the heap, just trimmed, is small.
        let top = end.saturating_sub(libc::mallinfo().keepcost as u32 as usize);
        let in_gap = |chunk: *mut libc::c_void| (1..top).contains(&(chunk as usize));
        // Large gaps are taken first, so that small allocations do not come from them, and given back at the end.
        let mut large = Vec::with_capacity(LARGE_GAPS);
        for size in (12..17).rev().map(|bits| 1_usize << bits) {
            while large.len() < LARGE_GAPS {
                let chunk = libc::malloc(size);
                if !in_gap(chunk) {
                    libc::free(chunk);
                    break;
                }
                large.push(chunk);
            }
        }
        for size in (24..=4000).rev().step_by(16) {
            loop {
                let chunk = libc::malloc(size);
                if !in_gap(chunk) {
                    libc::free(chunk);
                    break;
                }
                chunk.cast::<*mut libc::c_void>().write(GAPS.swap(chunk, Ordering::Relaxed));
            }
        }
        large.into_iter().for_each(|chunk| libc::free(chunk));
    }
}

/// Frees the gaps that [`settle_heap`] has filled: the heap of a template that was a worker has gaps of its own.
pub(crate) fn release_gaps() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the list consists of chunks that `settle_heap` has allocated; it is emptied before they are freed.
    unsafe {
        let mut chunk = GAPS.swap(std::ptr::null_mut(), Ordering::Relaxed);
        while !chunk.is_null() {
            let next = chunk.cast::<*mut libc::c_void>().read();
            libc::free(chunk);
            chunk = next;
        }
    }
}

/// How a child exited.
pub(crate) struct Exit {
    /// Exit code, or the number of the signal.
    pub(crate) code: i32,
    pub(crate) by_signal: bool,
    /// Peak resident memory in KiB.
    pub(crate) peak_kib: u64,
}

/// Reaps a child if it has exited.
///
/// # Errors
/// As wait4(2): the child is not, or no longer, ours.
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
    let unit = if cfg!(target_os = "macos") { 1024 } else { 1 };
    Ok(Some(Exit { code, by_signal, peak_kib: usage.ru_maxrss as u64 / unit }))
}
