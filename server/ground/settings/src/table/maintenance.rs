//! Maintenance: the defaults of `firebrick maintenance on`.

use std::path::PathBuf;
use std::time::Duration;

use super::entry::{Category, bare, long};
use super::section::section;
use crate::kind::Completion;
use crate::kind::lists::{Networks, PathPrefixes};
use crate::kind::numbers::Period;
use crate::kind::texts::{Path, Switch};
use crate::kind::wrappers::Maybe;
use crate::value::proxies::Cidr;

section! { Category::Maintenance;
    /// The defaults of `firebrick maintenance on`.
    Maintenance:

    /// HTML file that requests get during maintenance
    page: Option<PathBuf> = Maybe(Path(Completion::File)), {
        key: "maintenance.page",
        flags: &[long("maintenance-page", "FILE")],
        default_shown: Some("the server's own page"),
        more: "UTF-8, up to 512 KiB, and self-contained: the files that it links to get the same response, unless `maintenance.allow_paths` \
               names them. It is read when maintenance begins. Clients that accept JSON and no HTML get JSON.",
        reloadable: true,
        known_as: &["maintenance_page", "maintenance_page_path"],
    }
    /// Time after which clients should come again, for Retry-After
    retry_after: Duration = Period { min: Duration::from_secs(1), max: Duration::from_secs(86_400) }, {
        key: "maintenance.retry_after",
        flags: &[long("maintenance-retry-after", "TIME")],
        default: "5m",
        reloadable: true,
    }
    /// Addresses and networks that are served during maintenance
    allow: Vec<Cidr> = Networks, {
        key: "maintenance.allow",
        flags: &[long("maintenance-allow", "NETWORKS")],
        default_shown: Some("none"),
        more: "The client's address is that of the connection, or what trusted proxies say in X-Forwarded-For (rack.trusted_proxies).",
        reloadable: true,
    }
    /// Paths that are served during maintenance, with all paths below them
    allow_paths: Vec<String> = PathPrefixes, {
        key: "maintenance.allow_paths",
        flags: &[long("maintenance-allow-paths", "PATHS")],
        default_shown: Some("none"),
        reloadable: true,
    }
    /// Whether the server stays ready during maintenance
    ready: bool = Switch, {
        key: "maintenance.ready",
        flags: &[bare("no-maintenance-ready", "false")],
        default: "true",
        off: "Be not ready during maintenance",
        more: "A load balancer sends no requests to a server that is not ready, so its clients do not see the page.",
        reloadable: true,
    }
    /// File whose existence switches maintenance on
    file: Option<PathBuf> = Maybe(Path(Completion::File)), {
        key: "maintenance.file",
        flags: &[long("maintenance-file", "FILE")],
        default_shown: Some("none"),
        more: "Such as public/system/maintenance.html, as Capistrano writes it. A file whose name ends in .html is the page; any other \
               file contains the message of the server's own page. The server looks twice a second.",
        reloadable: true,
        known_as: &["maintenance_file"],
    }
}
