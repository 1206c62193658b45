//! `firebrick status` and `firebrick stop`, for init scripts and deploy tools.
//!
//! Contract:
//! 1. The exit codes of `status` are those of the Linux Standard Base for init scripts: 0 running, 1 dead
//!    with a pid file left, 3 not running, 4 unknown.
//! 2. `stop` stops the process that listens on the control socket, even if its process id is reused
//!    meanwhile, and returns when that process has exited. A server that is not running is a success, as in
//!    the same standard.
//! 3. `stop` never kills. If the server does not exit in time, it continues, and the exit code is 1.

use crate::client::{ControlClient, Error, explain};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use stats::{ServerState, Status};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use sys::process::Handle;

/// The interval between two checks of a stopping server's phase.
const LOOK: Duration = Duration::from_millis(500);

/// The server that a command addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The app's directory, for messages.
    pub dir: PathBuf,
    pub client: ControlClient,
    /// The server's pid file, if the settings name one.
    pub pidfile: Option<PathBuf>,
}

/// The state of a server, as the exit code of init scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InitStatus {
    Running = 0,
    Dead = 1,
    NotRunning = 3,
    Unknown = 4,
}

/// Runs `firebrick status`: prints text for people, or the server's JSON.
pub fn status_command(target: &Target, json: bool) -> ExitCode {
    let (verdict, text) = match target.client.status() {
        Ok(status) if json => {
            (InitStatus::Running, serde_json::to_string_pretty(&status).unwrap_or_default())
        }
        Ok(status) => (InitStatus::Running, describe(&status)),
        Err(error @ Error::NotRunning(_)) => absent(target, &error),
        Err(error) => (InitStatus::Unknown, explain(&error, &target.dir)),
    };
    say(verdict == InitStatus::Running, &text);
    ExitCode::from(verdict as u8)
}

/// Explains why no server listens. Uses the pid file if there is one.
fn absent(target: &Target, error: &Error) -> (InitStatus, String) {
    let named = target.pidfile.as_deref().and_then(|path| Some((path, pid_in(path)?)));
    match named {
        Some((path, pid)) if crate::owner::living(path).is_none() => {
            let (path, pid) = (path.display(), pid.as_raw_nonzero());
            (
                InitStatus::Dead,
                format!(
                    "no Firebrick is running for {}: the pid file {path} names process {pid}, which has ended or is another program",
                    target.dir.display()
                ),
            )
        }
        Some((path, pid)) => {
            let (path, pid) = (path.display(), pid.as_raw_nonzero());
            (InitStatus::Unknown, format!("{error}, but the pid file {path} names process {pid}, which runs"))
        }
        None => (InitStatus::NotRunning, explain(error, &target.dir)),
    }
}

fn pid_in(path: &Path) -> Option<Pid> {
    let number = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
    (number > 0).then(|| Pid::from_raw(number))?
}

fn describe(status: &Status) -> String {
    let readiness = match &status.reason {
        None => "ready".to_owned(),
        Some(why) => format!("not ready: {why}"),
    };
    let mut lines = vec![
        format!("Firebrick {} is running for {}", status.version, status.dir),
        format!("pid       {}", status.pid),
        format!("up        {}", crate::table::span(status.uptime())),
        format!("state     {} ({readiness})", status.state),
    ];
    if let Some(workers) = status.workers {
        lines.push(format!("workers   {} of {workers} ready", status.workers_ready.unwrap_or(0)));
    }
    lines.extend(crate::described::status_lines(status));
    lines.extend(status.addresses.iter().map(|address| format!("address   {address}")));
    lines.join("\n")
}

/// Runs `firebrick stop`: sends TERM, then waits until the server has exited, at most for `timeout`.
pub fn stop_command(target: &Target, timeout: Duration) -> ExitCode {
    match stop(target, timeout) {
        Ok(text) => {
            say(true, &text);
            ExitCode::SUCCESS
        }
        Err(why) => {
            say(false, &why);
            ExitCode::FAILURE
        }
    }
}

fn stop(target: &Target, timeout: Duration) -> Result<String, String> {
    let deadline = Instant::now() + timeout;
    let client = &target.client;
    let pid = match client.server_pid() {
        Ok(pid) => pid,
        Err(error @ Error::NotRunning(_)) => {
            return match absent(target, &error) {
                (InitStatus::Unknown, text) => Err(format!("{text}; send it TERM")),
                (_, text) => Ok(text),
            };
        }
        Err(error) => return Err(explain(&error, &target.dir)),
    };
    let number = pid.as_raw_nonzero();
    let refused = |e: Errno| match e {
        Errno::PERM => {
            format!("process {number} belongs to another user: run this as the server's user")
        }
        _ => format!("cannot signal process {number}: {e}"),
    };
    let begun = Instant::now();
    let process = match Ending::begin(pid) {
        Ok(Some(process)) => process,
        Ok(None) => return Ok(format!("process {number} has ended")),
        Err(e) => return Err(refused(e)),
    };
    say(true, &format!("TERM sent to process {number}"));
    let mut last = None;
    while !process
        .ended(LOOK.min(deadline.saturating_duration_since(Instant::now())))
        .map_err(|e| format!("cannot wait for the process: {e}"))?
    {
        let status = client.status().ok();
        let now = status.as_ref().map(progress);
        if Instant::now() >= deadline {
            let at = now.map(|now| format!(": {now}")).unwrap_or_default();
            let seconds = timeout.as_secs_f64();
            return Err(format!(
                "process {number} is still running after {seconds} s{at}; it will still exit by itself, `kill -KILL {number}` stops it at once"
            ));
        }
        if let Some(now) = now.filter(|now| last.as_ref() != Some(now)) {
            say(true, &now);
            last = Some(now);
        }
    }
    Ok(format!("process {number} has ended after {:.1} s", begun.elapsed().as_secs_f64()))
}

