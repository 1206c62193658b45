//! A running service, as the server sees it: its guard, and what that reports.

use super::guard::{ADOPT, GUARD, Task, program};
use crate::system::BY_DESCRIPTOR;
use pool::spawner::ServiceOrder;
use pool::supervisor::Command as PoolCommand;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use settings::{SERVICE_MANAGER_VARIABLES, Service, ServiceProgram};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// Where services run, and in which environment.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// The app's folder as it was typed.
    pub(super) dir: PathBuf,
    /// Variables that differ from our own; `None` removes one.
    pub(super) environment: Vec<(OsString, Option<OsString>)>,
    /// Where blocks of the app are ordered.
    pub(super) pool: mpsc::Sender<PoolCommand>,
}

/// What a guard reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Report {
    /// The service runs as this process.
    Runs(u32),
    /// Its first process has ended.
    Ended(End),
    /// Nothing of it is left.
    Gone,
}

/// How a service ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    Exit(i32),
    Signal(i32),
    /// The command cannot be run.
    NotRun,
    NotStarted(String),
    /// The guard was killed, and the service with it.
    GuardDied,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use pool::spawner::ExitStatus;
        match self {
            End::NotRun => write!(f, "ended with exit code 127 (the command cannot be run)"),
            End::Exit(code) => write!(f, "ended with {}", ExitStatus::Exit(*code)),
            End::Signal(number) => write!(f, "was ended by {}", ExitStatus::Signal(*number)),
            End::NotStarted(why) => write!(f, "cannot be started: {why}"),
            End::GuardDied => write!(f, "was killed, because its guard was"),
        }
    }
}

/// The process between us and a service.
enum Guard {
    /// Of a command.
    Ours(Child),
    /// Of a block: a child of the template. Its process id, once it has told.
    Forked(Option<Pid>),
}

/// A service and its guard. Dropping it kills both.
pub(super) struct Guarded {
    guard: Guard,
    socket: UnixStream,
    received: Vec<u8>,
    leader: Option<Pid>,
    gone: bool,
    /// The guard has closed its socket.
    closed: bool,
}

impl Guarded {
    /// Starts a guard, which starts the command; or orders the template to fork both guard and block.
    ///
    /// # Errors
    /// The guard cannot be started. What happens to the service is reported.
    pub(super) async fn start(service: &Service, place: &Place) -> io::Result<Guarded> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let task = Task {
            name: &service.name,
            signal: service.stop_signal,
            timeout: service.stop_timeout,
            prefix: service.prefix,
        };
        let guard = match &service.program {
            ServiceProgram::Command { words, env } => Guard::Ours(spawn(&task, words, env, place, theirs)?),
            ServiceProgram::Block => order(&task, &place.pool, theirs).await?,
        };
        Ok(Guarded {
            guard,
            socket: UnixStream::from_std(ours)?,
            received: Vec::new(),
            leader: None,
            gone: false,
            closed: false,
        })
    }

    /// The next report. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> Report {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.received.drain(..=end).collect();
                if let Some(report) = self.interpret(String::from_utf8_lossy(&line).trim_end()) {
                    return report;
                }
                continue;
            }
            let mut buffer = [0; 512];
            let ready = self.socket.readable().await;
            match ready.and_then(|()| self.socket.try_read(&mut buffer)) {
                Ok(n) if n > 0 => self.received.extend_from_slice(&buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => {
                    self.closed = true;
                    return Report::Gone;
                }
            }
        }
    }

    fn interpret(&mut self, line: &str) -> Option<Report> {
        let (word, rest) = line.split_once(' ')?;
        Some(match word {
            "guard" => {
                self.guard = Guard::Forked(Pid::from_raw(rest.parse().ok()?));
                return None;
            }
            "pid" => {
                self.leader = Pid::from_raw(rest.parse().ok()?);
                Report::Runs(rest.parse().ok()?)
            }
            "exit" if rest == "127" && matches!(self.guard, Guard::Ours(_)) => Report::Ended(End::NotRun),
            "exit" => Report::Ended(End::Exit(rest.parse().ok()?)),
            "signal" => Report::Ended(End::Signal(rest.parse().ok()?)),
            "failed" => Report::Ended(End::NotStarted(rest.to_owned())),
            _ => return None,
        })
    }

    /// Asks the service to stop.
    pub(super) fn stop(&self) {
        // A guard that has gone is heard of.
        let _ = rustix::io::write(&self.socket, b"s");
    }

    /// Kills the service.
    pub(super) fn kill(&self) {
        let _ = rustix::io::write(&self.socket, b"k");
    }

    /// After [`Report::Gone`]: reaps the guard.
    pub(super) fn close(mut self, orderly: bool) {
        self.gone = orderly;
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if !self.gone {
            if let Some(leader) = self.leader {
                let _ = kill_process_group(leader, Signal::KILL);
            }
            match &mut self.guard {
                Guard::Ours(guard) => drop(guard.kill()),
                // One that has closed its socket may have been reaped.
                Guard::Forked(Some(pid)) if !self.closed => drop(kill_process(*pid, Signal::KILL)),
                Guard::Forked(_) => {}
            }
        }
        if let Guard::Ours(guard) = &mut self.guard {
            // It has closed its socket or was killed, so this takes no time.
            let _ = guard.wait();
        }
    }
}

/// A guard that starts a command.
fn spawn(
    task: &Task<'_>,
    words: &[String],
    env: &[(String, String)],
    place: &Place,
    socket: std::os::unix::net::UnixStream,
) -> io::Result<Child> {
    let mut command = program()?;
    for (name, value) in &place.environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    for name in SERVICE_MANAGER_VARIABLES {
        command.env_remove(name);
    }
    command
        .args(task.arguments(GUARD))
        .args(words)
        .envs(env.iter().map(|(name, value)| (name, value)))
        .current_dir(&place.dir)
        .stdin(Stdio::from(OwnedFd::from(socket)))
        .process_group(0)
        .spawn()
}

/// A guard that the template forks with a block of the app.
async fn order(
    task: &Task<'_>,
    pool: &mpsc::Sender<PoolCommand>,
    socket: std::os::unix::net::UnixStream,
) -> io::Result<Guard> {
    // By descriptor, also when the file has been replaced, and where /proc/PID/exe may not be read.
    let program = program()?.get_program().to_owned();
    let path = if BY_DESCRIPTOR { String::new() } else { program.to_string_lossy().into_owned() };
    let words = [task.name.to_owned(), path].into_iter().chain(task.arguments(ADOPT)).collect();
    let order = ServiceOrder { words, socket, program: File::open(program)? };
    let ended = |_| io::Error::other("the workers have ended");
    pool.send(PoolCommand::ForkService(order)).await.map_err(ended)?;
    Ok(Guard::Forked(None))
}
