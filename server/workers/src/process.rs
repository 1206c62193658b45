//! A process of the app: the [`Generation`] it belongs to, how it ended ([`ExitStatus`]), and a [handle](Process)
//! that waits for its end, and signals it without reaching any other process.
//!
//! Why: the end of a socket says little about the process at its other end, because child processes may hold
//! the socket too. And a process id may be reused once the process has been reaped.
//!
//! Contract:
//! 1. [`Process::ended`] relies on the kernel (pidfd). On systems without pidfd, the process is polled.
//! 2. No signal reaches another process. Where the system cannot guarantee that ([`Process::is_exact`]), the
//!    process is checked first, and the parent of the process should send the signal if possible.

use crate::os;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::sync::Arc;
use std::time::Duration;
use sys::process::{DUMP, Handle};
use tokio::io::{Interest, unix::AsyncFd};

/// The polling interval on systems without pidfd.
const LOOK: Duration = Duration::from_millis(500);

/// The number of a release: everything that was read from the app's folder at one moment, code and settings.
/// Each reload reads a new release. The reconciler assigns the numbers.
pub type ReleaseId = u32;

/// The number of a template and the workers that it forked. Newer generations have higher numbers.
///
/// A generation runs one release, but a release may run in several generations: when its template has died
/// and another one replaces it, and after a refork.
pub type Generation = u32;

/// A signal to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerSignal {
    /// End at once.
    Kill,
    /// Send the backtraces of the threads to the front.
    Traces,
    /// Write the backtraces of the threads to standard error.
    Backtraces,
}

impl WorkerSignal {
    pub(crate) fn number(self) -> Signal {
        match self {
            WorkerSignal::Kill => Signal::KILL,
            WorkerSignal::Traces => Signal::URG,
            WorkerSignal::Backtraces => DUMP.1,
        }
    }

    /// Returns the name without `SIG`, for a process that sends the signal.
    pub(crate) fn name(self) -> &'static str {
        match self {
            WorkerSignal::Kill => "KILL",
            WorkerSignal::Traces => "URG",
            WorkerSignal::Backtraces => DUMP.0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    Exit(i32),
    Signal(i32),
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExitStatus::Exit(code) => write!(f, "exit code {code}"),
            ExitStatus::Signal(9) => write!(f, "signal 9 (KILL; by hand, or the kernel ran out of memory)"),
            ExitStatus::Signal(11) => write!(f, "signal 11 (SEGV)"),
            ExitStatus::Signal(6) => write!(f, "signal 6 (ABRT)"),
            ExitStatus::Signal(number) => write!(f, "signal {number}"),
        }
    }
}

/// A process. Clones refer to the same process.
#[derive(Debug, Clone)]
pub(crate) struct Process(Arc<ProcessRef>);

#[derive(Debug)]
enum ProcessRef {
    Exact(AsyncFd<Handle>),
    ByNumber(Pid),
    /// The process had been reaped before it was opened.
    Gone,
}

#[expect(deprecated, reason = "its replacement is unsafe, and a Handle has what that asks for")]
fn exact(pid: Pid) -> Result<AsyncFd<Handle>, Errno> {
    // Without an event loop, `ended` could not wait.
    AsyncFd::with_interest(Handle::open(pid)?, Interest::READABLE).map_err(|_| Errno::NOSYS)
}

impl Process {
    /// Opens the process that has this id now.
    pub(crate) fn open(pid: u32) -> Process {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        Process(Arc::new(match pid.map(|pid| (pid, exact(pid))) {
            None | Some((_, Err(Errno::SRCH))) => ProcessRef::Gone,
            Some((_, Ok(exact))) => ProcessRef::Exact(exact),
            Some((pid, Err(_))) => ProcessRef::ByNumber(pid),
        }))
    }

    /// Returns whether the handle cannot refer to another process.
    pub(crate) fn is_exact(&self) -> bool {
        !matches!(*self.0, ProcessRef::ByNumber(_))
    }

    /// Waits until the process has exited, reaped or not.
    pub(crate) async fn ended(&self) {
        match &*self.0 {
            ProcessRef::Exact(exact) => {
                // Fails only when the event loop ends.
                let _ = exact.readable().await;
            }
            ProcessRef::ByNumber(pid) => {
                while !os::is_dead(pid.as_raw_nonzero().get().unsigned_abs()) {
                    tokio::time::sleep(LOOK).await;
                }
            }
            ProcessRef::Gone => {}
        }
    }

    /// Sends a signal, if the process has not exited.
    pub(crate) fn signal(&self, signal: Signal) {
        match &*self.0 {
            ProcessRef::Exact(exact) => {
                // Fails if the process has ended.
                let _ = exact.get_ref().signal(signal);
            }
            ProcessRef::ByNumber(pid) if !os::is_dead(pid.as_raw_nonzero().get().unsigned_abs()) => {
                // The process may have just exited.
                let _ = kill_process(*pid, signal);
            }
            ProcessRef::ByNumber(_) | ProcessRef::Gone => {}
        }
    }

    /// Reaps the process, if it is a child that has exited, and returns its exit status. Works only once.
    pub(crate) fn reap(&self) -> Option<ExitStatus> {
        let how = match &*self.0 {
            ProcessRef::Exact(exact) => exact.get_ref().reap()?,
            ProcessRef::ByNumber(pid) => {
                let (_, status) = waitpid(Some(*pid), WaitOptions::NOHANG).ok().flatten()?;
                status.exit_status().ok_or(status.terminating_signal().unwrap_or_default())
            }
            ProcessRef::Gone => return None,
        };
        Some(how.map_or_else(ExitStatus::Signal, ExitStatus::Exit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    async fn within<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(20), future).await.expect("it has not ended")
    }

    #[tokio::test]
    async fn an_end_is_noticed_and_says_how() {
        let mut child = sleeper();
        let process = Process::open(child.id());
        let early = tokio::time::timeout(Duration::from_millis(20), process.ended()).await;
        assert!(early.is_err() && process.reap().is_none(), "it runs");
        process.signal(Signal::KILL);
        within(process.clone().ended()).await;
        within(process.ended()).await;
        assert_eq!(process.reap(), Some(ExitStatus::Signal(9)));
        assert_eq!(process.reap(), None, "it has been reaped");
        process.signal(Signal::KILL);
        let _ = child.wait();
    }

    #[tokio::test]
    async fn one_that_has_exited_by_itself_has_a_code() {
        let mut child = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        let process = Process::open(child.id());
        within(process.ended()).await;
        assert_eq!(process.reap(), Some(ExitStatus::Exit(3)));
        let _ = child.wait();
    }

    #[tokio::test]
    async fn one_that_was_reaped_before_has_ended() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        for process in [Process::open(child.id()), Process::open(0)] {
            within(process.ended()).await;
            process.signal(Signal::KILL);
            assert_eq!(process.reap(), None);
        }
    }
}
