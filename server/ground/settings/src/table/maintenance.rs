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

    /// HTML file to send during maintenance
    page: Option<PathBuf> = Maybe(Path(Completion::File)), {
        key: "maintenance.page",
        flags: &[long("maintenance-page", "FILE")],
        default_shown: Some("the server's own page"),
        more: "UTF-8, up to 512 KiB, and self-contained: the files that it links to get the same response, unless `maintenance.allow_paths` \
               names them. The server reads the file when maintenance begins. Clients that accept JSON but not HTML get JSON.",
        reloadable: true,
        known_as: &["maintenance_page", "maintenance_page_path"],
    }
    /// Time after which clients should retry, for Retry-After
    retry_after: Duration = Period { min: Duration::from_secs(1), max: Duration::from_secs(86_400) }, {
        key: "maintenance.retry_after",
        flags: &[long("maintenance-retry-after", "TIME")],
        default: "5m",
        reloadable: true,
    }
    /// Addresses and networks of clients that are served during maintenance
    allow: Vec<Cidr> = Networks, {
        key: "maintenance.allow",
        flags: &[long("maintenance-allow", "NETWORKS")],
        default_shown: Some("none"),
        more: "The client's address is that of the connection, or the one that trusted proxies report in X-Forwarded-For \
               (rack.trusted_proxies).",
        reloadable: true,
    }
    /// Paths that are served during maintenance, with all paths below them
    allow_paths: Vec<String> = PathPrefixes, {
        key: "maintenance.allow_paths",
        flags: &[long("maintenance-allow-paths", "PATHS")],
        default_shown: Some("none"),
        reloadable: true,
    }
    /// Whether the server counts as ready during maintenance
    ready: bool = Switch, {
        key: "maintenance.ready",
        flags: &[bare("no-maintenance-ready", "false")],
        default: "true",
        off: "Report not ready during maintenance",
        more: "A load balancer sends no requests to a server that is not ready, so clients do not see the maintenance page.",
        reloadable: true,
    }
    /// File whose existence switches maintenance on
    file: Option<PathBuf> = Maybe(Path(Completion::File)), {
        key: "maintenance.file",
        flags: &[long("maintenance-file", "FILE")],
        default_shown: Some("none"),
        more: "For example public/system/maintenance.html, which Capistrano writes. A file whose name ends in .html is the page; any other file \
               contains the message for the server's own page. The server checks for the file twice a second.",
        reloadable: true,
        known_as: &["maintenance_file"],
    }
}
