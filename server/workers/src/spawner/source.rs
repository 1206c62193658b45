//! The source of a generation's workers: a template that forks them, a process that is the worker
//! itself, or a spawner that starts them.
//!
//! Contract:
//! 1. No function here waits for a process. The results of a source arrive as [`TemplateMessage`]s.
//! 2. Dropping a source ends it, and none of its messages follow.
//!
//! [`TemplateMessage`]: super::TemplateMessage

use super::{BootConfig, ServiceOrder};
use crate::process::WorkerSignal;
use queue::{PoolIndex, Serial};
use settings::Pool;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::pin::Pin;

/// The exit code of a process, when it has ended; `None` for a signal.
pub(crate) type Exit<'a> = Pin<Box<dyn Future<Output = Option<i32>> + Send + 'a>>;

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

    /// Sends one of the messages of [`message`](super::message), if a process reads them.
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
