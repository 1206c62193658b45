//! Static sites: what `static.json` does not say because it belongs to the server.

use super::entry::{Category, bare, entries, long};
use crate::kind::Completion;
use crate::kind::numbers::{Count, Size};
use crate::kind::texts::{Path, Switch};
use crate::kind::wrappers::Maybe;

entries! { Category::Site;
    ROOT: Maybe<Path> = Maybe(Path(Completion::Directory)), {
        key: "site.root",
        flags: &[long("root", "DIR")],
        default_shown: Some("root of static.json, else _site, public_html, dist, build or the directory"),
        doc: "Directory whose files are served as a static site",
        more: "Without it a directory is a static site when it holds static.json, _site/, public_html/, \
               dist/index.html, build/index.html or index.html, and no config.ru.",
        known_as: &["document_root", "docroot"],
    }
    STATIC_JSON: Maybe<Path> = Maybe(Path(Completion::File)), {
        key: "site.static_json",
        flags: &[long("static-json", "FILE")],
        default_shown: Some("static.json in the directory, if there is one"),
        doc: "Rules of the static site",
        more: "Beside a config.ru it stands in front of the app: files and rules first, then the app.",
        known_as: &["static_json", "rules"],
    }
    WATCH: Switch = Switch, {
        key: "site.watch",
        flags: &[bare("no-watch", "false")],
        default: "true",
        doc: "Read static.json and .htpasswd again when they change",
        more: "A new version that is wrong is reported, and the old one stays in force. Files are always served as \
               they are at the moment.",
    }
    OPEN_FILES: Count = Count { min: 16, max: 1_000_000 }, {
        key: "site.open_files",
        flags: &[long("open-files", "N")],
        default: "10000",
        doc: "Files that each front thread keeps open",
        more: "At most a quarter of the descriptors that the process may have, shared by all front threads.",
        known_as: &["open_file_cache"],
    }
    CACHE_MEMORY: Size = Size { min: 0, max: 1 << 40 }, {
        key: "site.cache_memory",
        flags: &[long("cache-memory", "SIZE")],
        default: "4MiB",
        doc: "Memory of each front thread for small files",
        more: "Half as much again may hold what was compressed.",
    }
}
