//! The surroundings that settings depend on, as a trait so that tests can replace them.

use std::path::PathBuf;

use sys::Machine;

/// Variables with which a service manager addresses the server (`sd_notify(3)`, `sd_listen_fds(3)`). The app
/// must not inherit them, or it could send notifications in the server's name.
pub const SERVICE_MANAGER_VARIABLES: [&str; 7] = [
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
    "LISTEN_PIDFDID",
];

/// The variable with which the old program of an upgrade tells the new one that it hands over its sockets.
/// The app must not inherit it.
pub const HANDOVER_VARIABLE: &str = "FIREBRICK_HANDOVER";

pub trait Environment {
    /// Returns an environment variable, with invalid UTF-8 replaced.
    fn var(&self, name: &str) -> Option<String>;
    /// Returns the current directory of the command, absolute, including the links by which the shell got there.
    fn current_dir(&self) -> PathBuf;
    /// Returns the effective user's id.
    fn uid(&self) -> u32;
    /// Returns the resources that this process may use.
    fn machine(&self) -> Machine;
    /// Returns whether the secrets of the file have to be known. Commands that only ask a running server do not need those whose variables
    /// are set for the server alone.
    fn needs_secrets(&self) -> bool {
        true
    }
}

/// The surroundings of a command that asks a running server.
#[derive(Clone, Copy)]
pub struct WithoutSecrets<'a>(pub &'a dyn Environment);

impl Environment for WithoutSecrets<'_> {
    fn var(&self, name: &str) -> Option<String> {
        self.0.var(name)
    }

    fn current_dir(&self) -> PathBuf {
        self.0.current_dir()
    }

    fn uid(&self) -> u32 {
        self.0.uid()
    }

    fn machine(&self) -> Machine {
        self.0.machine()
    }

    fn needs_secrets(&self) -> bool {
        false
    }
}

/// The surroundings of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    fn var(&self, name: &str) -> Option<String> {
        std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
    }

    fn current_dir(&self) -> PathBuf {
        // A deleted current directory has no name; uses of relative paths then fail with their own messages.
        let real = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("."));
        // The shell keeps links in PWD.
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

/// The surroundings of this process with another current directory, for a link that may have changed since
/// the command was typed.
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

/// Returns the folder for files that outlive this user's servers: `$STATE_DIRECTORY` (set by systemd),
/// `$XDG_STATE_HOME/firebrick` or `~/.local/state/firebrick`.
pub(crate) fn state_dir(environment: &dyn Environment) -> PathBuf {
    let absolute =
        |name| environment.var(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    // systemd separates several directories with colons.
    let systemd = environment.var("STATE_DIRECTORY");
    let systemd = systemd.and_then(|dirs| dirs.split(':').next().map(PathBuf::from));
    systemd
        .filter(|path| path.is_absolute())
        .or_else(|| absolute("XDG_STATE_HOME").map(|dir| dir.join("firebrick")))
        .or_else(|| absolute("HOME").map(|dir| dir.join(".local/state/firebrick")))
        .unwrap_or_else(|| PathBuf::from("/var/lib/firebrick"))
}
