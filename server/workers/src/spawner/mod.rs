//! Starts processes. Workers come from a [source](source::Source): a [template](template::Template) loads the
//! app once and forks them on order; for a Ruby that cannot fork, a [spawner](spawned::Spawner) starts them.
//!
//! Contract:
//! 1. No function here waits for a process. The reports of all templates arrive over one channel, with the
//!    template's generation.
//! 2. Dropping a template kills it, and none of its messages follow.

mod allocator;
mod engine;
mod environment;
mod fiber_stack;
pub(crate) mod message;
mod prepared;
mod source;
mod spawned;
mod template;

pub(crate) use engine::seats;
pub use engine::{pools, without_fork};
pub use environment::before_bundler;
pub(crate) use message::{Booted, TemplateMessage};
use crate::process::ReleaseId;
pub use prepared::{Handoff, Prepared};
use settings::Settings;
pub(crate) use source::Source;
pub(crate) use spawned::Spawner;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
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
    /// The process for the first template, if it has been started already.
    pub prepared: Handoff,
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
