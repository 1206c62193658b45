//! Starting processes: the [template](template::Template) loads the app once and forks workers on order. Where Ruby cannot fork, a
//! [spawner](spawned::Spawner) stands in its place.
//!
//! Contract:
//! 1. Nothing here waits for a process. What a template reports comes over one channel, with the template's generation.
//! 2. A template that was dropped is killed, and none of its messages follow.

mod allocator;
mod engine;
mod environment;
mod fiber_stack;
mod message;
mod prepared;
mod spawned;
mod template;

pub use engine::{fibers, fibers_apart, without_fork};
pub use environment::before_bundler;
pub(crate) use message::TemplateMessage;
pub use prepared::{Handoff, Prepared};
use settings::Settings;
pub(crate) use spawned::Spawner;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
pub(crate) use template::{Template, TemplateReport};

/// How a template is started, and its `boot` message.
#[derive(Debug, Clone)]
pub struct BootConfig {
    /// The rackup file.
    pub app: PathBuf,
    /// The folder with `firebrick/template.rb`.
    pub lib: PathBuf,
    /// Settings at the time of the boot: the Ruby, the app's folder, threads, and what the template needs.
    pub settings: Arc<Settings>,
    /// Variables of the template that differ from our own; `None` removes one.
    pub environment: Vec<(OsString, Option<OsString>)>,
    /// Removed by the template should the front die.
    pub unlink: Vec<PathBuf>,
    /// The process of the first template, if there is one already.
    pub prepared: Handoff,
}

/// The order to fork a process for a service of the app.
#[derive(Debug)]
pub struct ServiceOrder {
    /// The service's name, and the arguments of its guard.
    pub words: Vec<String>,
    /// The guard's end of its socket. Whatever becomes of the order, the other end hears of it.
    pub socket: UnixStream,
    /// The guard's program.
    pub program: File,
}

impl ServiceOrder {
    /// It cannot be carried out, and why: said as a guard would.
    pub(crate) fn fail(self, why: &str) {
        // The other end may have gone.
        let _ = (&self.socket).write(format!("failed {}\n", why.replace('\n', " ")).as_bytes());
    }
}

/// How a process exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// With this exit code.
    Exit(i32),
    /// By this signal.
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
