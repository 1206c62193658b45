//! Files that are served without entering Ruby.

use std::path::PathBuf;

use super::entry::{Category, bare, entries, long};
use crate::kind::Completion;
use crate::kind::texts::{Path, Switch};

entries! { Category::Files;
    /// Directory whose files are served without entering the app
    PUBLIC: PathBuf = Path(Completion::Directory), {
        key: "files.public",
        flags: &[long("public", "DIR")],
        default: "public",
        more: "It need not exist.",
        reloadable: true,
        known_as: &["public_dir", "public_folder", "root"],
    }
    /// Serve files of the public directory
    SERVE_PUBLIC: bool = Switch, {
        key: "files.serve_public",
        flags: &[bare("no-public", "false")],
        default: "true",
        more: "The flag --no-public leaves every request to the app.",
        reloadable: true,
        known_as: &["serve_static_files", "public_file_server"],
    }
}
