//! The served app or site, and the server process.

use std::path::PathBuf;

use super::entry::{Category, Flag, bare, entries, long, section, short};
use crate::kind::Completion;
use crate::kind::texts::{Path, Switch, Text};
use crate::kind::wrappers::Maybe;

entries! { Category::App;
    /// Directory of the app or the site, or a rackup file
    TARGET: PathBuf = Path(Completion::Any), {
        key: "dir",
        in_file: false,
        positional: Some("DIR|config.ru"),
        default: ".",
        default_shown: Some("the current directory"),
        more: "A directory is served by the config.ru in it; without one, as a static site. Workers run in the directory, and relative paths of \
               the configuration file begin there; relative paths of flags and variables begin where the command \
               is typed.",
    }
    /// Configuration file; - for none
    CONFIG: Option<PathBuf> = Maybe(Path(Completion::File)), {
        key: "config",
        in_file: false,
        flags: &[short('C', "config", "PATH")],
        default_shown: Some("firebrick.toml in the app's directory, or else config/puma.rb, if there is one"),
        more: "A name that ends in .rb is that of Puma's file (docs/puma-rb.md); firebrick.toml is then read as well, and counts before it.",
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

    /// RACK_ENV of the app
    environment: String = Text, {
        key: "environment",
        flags: &[short('e', "environment", "NAME")],
        env: &["APP_ENV", "RACK_ENV", "RAILS_ENV"],
        default: "development",
        more: "In development, error pages show the exception and its backtrace; elsewhere they are plain.",
        known_as: &["env", "rack_env", "rails_env", "app_env"],
    }
    /// File that holds the process id while the server runs
    pidfile: Option<PathBuf> = Maybe(Path(Completion::File)), {
        key: "pidfile",
        flags: &[long("pidfile", "PATH")],
        env: &["PIDFILE"],
        default_shown: Some("none"),
        known_as: &["pid", "pid_file"],
    }
    /// Directory for bodies that are too large for memory
    temp_dir: PathBuf = Path(Completion::Directory), {
        key: "temp_dir",
        flags: &[long("temp-dir", "DIR")],
        env: &["TMPDIR"],
        default: "/tmp",
        more: "Files there are unlinked as soon as they are created, so none is left behind. A directory on a disk \
               rather than in memory keeps large uploads from counting as memory.",
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
