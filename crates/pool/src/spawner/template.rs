//! A template process and the front's end of its control socket.

use super::BootConfig;
use super::message::{self, TemplateMessage};
use crate::os;
use crate::table::Generation;
use rustix::io::{FdFlags, fcntl_setfd};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Settings of glibc's malloc, unless the user has set them. By default it gives every thread an arena of its own, and
/// learns to keep large blocks for the next time: with ten workers of ten threads that sort large arrays, 690 MiB
/// instead of 190, for 4 % less CPU.
const MALLOC: [(&str, &str); 2] = [("MALLOC_ARENA_MAX", "2"), ("MALLOC_MMAP_THRESHOLD_", "524288")];

/// Time that a template gets to exit by itself.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// What a template of a generation reports: a message, its end (`None`), or bytes that are no message.
pub(crate) type TemplateReport = (Generation, io::Result<Option<TemplateMessage>>);

/// A running template. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Template {
    child: Option<Child>,
    pid: u32,
    socket: Arc<UnixStream>,
    reader: JoinHandle<()>,
}

impl Template {
    /// Starts the process of `generation` and tells it to boot the app; its messages go to `reports`. `scoreboard` has `slots`
    /// slots of `slot_len` bytes; each worker will get `links` links.
    ///
    /// # Errors
    /// `ruby` cannot be started, or the first message cannot be sent.
    pub(crate) fn start(
        generation: Generation,
        config: &BootConfig,
        links: usize,
        scoreboard: BorrowedFd<'_>,
        (slots, slot_len): (usize, usize),
        reports: mpsc::UnboundedSender<TemplateReport>,
    ) -> io::Result<Template> {
        let (ours, theirs) = os::pair()?;
        theirs.set_nonblocking(false)?;
        fcntl_setfd(&theirs, FdFlags::empty())?;
        let mut load_path = OsString::from("-I");
        load_path.push(&config.lib);
        let mut command = Command::new(&config.settings.rack.ruby);
        for (name, value) in &config.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        for name in settings::SERVICE_MANAGER_VARIABLES {
            command.env_remove(name);
        }
        let child = command
            .arg(load_path)
            .args(["-rfirebrick/template", "-e", "Firebrick::Template.run"])
            .current_dir(&config.settings.dir)
            .env("FIREBRICK_CONTROL_FD", theirs.as_raw_fd().to_string())
            .envs(MALLOC.iter().filter(|(name, _)| std::env::var_os(name).is_none()).copied())
            .spawn()
            .map_err(|e| {
                let ruby = config.settings.rack.ruby.display();
                io::Error::new(e.kind(), format!("cannot start {ruby}: {e}"))
            })?;
        drop(theirs);
        let socket = Arc::new(UnixStream::from_std(ours)?);
        let reader = tokio::spawn(read(generation, socket.clone(), reports));
        let template = Template { pid: child.id(), child: Some(child), socket, reader };
        template.send(&message::boot(config, links, slots, slot_len), &[scoreboard])?;
        Ok(template)
    }

    /// The template's process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Orders a worker in scoreboard slot `index`, with its ends of the links.
    ///
    /// # Errors
    /// The template is gone or does not read.
    pub(crate) fn fork(&self, index: u32, links: &[std::os::unix::net::UnixStream]) -> io::Result<()> {
        let fds: Vec<BorrowedFd<'_>> = links.iter().map(AsFd::as_fd).collect();
        self.send(&[b"fork".to_vec(), index.to_string().into_bytes()], &fds)
    }

    /// Signals a worker.
    ///
    /// # Errors
    /// The template is gone or does not read.
    pub(crate) fn kill(&self, pid: u32, signal: &str) -> io::Result<()> {
        self.send(&[b"kill".to_vec(), pid.to_string().into_bytes(), signal.as_bytes().to_vec()], &[])
    }

    /// Sends a message without waiting. The socket's buffer takes hundreds of messages: when it is full, the template is stopped.
    fn send(&self, parts: &[Vec<u8>], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = message::encode(parts);
        let sent = os::send(&self.socket, [&bytes, &[]], fds)?;
        if sent == bytes.len() {
            Ok(())
        } else {
            Err(io::Error::other("the template does not read its messages"))
        }
    }

    /// Tells the template to exit, and waits until it has; kills it if it does not.
    pub(crate) async fn exit(mut self) -> Option<i32> {
        // A template that is gone needs no message.
        let _ = self.send(&[b"exit".to_vec()], &[]);
        self.exited().await
    }

    /// The exit code of a process that was told to exit or has closed its socket; `None` for a signal. Kills it after a while.
    pub(crate) async fn exited(&mut self) -> Option<i32> {
        let mut child = self.child.take()?;
        let deadline = tokio::time::Instant::now() + EXIT_TIMEOUT;
        while tokio::time::Instant::now() < deadline {
            match child.try_wait() {
                Ok(Some(status)) => return status.code(),
                Ok(None) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(_) => return None,
            }
        }
        self.child = Some(child);
        None
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        self.reader.abort();
        if let Some(mut child) = self.child.take() {
            // A process that has exited cannot be killed, only reaped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Passes messages on until the template has gone or sends something that is no message.
async fn read(
    generation: Generation,
    socket: Arc<UnixStream>,
    reports: mpsc::UnboundedSender<TemplateReport>,
) {
    let mut received = Vec::new();
    loop {
        let message = next(&socket, &mut received).await;
        let last = !matches!(message, Ok(Some(_)));
        if reports.send((generation, message)).is_err() || last {
            return;
        }
    }
}

async fn next(socket: &UnixStream, received: &mut Vec<u8>) -> io::Result<Option<TemplateMessage>> {
    loop {
        if let Some((parts, used)) = message::decode(received)? {
            received.drain(..used);
            return message::interpret(&parts).map(Some);
        }
        let mut buffer = [0; 4096];
        let mut strays = VecDeque::new();
        let read = || os::receive(socket, &mut buffer, &mut strays);
        match socket.async_io(Interest::READABLE, read).await {
            Ok(0) => return Ok(None),
            Ok(n) => received.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(e) => return Err(e),
        }
    }
}
