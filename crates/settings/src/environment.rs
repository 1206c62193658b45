//! What loading reads from the process it runs in; a trait, so that tests can replace it.

use std::path::PathBuf;

use crate::machine::Machine;

/// Variables by which a service manager speaks to the server (`sd_notify(3)`, `sd_listen_fds(3)`). The app must not get them: it would speak in
/// the server's name.
pub const SERVICE_MANAGER_VARIABLES: [&str; 7] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PIDFDID",
];

/// The variable by which a program that is upgraded announces to the new one that it hands over its sockets. The app must not get it.
pub const HANDOVER_VARIABLE: &str = "FIREBRICK_HANDOVER";

/// The surroundings that settings depend on.
pub trait Environment {
    /// An environment variable; bytes that are not UTF-8 are replaced.
    fn var(&self, name: &str) -> Option<String>;
    /// Where the command was typed, absolute, with the links by which the shell got there.
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
        let real = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        // The shell keeps the links by which it got here.
        let named = std::env::var_os("PWD").map(PathBuf::from).filter(|path| path.is_absolute());
        named.filter(|named| named.canonicalize().is_ok_and(|found| found == real)).unwrap_or(real)
    }

    fn uid(&self) -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn machine(&self) -> Machine {
        Machine::read()
    }
}

/// The surroundings of this process, but for the directory in which a command was typed: a link may lead elsewhere by now.
#[derive(Clone, Debug)]
pub struct At(pub PathBuf);

impl Environment for At {
    fn var(&self, name: &str) -> Option<String> {
        ProcessEnvironment.var(name)
    }

    fn current_dir(&self) -> PathBuf {
        self.0.clone()
    }

    fn uid(&self) -> u32 {
        ProcessEnvironment.uid()
    }

    fn machine(&self) -> Machine {
        ProcessEnvironment.machine()
    }
}

/// Where this user's servers keep what must outlive them: `$STATE_DIRECTORY` (systemd's), `$XDG_STATE_HOME/firebrick` or
/// `~/.local/state/firebrick`.
pub(crate) fn state_dir(environment: &dyn Environment) -> PathBuf {
    let absolute =
        |name| environment.var(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    // systemd separates several with colons.
    let systemd = environment.var("STATE_DIRECTORY");
    let systemd = systemd.and_then(|dirs| dirs.split(':').next().map(PathBuf::from));
    systemd
        .filter(|path| path.is_absolute())
        .or_else(|| absolute("XDG_STATE_HOME").map(|dir| dir.join("firebrick")))
        .or_else(|| absolute("HOME").map(|dir| dir.join(".local/state/firebrick")))
        .unwrap_or_else(|| PathBuf::from("/var/lib/firebrick"))
}
