//! Static sites: options of the server that do not belong in `static.json`.

use std::path::PathBuf;

use super::entry::{Category, bare, entries, long, section};
use crate::kind::Completion;
use crate::kind::numbers::{Count, Size};
use crate::kind::texts::{Path, Switch};
use crate::kind::wrappers::Maybe;

entries! { Category::Site;
    /// Directory whose files are served as a static site
    ROOT: Option<PathBuf> = Maybe(Path(Completion::Directory)), {
        key: "site.root",
        flags: &[long("root", "DIR")],
        default_shown: Some("root of static.json, else _site, public_html, dist, build or the directory"),
        more: "Without it a directory is a static site when it holds static.json, _site/, public_html/, \
               dist/index.html, build/index.html or index.html, and no config.ru.",
        reloadable: true,
        known_as: &["document_root", "docroot"],
    }
    /// Rules of the static site
    STATIC_JSON: Option<PathBuf> = Maybe(Path(Completion::File)), {
        key: "site.static_json",
        flags: &[long("static-json", "FILE")],
        default_shown: Some("static.json in the directory, if there is one"),
        more: "Next to a config.ru, its rules come first, then the app.",
        reloadable: true,
        known_as: &["static_json", "rules"],
    }
}

section! { Category::Site;
    /// How files of static sites are kept and watched.
    FileCache:

    /// Read static.json and .htpasswd again when they change
    watch: bool = Switch, {
        key: "site.watch",
        flags: &[bare("no-watch", "false")],
        default: "true",
        more: "A new version with a mistake is logged, and the old one stays in force. Changed files are served at once \
               in any case.",
    }
    /// Files that each front thread keeps open
    open_files: usize = Count { min: 16, max: 1_000_000 }, {
        key: "site.open_files",
        flags: &[long("open-files", "N")],
        default: "10000",
        more: "At most a quarter of the descriptors that the process may have, shared by all front threads.",
        known_as: &["open_file_cache"],
    }
    /// Memory of each front thread for small files
    cache_memory: u64 = Size { min: 0, max: 1 << 40 }, {
        key: "site.cache_memory",
        flags: &[long("cache-memory", "SIZE")],
        default: "4MiB",
        more: "Compressed versions may use half as much again.",
    }
}
