//! The server's end of a running service: the guard, and its reports.

use super::guard::{ADOPT, GUARD, Task, program};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use settings::{SERVICE_MANAGER_VARIABLES, Service, ServiceProgram};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use sys::process::BY_DESCRIPTOR;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use wire::template::{end, guard as word};
use workers::spawner::ServiceOrder;
use workers::supervisor::Command as PoolCommand;

/// The working directory and the environment of services.
#[derive(Debug, Clone)]
pub(super) struct ServiceEnvironment {
    /// The app's directory as typed.
    pub(super) dir: PathBuf,
    /// Variables that differ from the server's own; `None` removes one.
    pub(super) environment: Vec<(OsString, Option<OsString>)>,
    /// Takes orders to fork blocks of the app.
    pub(super) pool: mpsc::Sender<PoolCommand>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ServiceReport {
    /// The service runs with this process id.
    Runs(u32),
    /// The first process of the service has ended.
    Ended(End),
    /// No process of the service is left.
    Gone,
}

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
        use workers::ExitStatus;
        match self {
            End::NotRun => write!(f, "ended with exit code 127 (the command cannot be run)"),
            End::Exit(code) => write!(f, "ended with {}", ExitStatus::Exit(*code)),
            End::Signal(number) => write!(f, "was ended by {}", ExitStatus::Signal(*number)),
            End::NotStarted(why) => write!(f, "cannot be started: {why}"),
            End::GuardDied => write!(f, "was killed, because its guard was"),
        }
    }
}

/// The process between the server and a service.
enum Guard {
    /// The guard of a command, a child of the server.
    Ours(Child),
    /// The guard of a block, a child of the template. Holds its process id once it has reported it.
    Forked(Option<Pid>),
}

/// A service and its guard. Dropping it kills both.
pub(super) struct Guarded {
    guard: Guard,
    socket: UnixStream,
    received: Vec<u8>,
    leader: Option<Pid>,
    gone: bool,
    /// Whether the guard has closed its socket.
    closed: bool,
}

impl Guarded {
    /// Starts a guard that starts the command, or orders the template to fork guard and block.
    ///
    /// # Errors
    /// The guard cannot be started. Reports tell the further course of the service.
    pub(super) async fn start(service: &Service, place: &ServiceEnvironment) -> io::Result<Guarded> {
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

    /// Waits for the next report. Cancel-safe.
    pub(super) async fn next(&mut self) -> ServiceReport {
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
                    return ServiceReport::Gone;
                }
            }
        }
    }

    fn interpret(&mut self, line: &str) -> Option<ServiceReport> {
        let (first, rest) = line.split_once(' ')?;
        Some(match first {
            word::GUARD => {
                self.guard = Guard::Forked(Pid::from_raw(rest.parse().ok()?));
                return None;
            }
            word::PID => {
                self.leader = Pid::from_raw(rest.parse().ok()?);
                ServiceReport::Runs(rest.parse().ok()?)
            }
            end::EXIT if rest == "127" && matches!(self.guard, Guard::Ours(_)) => {
                ServiceReport::Ended(End::NotRun)
            }
            end::EXIT => ServiceReport::Ended(End::Exit(rest.parse().ok()?)),
            end::SIGNAL => ServiceReport::Ended(End::Signal(rest.parse().ok()?)),
            word::FAILED => ServiceReport::Ended(End::NotStarted(rest.to_owned())),
            _ => return None,
        })
    }

    pub(super) fn stop(&self) {
        // An error is ignored: `next` reports a guard that is gone.
        let _ = rustix::io::write(&self.socket, b"s");
    }

    pub(super) fn kill(&self) {
        let _ = rustix::io::write(&self.socket, b"k");
    }

    /// Reaps the guard. Call it after [`ServiceReport::Gone`].
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
                // A guard that has closed its socket may have been reaped, and its process id reused.
                Guard::Forked(Some(pid)) if !self.closed => drop(kill_process(*pid, Signal::KILL)),
                Guard::Forked(_) => {}
            }
        }
        if let Guard::Ours(guard) = std::mem::replace(&mut self.guard, Guard::Forked(None)) {
            // The guard has closed its socket or was killed.
            sys::process::reap(guard);
        }
    }
}

/// Starts a guard that starts a command.
fn spawn(
    task: &Task<'_>,
    words: &[String],
    env: &[(String, String)],
    place: &ServiceEnvironment,
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

/// Orders the template to fork a guard with a block of the app.
async fn order(
    task: &Task<'_>,
    pool: &mpsc::Sender<PoolCommand>,
    socket: std::os::unix::net::UnixStream,
) -> io::Result<Guard> {
    // The program is passed as a descriptor. This works even if its file was replaced, or if /proc/PID/exe is
    // not readable.
    let program = program()?.get_program().to_owned();
    let path = if BY_DESCRIPTOR { String::new() } else { program.to_string_lossy().into_owned() };
    let words = [task.name.to_owned(), path].into_iter().chain(task.arguments(ADOPT)).collect();
    let order = ServiceOrder { words, socket, program: File::open(program)? };
    let ended = |_| io::Error::other("the workers have ended");
    pool.send(PoolCommand::ForkService(order)).await.map_err(ended)?;
    Ok(Guard::Forked(None))
}
