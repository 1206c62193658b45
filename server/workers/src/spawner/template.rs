//! Manages a template process and the front's end of its control socket.

use super::message::{self, TemplateMessage};
use super::{BootConfig, Exit, Prepared, ServiceOrder, Source, pools, seats};
use crate::os;
use crate::process::Process as Known;
use crate::process::{Generation, WorkerSignal};
use queue::{PoolIndex, Serial};
use rustix::process::Signal;
use settings::Pool;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;
use sys::process::{DUMP, catches_dump};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The time that a template has to exit by itself.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A report of a template: a message, its end (`None`), or an error for bytes that are not a message.
pub(crate) type TemplateReport = (Generation, io::Result<Option<TemplateMessage>>);

/// The relation of the process to the front.
#[derive(Debug)]
enum Process {
    Ours(Child),
    /// Forked by a worker that has exited or is about to.
    Adopted,
    /// The process that started this one.
    Attached,
    Gone,
}

/// A running template. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Template {
    process: Process,
    pid: u32,
    /// A handle of the same process, once the process exists.
    known: Option<Known>,
    socket: Arc<UnixStream>,
    reader: JoinHandle<()>,
}

impl Template {
    /// Starts the process of `generation`, or takes the prepared one, and orders it to load the app. Its
    /// messages go to `reports`. `sizes`: the number of slots in `scoreboard`, and the size of each in bytes.
    /// Each worker will get `links` links. A new process first evaluates the `puma.rb` of the settings, if
    /// there is one, and needs a [`boot`](Source::boot) afterwards.
    ///
    /// # Errors
    /// Fails if `ruby` cannot be started or the first message cannot be sent.
    pub(crate) fn start(
        generation: Generation,
        config: &BootConfig,
        links: usize,
        scoreboard: BorrowedFd<'_>,
        sizes: (usize, usize),
        reports: mpsc::UnboundedSender<TemplateReport>,
    ) -> io::Result<Template> {
        let prepared = config.prepared.take();
        let is_configured = prepared.is_some();
        let (child, socket) = match prepared {
            Some(prepared) => prepared,
            None => Prepared::spawn(&config.settings, &config.lib, &config.environment)?,
        }
        .into_parts()?;
        let template = Template::reporting(generation, child.id(), Process::Ours(child), socket, reports)?;
        match &config.settings.puma_rb {
            Some(file) if !is_configured => template.send(&message::configure(file), &[])?,
            _ => template.boot(config, links, scoreboard, sizes)?,
        }
        Ok(template)
    }

    /// Uses the process that started this one, at the other end of `socket`, as a template. It has loaded the
    /// app and does not fork, because it is the worker itself. Otherwise the same as [`Template::start`].
    ///
    /// # Errors
    /// Fails if the socket cannot be used.
    pub(crate) fn attach(
        generation: Generation,
        config: &BootConfig,
        links: usize,
        scoreboard: BorrowedFd<'_>,
        sizes: (usize, usize),
        socket: std::os::unix::net::UnixStream,
        reports: mpsc::UnboundedSender<TemplateReport>,
    ) -> io::Result<Template> {
        let template = Template::reporting(generation, 0, Process::Attached, socket, reports)?;
        template.boot(config, links, scoreboard, sizes)?;
        Ok(template)
    }

    /// Creates the template that a worker will leave behind. The worker holds the other end of `socket`. It
    /// needs no `boot`.
    ///
    /// # Errors
    /// Fails if the socket cannot be registered with the event loop.
    pub(crate) fn adopt(
        generation: Generation,
        socket: std::os::unix::net::UnixStream,
        reports: mpsc::UnboundedSender<TemplateReport>,
    ) -> io::Result<Template> {
        Template::reporting(generation, 0, Process::Adopted, socket, reports)
    }

    /// Creates the template at the other end of `socket`, and starts to forward its messages to `reports`.
    fn reporting(
        generation: Generation,
        pid: u32,
        process: Process,
        socket: std::os::unix::net::UnixStream,
        reports: mpsc::UnboundedSender<TemplateReport>,
    ) -> io::Result<Template> {
        let socket = Arc::new(UnixStream::from_std(socket)?);
        let known = (pid > 0).then(|| Known::open(pid));
        let reader = tokio::spawn(read(generation, socket.clone(), known.clone(), reports));
        Ok(Template { process, pid, known, socket, reader })
    }

    /// Sends a message without waiting. The socket's buffer holds hundreds of messages; if it is full, the
    /// template has been stopped.
    fn send(&self, parts: &[Vec<u8>], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = message::encode(parts);
        let sent = os::send(&self.socket, [&bytes, &[]], fds)?;
        if sent == bytes.len() {
            Ok(())
        } else {
            Err(io::Error::other("the template does not read its messages"))
        }
    }

