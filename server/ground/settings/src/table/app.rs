//! The served app or site, and the server process.

use std::path::PathBuf;

use super::entry::{Category, Flag, bare, entries, long, short};
use super::section::section;
use crate::kind::Completion;
use crate::kind::numbers::Permissions;
use crate::kind::texts::{Path, Switch, Text};
use crate::kind::wrappers::Maybe;

/// The name of the directory that is given without a flag, in the usage line.
pub const DIR_WORD: &str = "DIR|config.ru";

entries! { Category::App;
    /// Directory of the app or static site, or a rackup file
    TARGET: PathBuf = Path(Completion::Any), {
        key: "dir",
        in_file: false,
        flags: &[long("dir", "DIR")],
        positional: Some(DIR_WORD),
        default: ".",
        default_shown: Some("the current directory"),
        more: "If the directory has a config.ru, the server runs that app, else it serves a static site. The directory is the working directory \
               of the workers. Relative paths in the configuration file start there; relative paths in flags and variables start in the \
               directory where you run the command.",
    }
    /// Configuration file; - reads none
    CONFIG: Option<PathBuf> = Maybe(Path(Completion::File)), {
        key: "config",
        in_file: false,
        flags: &[short('C', "config", "PATH")],
        default_shown: Some("firebrick.toml in the app's directory, else config/puma.rb, if it exists"),
        more: "A name that ends in .rb is a Puma configuration file (docs/puma-rb.md). firebrick.toml is then read, too, and takes precedence.",
    }
    /// Name shown in process titles
    TAG: Option<String> = Maybe(Text), {
        key: "tag",
        flags: &[long("tag", "NAME")],
        default_shown: Some("the name of the app's directory"),
    }
}

section! { Category::App;
    /// The server as a process.
    Process:

    /// Environment of the app (RACK_ENV)
    environment: String = Text, {
        key: "environment",
        flags: &[short('e', "environment", "NAME")],
        env: &["APP_ENV", "RACK_ENV", "RAILS_ENV"],
        default: "development",
        more: "In development, error pages show the exception and its backtrace; in other environments they are plain.",
        known_as: &["env", "rack_env", "rails_env", "app_env"],
    }
    /// File for the process id while the server runs
    pidfile: Option<PathBuf> = Maybe(Path(Completion::File)), {
        key: "pidfile",
        flags: &[long("pidfile", "PATH")],
        env: &["PIDFILE"],
        default_shown: Some("none"),
        known_as: &["pid", "pid_file"],
    }
    /// Puma's state file, for `pumactl -S`, while the server runs
    state_path: Option<PathBuf> = Maybe(Path(Completion::File)), {
        key: "state_path",
        flags: &[short('S', "state", "PATH")],
        default_shown: Some("none"),
        more: "It contains the process id, the directory of the start, and the address and token of the first control server.",
        known_as: &["state", "state_file"],
    }
    /// Permissions of the state file
    state_permission: u32 = Permissions, {
        key: "state_permission",
        flags: &[long("state-permission", "MODE")],
        default: "0600",
        more: "The file may contain the token of a control port.",
    }
    /// Directory for request and response bodies that do not fit in memory
    temp_dir: PathBuf = Path(Completion::Directory), {
        key: "temp_dir",
        flags: &[long("temp-dir", "DIR")],
        env: &["TMPDIR"],
        default: "/tmp",
        more: "The server unlinks the files as soon as it has created them, so none is left behind. Use a directory on a disk: \
               in a file system in memory, large uploads count as memory.",
        known_as: &["tmp_dir", "tmpdir"],
    }
    /// Do not print the banner
    quiet: bool = Switch, {
        key: "quiet",
        flags: &[Flag { short: Some('q'), ..bare("quiet", "true") }],
        default: "false",
        known_as: &["silent"],
    }
}
