//! What loading reads from the process it runs in; a trait, so that tests can replace it.

use std::path::PathBuf;

use crate::machine::Machine;

/// The surroundings that settings depend on.
pub trait Environment {
    /// An environment variable; bytes that are not UTF-8 are replaced.
    fn var(&self, name: &str) -> Option<String>;
    /// Where the command was typed, absolute.
    fn current_dir(&self) -> PathBuf;
    /// The effective user's id.
    fn uid(&self) -> u32;
    /// What the machine lets this process use.
    fn machine(&self) -> Machine;
}

/// The surroundings of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    fn var(&self, name: &str) -> Option<String> {
        std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
    }

    fn current_dir(&self) -> PathBuf {
        // A current directory that was deleted has no name; what is relative to it then fails with its own message.
        std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."))
    }

    fn uid(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn machine(&self) -> Machine {
        Machine::read()
    }
}
