//! Value types of settings beyond numbers and text, one file each.

pub(crate) mod acme;
pub(crate) mod allocator;
pub(crate) mod bind;
pub(crate) mod control;
pub(crate) mod hsts;
pub(crate) mod log;
pub(crate) mod pool;
pub(crate) mod proxies;
pub(crate) mod public;
pub(crate) mod queue;
pub(crate) mod rate_limit;
pub(crate) mod refork;
pub(crate) mod reload;
pub(crate) mod sendfile;
pub(crate) mod server_timing;
pub(crate) mod service;
pub(crate) mod slo;
pub(crate) mod statement;
pub(crate) mod step;
pub(crate) mod threads;
pub(crate) mod tls;
pub(crate) mod workers;
pub(crate) mod yjit;

use std::path::{Path, PathBuf};

/// Resolves the path against `base` and removes `.` components.
pub(crate) fn anchored(path: &Path, base: &Path) -> PathBuf {
    base.join(path).components().collect()
}
