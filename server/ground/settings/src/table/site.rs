//! Static sites: options of the server that do not belong in `static.json`.

use std::path::PathBuf;

use super::entry::{Category, bare, entries, long};
use super::section::section;
use crate::kind::Completion;
use crate::kind::numbers::{Count, Size};
use crate::kind::texts::{Path, Switch};
use crate::kind::wrappers::Maybe;

entries! { Category::Site;
    /// Directory to serve as a static site
    ROOT: Option<PathBuf> = Maybe(Path(Completion::Directory)), {
        key: "site.root",
        flags: &[long("root", "DIR")],
        default_shown: Some("root in static.json, else _site, public_html, dist, build or the directory"),
        more: "Without this setting, a directory is a static site if it has static.json, _site/, public_html/, \
               dist/index.html, build/index.html or index.html, but no config.ru.",
        reloadable: true,
        reload_only: true,
        known_as: &["document_root", "docroot"],
    }
    /// File with the rules of the static site
    STATIC_JSON: Option<PathBuf> = Maybe(Path(Completion::File)), {
        key: "site.static_json",
        flags: &[long("static-json", "FILE")],
        default_shown: Some("static.json in the directory, if it exists"),
        more: "If there is a config.ru, too, the rules are applied first, then the app gets the request.",
        reloadable: true,
        reload_only: true,
        known_as: &["static_json", "rules"],
    }
}

section! { Category::Site;
    /// Additions to the pages of static sites.
    SitePages:

    /// List the files of folders that have no index
    browse: bool = Switch, {
        key: "site.browse",
        flags: &[bare("browse", "true")],
        default: "false",
        more: "The same as directory_listing in static.json, for all sites.",
        reloadable: true,
        reload_only: true,
    }
    /// Send the index at the top for paths without a file
    spa: bool = Switch, {
        key: "site.spa",
        flags: &[bare("spa", "true")],
        default: "false",
        more: "For apps of one page, whose script reads the path. Paths whose last name has a dot, such as /app.js, get 404. Rules of \
               static.json come first. In front of an app this has no effect.",
        reloadable: true,
        reload_only: true,
        known_as: &["single_page"],
    }
    /// Change pages in the browser when a file is saved
    live_reload: bool = Switch, {
        key: "site.live_reload",
        flags: &[bare("live-reload", "true")],
        default: "false",
        more: "For writing a site: pages of HTML get a script, and are not cached. The place in the page and typed text stay. Not for \
               sites in front of an app.",
        reloadable: true,
        reload_only: true,
    }
}

section! { Category::Site;
    /// How files of static sites are kept and watched.
    FileCache:

    /// Reload static.json and .htpasswd when they change
    watch: bool = Switch, {
        key: "site.watch",
        flags: &[bare("no-watch", "false")],
        off: "Do not reload static.json and .htpasswd when they change",
        default: "true",
        more: "If a new version has a mistake, the server logs it and keeps the old version. Changed files of the site are always \
               served at once.",
    }
    /// Maximum number of files that each front thread keeps open
    open_files: usize = Count { min: 16, max: 1_000_000 }, {
        key: "site.open_files",
        flags: &[long("open-files", "N")],
        default: "10000",
        more: "All front threads together keep at most a quarter of the descriptors that the process can open.",
        known_as: &["open_file_cache"],
    }
    /// Memory of each front thread for caching small files
    cache_memory: u64 = Size { min: 0, max: 1 << 40 }, {
        key: "site.cache_memory",
        flags: &[long("cache-memory", "SIZE")],
        default: "4MiB",
        more: "Compressed versions can use up to half as much in addition.",
    }
}
