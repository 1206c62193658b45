//! Starts processes. Workers come from a [source](Source): a [template](template::Template) loads the
//! app once and forks them on order; for a Ruby that cannot fork, a [spawner](spawned::Spawner) starts them.
//!
//! Contract:
//! 1. No function here waits for a process. The reports of all sources arrive over one channel as
//!    [`TemplateMessage`]s, with the source's generation.
//! 2. Dropping a source ends it, and none of its messages follow.

mod allocator;
mod engine;
mod environment;
mod fiber_stack;
pub(crate) mod message;
mod prepared;
mod spawned;
mod template;

use crate::process::{ReleaseId, WorkerSignal};
pub use allocator::jemalloc;
pub(crate) use engine::seats;
pub use engine::{pools, without_fork};
pub use environment::before_bundler;
pub use message::AppFacts;
pub(crate) use message::{Booted, TemplateMessage};
pub use prepared::{Handoff, Prepared};
use queue::{PoolIndex, Serial};
use settings::{Pool, Settings};
pub(crate) use spawned::Spawner;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
pub(crate) use template::{Template, TemplateReport};

/// The start configuration of a template, and the content of its `boot` message.
#[derive(Debug, Clone)]
pub struct BootConfig {
    /// The release that is started.
    pub release: ReleaseId,
    pub app: PathBuf,
    /// The folder that contains `firebrick/template.rb`.
    pub lib: PathBuf,
    /// The settings at the time of the boot: the Ruby, the app's folder, threads, and other values for the
    /// template.
    pub settings: Arc<Settings>,
    /// Environment variables of the template that differ from this process; `None` removes one.
    pub environment: Vec<(OsString, Option<OsString>)>,
    /// Files that the template removes if the front dies.
    pub unlink: Vec<PathBuf>,
    /// Makes the template repeat requests ([`docs/internals/processes.md`]): the time limit in milliseconds, and their folder behind a line feed.
    pub replay: Option<Vec<u8>>,
    /// Requests that the template sends to the app before it forks workers.
    pub warm_up: WarmUp,
    /// The process for the first template, if it has been started already.
    pub prepared: Handoff,
}

/// Requests of clients, without their secrets, that a template repeats so that its workers begin warm.
#[derive(Debug, Clone, Default)]
pub struct WarmUp {
    /// How long it may take.
    pub limit: Duration,
    /// How long it may take if YJIT compiles the app.
    pub compiled: Duration,
    /// `timeouts.worker_boot`, within which the app has to be loaded and warm.
    pub boot: Duration,
    /// Whether they may be repeated where nothing prevents the app from writing to its database.
    pub anyway: bool,
    /// In the lines of `warm` ([`docs/internals/processes.md`]).
    pub requests: Vec<Vec<u8>>,
}

/// An order to fork a process for a service of the app.
#[derive(Debug)]
pub struct ServiceOrder {
    /// The name of the service, and the arguments of its guard.
    pub words: Vec<String>,
    /// The guard's end of its socket. The order's sender holds the other end, and sees the outcome in any
    /// case.
    pub socket: UnixStream,
    /// The executable of the guard.
    pub program: File,
}

impl ServiceOrder {
    /// Reports to the other end that the order failed, in the format of a guard.
    pub(crate) fn fail(self, why: &str) {
        // The other end may be closed.
        let _ = (&self.socket)
            .write(format!("{} {}\n", wire::template::guard::FAILED, why.replace('\n', " ")).as_bytes());
    }
}

/// The exit code of a process, when it has ended; `None` for a signal.
pub(crate) type Exit<'a> = Pin<Box<dyn Future<Output = Option<i32>> + Send + 'a>>;

/// The source of a generation's workers: a template that forks them, a process that is the worker itself, or a
/// spawner that starts them.
pub(crate) trait Source: Send {
    /// Returns the process id of the template, or 0 if there is none, or none yet.
    fn pid(&self) -> u32 {
        0
    }

    /// Sets the process id of a template that has just been forked.
    fn is_process(&mut self, _pid: u32) {}

    /// Tells a process that has evaluated `puma.rb` to load the app.
    ///
    /// # Errors
    /// Fails if the process is gone or does not read.
    fn boot(
        &self,
        _config: &BootConfig,
        _links: usize,
        _scoreboard: BorrowedFd<'_>,
        _sizes: (usize, usize),
    ) -> io::Result<()> {
        Ok(())
    }

    /// Returns whether a worker gets the sockets of its links with the order. Otherwise it connects.
    fn passes_links(&self) -> bool;

    /// Orders worker `serial` for scoreboard slot `index`, with the threads and fibers of this pool, and passes
    /// its ends of the links.
    ///
    /// # Errors
    /// Fails if the process cannot be started, or the template is gone or does not read.
    fn fork(
        &self,
        index: u32,
        serial: Serial,
        pool: (PoolIndex, &Pool),
        links: &[UnixStream],
    ) -> io::Result<()>;

    /// Ends an unneeded worker that has not connected, and so cannot receive DRAIN.
    fn dismiss(&self, _serial: Serial) {}

    /// Signals a worker.
    ///
    /// # Errors
    /// Fails if the template is gone or does not read.
    fn kill(&self, pid: u32, signal: WorkerSignal) -> io::Result<()>;

    /// Orders a process for a service of the app.
    ///
    /// # Errors
    /// Fails if the source cannot fork it, or the template is gone or does not read.
    fn service(&self, order: &ServiceOrder) -> io::Result<()>;

    /// Sends one of the messages of [`message`](message), if a process reads them.
    ///
    /// # Errors
    /// Fails if the process is gone or does not read.
    fn tell(&self, _message: &[Vec<u8>]) -> io::Result<()> {
        Ok(())
    }

    /// Asks for the backtrace while the app is being loaded.
    fn ask_where(&self) {}

    /// Waits for the end of a process that was ordered to exit or has closed its socket. Kills it after a
    /// while.
    fn exited(&mut self) -> Exit<'_> {
        Box::pin(std::future::ready(None))
    }

    /// Orders the template to exit, waits for its end, and kills it if it does not exit.
    fn exit(self: Box<Self>) -> Exit<'static>;
}
