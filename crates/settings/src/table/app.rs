//! What is served, and what the run is called.

use super::entry::{Category, bare, entries, long, short};
use crate::kind::Completion;
use crate::kind::texts::{Path, Switch, Text};
use crate::kind::wrappers::Maybe;

entries! { Category::App;
    TARGET: Path = Path(Completion::Any), {
        key: "dir",
        in_file: false,
        positional: Some("DIR|config.ru"),
        default: ".",
        default_shown: Some("the current directory"),
        doc: "Directory of the app or the site, or a rackup file",
        more: "A directory is served by the config.ru in it; without one, as a static site. Workers run in the directory, and relative paths of \
               the configuration file begin there; relative paths of flags and variables begin where the command \
               is typed.",
    }
    CONFIG: Maybe<Path> = Maybe(Path(Completion::File)), {
        key: "config",
        in_file: false,
        flags: &[short('C', "config", "PATH")],
        default_shown: Some("firebrick.toml in the app's directory, if there is one"),
        doc: "Configuration file; - for none",
    }
    ENVIRONMENT: Text = Text, {
        key: "environment",
        flags: &[short('e', "environment", "NAME")],
        env: &["APP_ENV", "RACK_ENV", "RAILS_ENV"],
        default: "development",
        doc: "What the app is told as RACK_ENV",
        more: "In development, error pages show the exception and its backtrace; elsewhere they are plain.",
        known_as: &["env", "rack_env", "rails_env", "app_env"],
    }
    TAG: Maybe<Text> = Maybe(Text), {
        key: "tag",
        flags: &[long("tag", "NAME")],
        default_shown: Some("the name of the app's directory"),
        doc: "Name shown in process titles",
    }
    PIDFILE: Maybe<Path> = Maybe(Path(Completion::File)), {
        key: "pidfile",
        flags: &[long("pidfile", "PATH")],
        env: &["PIDFILE"],
        default_shown: Some("none"),
        doc: "File that holds the process id while the server runs",
        known_as: &["pid", "pid_file"],
    }
    TEMP_DIR: Path = Path(Completion::Directory), {
        key: "temp_dir",
        flags: &[long("temp-dir", "DIR")],
        env: &["TMPDIR"],
        default: "/tmp",
        doc: "Directory for bodies too large for memory",
        more: "Files there are unlinked as soon as they are made, so none is left behind. A directory on a disk \
               rather than in memory keeps large uploads from counting as memory.",
        known_as: &["tmp_dir", "tmpdir"],
    }
    QUIET: Switch = Switch, {
        key: "quiet",
        flags: &[super::entry::Flag { short: Some('q'), ..bare("quiet", "true") }],
        default: "false",
        doc: "Start without the banner",
        known_as: &["silent"],
    }
}