    /// Waits for the end of a process that was ordered to exit or has closed its socket, and kills it after a
    /// while. Returns the exit code, or `None` for a signal.
    async fn end(&mut self) -> Option<i32> {
        let known = self.known.clone();
        if matches!(self.process, Process::Adopted)
            && let Some(known) = known
        {
            let ended = tokio::time::timeout(EXIT_TIMEOUT, known.ended()).await.is_ok();
            if ended {
                known.reap();
                self.process = Process::Gone;
            }
            return None;
        }
        let deadline = tokio::time::Instant::now() + EXIT_TIMEOUT;
        while tokio::time::Instant::now() < deadline {
            let Process::Ours(child) = &mut self.process else { return None };
            match child.try_wait() {
                Ok(None) => tokio::time::sleep(Duration::from_millis(10)).await,
                Ok(Some(status)) => {
                    self.process = Process::Gone;
                    return status.code();
                }
                Err(_) => {
                    self.process = Process::Gone;
                    return None;
                }
            }
        }
        None
    }
}

impl Source for Template {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn is_process(&mut self, pid: u32) {
        if matches!(self.process, Process::Adopted) {
            self.pid = pid;
            self.known = Some(Known::open(pid));
        }
    }

    fn boot(
        &self,
        config: &BootConfig,
        links: usize,
        scoreboard: BorrowedFd<'_>,
        (slots, slot_len): (usize, usize),
    ) -> io::Result<()> {
        // The app is checked for the workers with the most fibers, or else with the most threads.
        let most = |pool: &Pool| (pool.fibers > 0, seats(pool).count());
        let pool = pools(&config.settings).into_iter().max_by_key(most);
        let pool = pool.unwrap_or_else(|| config.settings.default_pool());
        self.send(&message::boot(config, &pool, links, slots, slot_len), &[scoreboard])
    }

    fn passes_links(&self) -> bool {
        true
    }

    fn fork(
        &self,
        index: u32,
        _: Serial,
        (_, pool): (PoolIndex, &Pool),
        links: &[std::os::unix::net::UnixStream],
    ) -> io::Result<()> {
        let fds: Vec<BorrowedFd<'_>> = links.iter().map(AsFd::as_fd).collect();
        self.send(&message::fork(index, pool), &fds)
    }

    fn kill(&self, pid: u32, signal: WorkerSignal) -> io::Result<()> {
        self.send(&message::kill(pid, signal.name()), &[])
    }

    /// Orders a guard with the words of the order, which runs the block in a child process. The guard's
    /// executable and its standard input are passed with it.
    fn service(&self, order: &ServiceOrder) -> io::Result<()> {
        self.send(&message::service(&order.words), &[order.socket.as_fd(), order.program.as_fd()])
    }

    fn tell(&self, message: &[Vec<u8>]) -> io::Result<()> {
        self.send(message, &[])
    }

    /// The template replies with [`TemplateMessage::Loading`], unless it is in a call that does not return to
    /// Ruby.
    fn ask_where(&self) {
        if matches!(self.process, Process::Ours(_)) && catches_dump(self.pid) {
            self.known.iter().for_each(|known| known.signal(DUMP.1));
        }
    }

    fn exited(&mut self) -> Exit<'_> {
        Box::pin(self.end())
    }

    fn exit(mut self: Box<Self>) -> Exit<'static> {
        // Fails only if the template is gone.
        let _ = self.send(&message::exit(), &[]);
        Box::pin(async move { self.end().await })
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        self.reader.abort();
        let known = self.known.take();
        match std::mem::replace(&mut self.process, Process::Gone) {
            Process::Ours(child) => sys::process::kill(child),
            // The end of its socket makes it exit, unless it hangs.
            Process::Adopted => drop(known.inspect(|known| known.signal(Signal::KILL))),
            // The end of the socket is enough.
            Process::Attached | Process::Gone => {}
        }
    }
}

/// Forwards messages until the template has gone or sends bytes that are not a message.
async fn read(
    generation: Generation,
    socket: Arc<UnixStream>,
    mut process: Option<Known>,
    reports: mpsc::UnboundedSender<TemplateReport>,
) {
    let mut received = Vec::new();
    loop {
        let message = next(&socket, process.as_ref(), &mut received).await;
        if let Ok(Some(TemplateMessage::Pid(pid))) = message {
            process = Some(Known::open(pid));
        }
        let last = !matches!(message, Ok(Some(_)));
        if reports.send((generation, message)).is_err() || last {
            return;
        }
    }
}

/// Returns the next message, or `None` at the end. The end is the end of the socket, or the end of the
/// process after its last message has been read: a child process of the app may keep the other end of the
/// socket open.
async fn next(
    socket: &UnixStream,
    process: Option<&Known>,
    received: &mut Vec<u8>,
) -> io::Result<Option<TemplateMessage>> {
    let ended = async {
        match process {
            Some(process) => process.ended().await,
            None => std::future::pending().await,
        }
    };
    let mut ended = std::pin::pin!(ended);
    let mut over = false;
    loop {
        if let Some((parts, used)) = message::decode(received)? {
            received.drain(..used);
            return message::interpret(&parts).map(Some);
        }
        let mut buffer = [0; 4096];
        let mut strays = VecDeque::new();
        let mut read = || os::receive(socket, &mut buffer, &mut strays);
        let read = if over {
            read()
        } else {
            tokio::select! {
                biased;
                read = socket.async_io(Interest::READABLE, &mut read) => read,
                () = &mut ended => {
                    over = true;
                    continue;
                }
            }
        };
        match read {
            Ok(0) => return Ok(None),
            Ok(n) => received.extend_from_slice(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            Err(e) if over && e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(e) => return Err(e),
        }
    }
}
