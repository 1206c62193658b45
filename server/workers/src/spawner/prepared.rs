//! Starts a Ruby process that becomes a template later: it evaluates `puma.rb` and then waits for the order
//! to load the app.
//!
//! Why first: `puma.rb` sets the listening addresses and the number of workers, and its blocks must stay in
//! the process that loads the app. So the first template starts before there is an event loop, and is handed
//! over to it.
//!
//! Contract: a process that is not handed over is killed.

use super::message::{self, TemplateMessage};
use super::{allocator, fiber_stack};
use crate::os;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, kill_process};
use settings::Settings;
use settings::puma::{Evaluated, PumaFile};
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use sys::process::{DUMP, catches_dump};

/// A process that has not been ordered to load the app yet. Dropping it kills the process.
#[derive(Debug)]
pub struct Prepared {
    child: Option<Child>,
    socket: Option<UnixStream>,
}

impl Prepared {
    /// Starts the Ruby of `settings` in the app's directory, with these changes to the environment.
    pub(super) fn spawn(
        settings: &Settings,
        lib: &Path,
        environment: &[(OsString, Option<OsString>)],
    ) -> io::Result<Prepared> {
        let (ours, theirs) = os::pair()?;
        theirs.set_nonblocking(false)?;
        fcntl_setfd(&theirs, FdFlags::empty())?;
        let mut load_path = OsString::from("-I");
        load_path.push(lib);
        let child = command(settings, environment)
            .arg(load_path)
            .args(["-rfirebrick/template", "-e", "Firebrick::Template.run"])
            .env("FIREBRICK_CONTROL_FD", theirs.as_raw_fd().to_string())
            .env("FIREBRICK_FRONT_PID", std::process::id().to_string())
            // Rubies before 3.3 need this setting when they start.
            .env("FIREBRICK_YJIT", settings.rack.yjit.word())
            .spawn()
            .map_err(|e| {
                let ruby = settings.rack.ruby.display();
                let remedy = match e.kind() {
                    io::ErrorKind::NotFound => {
                        "; install Ruby (apt-get install ruby), or say where it is: --ruby PATH"
                    }
                    io::ErrorKind::PermissionDenied => {
                        "; it must be a program that this user may run: --ruby PATH"
                    }
                    _ => "",
                };
                io::Error::new(e.kind(), format!("cannot start {ruby}: {e}{remedy}"))
            })?;
        Ok(Prepared { child: Some(child), socket: Some(ours) })
    }

    /// Starts a process that evaluates the `puma.rb` of `settings`, and waits for the calls in it, for at
    /// most `within`.
    ///
    /// # Errors
    /// Fails if Ruby cannot be started, exits or takes too long.
    pub fn configure(
        settings: &Settings,
        lib: &Path,
        within: Duration,
    ) -> Result<(Prepared, Evaluated), String> {
        let Some(file) = &settings.puma_rb else { return Err("there is no puma.rb".to_owned()) };
        let prepared = Prepared::spawn(settings, lib, &[]).map_err(|e| e.to_string())?;
        let evaluated = match &prepared.socket {
            Some(socket) => ask_for(file, socket, prepared.child.as_ref(), within)?,
            None => return Err("the process is another's already".to_owned()),
        };
        Ok((prepared, evaluated))
    }

    /// Does the same with the existing process at the other end of `socket`, which is the worker.
    ///
    /// # Errors
    /// See [`Prepared::configure`].
    pub fn configure_attached(
        settings: &Settings,
        socket: &UnixStream,
        within: Duration,
    ) -> Result<Evaluated, String> {
        let Some(file) = &settings.puma_rb else { return Err("there is no puma.rb".to_owned()) };
        ask_for(file, socket, None, within)
    }

    /// Returns the process and this end of its control socket to a new owner.
    pub(super) fn into_parts(mut self) -> io::Result<(Child, UnixStream)> {
        let parts = self.child.take().zip(self.socket.take());
        parts.ok_or_else(|| io::Error::other("the process is another's already"))
    }
}