/// A process that got TERM.
enum Ending {
    Exact(Handle),
    /// The system has no better handle for a process than its id.
    ByNumber(Pid),
}

impl Ending {
    /// Sends TERM. `None` if there is no such process.
    fn begin(pid: Pid) -> Result<Option<Ending>, Errno> {
        let process = match Handle::open(pid) {
            Err(Errno::SRCH) => return Ok(None),
            opened => opened.map_or(Ending::ByNumber(pid), Ending::Exact),
        };
        let sent = match &process {
            Ending::Exact(handle) => handle.signal(Signal::TERM),
            Ending::ByNumber(pid) => kill_process(*pid, Signal::TERM),
        };
        match sent {
            Err(Errno::SRCH) => Ok(None),
            sent => sent.map(|()| Some(process)),
        }
    }

    /// Waits until the process has exited. Returns whether it has.
    fn ended(&self, wait: Duration) -> Result<bool, Errno> {
        let pid = match self {
            Ending::Exact(handle) => return handle.wait(wait),
            Ending::ByNumber(pid) => *pid,
        };
        let until = Instant::now() + wait;
        while test_kill_process(pid).is_ok() {
            if Instant::now() >= until {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(true)
    }
}

/// Describes the phase of a stopping server.
fn progress(status: &Status) -> String {
    let requests = match status.requests {
        1 => "1 request of the app in progress".to_owned(),
        count => format!("{count} requests of the app in progress"),
    };
    match status.state {
        ServerState::Leaving => format!("not ready any more, still accepting; {requests}"),
        ServerState::Draining => format!("ports closed; {requests}"),
        ServerState::Booting | ServerState::Serving => "shutdown has not started".to_owned(),
    }
}

fn say(well: bool, text: &str) {
    if well {
        output::print(format!("{text}\n"));
    } else {
        output::complain(format_args!("firebrick: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settings::ControlAddress;

    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    /// Retries, because between fork and exec a process has the name of its parent.
    fn eventually(wanted: InitStatus, look: impl Fn() -> InitStatus) -> InitStatus {
        let deadline = Instant::now() + Duration::from_secs(20);
        while look() != wanted && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        look()
    }

    fn end(mut process: Child) {
        let _ = process.kill();
        let _ = process.wait();
    }

    fn target(dir: &Path, pidfile: Option<PathBuf>) -> Target {
        let client = ControlClient::new(ControlAddress::Unix(dir.join("none.sock")), None);
        Target { dir: dir.to_owned(), client, pidfile }
    }

    #[test]
    fn a_pid_file_tells_dead_from_never_started() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let verdict = |target: &Target| absent(target, &target.client.status().unwrap_err()).0;
        assert_eq!(verdict(&target(dir.path(), None)), InitStatus::NotRunning);
        assert_eq!(verdict(&target(dir.path(), Some(file.clone()))), InitStatus::NotRunning);
        for garbled in ["garbled", "0", "-7"] {
            std::fs::write(&file, garbled).unwrap();
            assert_eq!(verdict(&target(dir.path(), Some(file.clone()))), InitStatus::NotRunning);
        }
        let other = Command::new("sleep").arg("60").spawn().unwrap();
        std::fs::write(&file, other.id().to_string()).unwrap();
        let found = eventually(InitStatus::Dead, || verdict(&target(dir.path(), Some(file.clone()))));
        end(other);
        assert_eq!(found, InitStatus::Dead, "the number of another program");
        let server = Command::new("sleep").arg0("firebrick").arg("60").spawn().unwrap();
        std::fs::write(&file, server.id().to_string()).unwrap();
        let found = eventually(InitStatus::Unknown, || verdict(&target(dir.path(), Some(file.clone()))));
        end(server);
        assert_eq!(found, InitStatus::Unknown);
        std::fs::write(&file, "999999999\n").unwrap();
        assert_eq!(verdict(&target(dir.path(), Some(file))), InitStatus::Dead);
    }

    #[test]
    fn stopping_what_does_not_run_is_done_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let text = stop(&target(dir.path(), None), Duration::ZERO).unwrap();
        assert!(text.starts_with("no Firebrick is running for"), "{text}");
    }
}
