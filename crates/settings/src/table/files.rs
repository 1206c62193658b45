//! Files that are served without entering Ruby.

use super::entry::{Category, bare, entries, long};
use crate::kind::Completion;
use crate::kind::texts::{Path, Switch};

entries! { Category::Files;
    PUBLIC: Path = Path(Completion::Directory), {
        key: "files.public",
        flags: &[long("public", "DIR")],
        default: "public",
        doc: "Directory whose files are served before the app is asked",
        more: "It need not exist.",
        known_as: &["public_dir", "public_folder", "root"],
    }
    SERVE_PUBLIC: Switch = Switch, {
        key: "files.serve_public",
        flags: &[bare("no-public", "false")],
        default: "true",
        doc: "Serve files of the public directory",
        more: "The flag --no-public leaves every request to the app.",
        known_as: &["serve_static_files", "public_file_server"],
    }
}