/// Returns the command that starts the Ruby of `settings` in the app's directory, with these changes to the
/// environment.
pub(super) fn command(settings: &Settings, environment: &[(OsString, Option<OsString>)]) -> Command {
    let mut command = Command::new(&settings.rack.ruby);
    for (name, value) in environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    for name in settings::SERVICE_MANAGER_VARIABLES {
        command.env_remove(name);
    }
    command.env_remove(settings::HANDOVER_VARIABLE);
    let changed = |name: &str| environment.iter().find(|(changed, _)| changed == name);
    let now = |name: &str| changed(name).map_or_else(|| std::env::var_os(name), |(_, value)| value.clone());
    let jemalloc = allocator::jemalloc();
    let allocator = allocator::variables(settings.rack.allocator, jemalloc.as_deref(), now);
    let stack = settings.rack.fiber_stack.filter(|_| settings.has_fibers());
    command.current_dir(&settings.dir).envs(allocator).envs(fiber_stack::variables(stack, now));
    command
}

/// The time limit for the reply with a backtrace.
const ASKED: Duration = Duration::from_secs(1);

/// Makes the process at the other end of `socket` evaluate `file`. `child` is set if the process was started
/// here.
fn ask_for(
    file: &PumaFile,
    socket: &UnixStream,
    child: Option<&Child>,
    within: Duration,
) -> Result<Evaluated, String> {
    let shown = file.shown.display();
    let timed_out = |e: &io::Error| matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
    match ask(socket, &message::encode(&message::configure(file)), within) {
        Ok(Some(TemplateMessage::Configured(evaluated))) => Ok(evaluated),
        Ok(Some(other)) => Err(format!("{shown}: the template's first message was {other:?}")),
        Ok(None) => Err(format!("{shown}: the process that evaluates it has ended; its output is above")),
        Err(e) if timed_out(&e) => {
            let text =
                format!("{shown} was not evaluated within timeouts.worker_boot ({} s)", within.as_secs_f64());
            let Some(child) = child.filter(|child| catches_dump(child.id())) else { return Err(text) };
            // The process has not been waited for, so its pid has not been reused. It may have exited.
            let _ = kill_process(Pid::from_child(child), DUMP.1);
            Err(match ask(socket, &[], ASKED) {
                Ok(Some(TemplateMessage::Loading(lines))) => {
                    format!("{text}; it was here:\n{}", lines.trim_end())
                }
                _ => text,
            })
        }
        Err(e) => Err(format!("{shown}: {e}")),
    }
}

/// Sends a message and returns the reply, or `None` if the process has ended. Bytes after the reply stay in
/// the socket.
fn ask(mut socket: &UnixStream, bytes: &[u8], within: Duration) -> io::Result<Option<TemplateMessage>> {
    const LENGTH: usize = 4;
    let until = Instant::now() + within;
    socket.set_nonblocking(false)?;
    socket.write_all(bytes)?;
    let mut received = Vec::new();
    loop {
        if let Some((parts, _)) = message::decode(&received)? {
            socket.set_read_timeout(None)?;
            socket.set_nonblocking(true)?;
            return message::interpret(&parts).map(Some);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        let whole =
            received.first_chunk().map_or(LENGTH, |length| LENGTH + u32::from_le_bytes(*length) as usize);
        let mut buffer = [0; 4096];
        let missing = (whole - received.len()).min(buffer.len());
        match socket.read(&mut buffer[..missing]) {
            Ok(0) => return Ok(None),
            Ok(n) => received.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(e) => return Err(e),
        }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.child.take().into_iter().for_each(sys::process::kill);
    }
}

/// A prepared process for the next template, if there is one. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Handoff(Arc<Mutex<Option<Prepared>>>);

impl Handoff {
    pub fn new(prepared: Option<Prepared>) -> Handoff {
        Handoff(Arc::new(Mutex::new(prepared)))
    }

    /// Returns the process to the first caller, and `None` to all others.
    pub fn take(&self) -> Option<Prepared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
