//! Reads the rules of the sites again when one of their files changes.

use super::Releases;
use crate::error_log::ErrorLog;
use crate::file_state::{EVERY, FileStamp, stamp};
use crate::sites::{Sites, load};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use tokio::task::JoinHandle;

/// Replaces the sites of the release in force whenever a file changes. Errors are written to `log` and the
/// old sites stay in force. Also runs the health checks of the sites in force.
pub(crate) async fn run(releases: Rc<Releases>, log: Arc<ErrorLog>) {
    let mut sites = releases.in_force().sites.clone();
    let mut checks = Checks::start(&sites);
    let mut seen = sites.sources.clone();
    loop {
        tokio::time::sleep(EVERY).await;
        let release = releases.in_force();
        // A reload has replaced the sites.
        if !Arc::ptr_eq(&sites, &release.sites) {
            sites = release.sites.clone();
            seen = sites.sources.clone();
            checks.restart(&sites);
        }
        let now: Vec<(PathBuf, FileStamp)> =
            seen.iter().map(|(path, _)| (path.clone(), stamp(path))).collect();
        if !release.settings.sites.cache.watch || now == seen {
            continue;
        }
        seen = now;
        match load::load(&release.settings) {
            Ok((new, notes)) => {
                notes.iter().for_each(|note| log.write(&format!("warning: {note}")));
                sites = Arc::new(new);
                seen = sites.sources.clone();
                checks.restart(&sites);
                releases.replace_sites(release.id, sites.clone());
                log.write("the rules of the static site have been read again");
            }
            Err(error) => log.write(&format!("{error}\nthe rules before this change stay in force")),
        }
    }
}

/// Health checks. Dropping this stops them.
struct Checks(Vec<JoinHandle<()>>);

impl Checks {
    fn start(sites: &Sites) -> Checks {
        let upstreams = sites.all().flat_map(|site| &site.upstreams);
        let checked = upstreams.filter(|upstreams| upstreams.config().health.is_some());
        Checks(
            checked.map(|upstreams| net::task::spawn_local(proxy::check_health(upstreams.clone()))).collect(),
        )
    }
}

impl Checks {
    /// Stops the checks of the old sites and starts those of the new ones.
    fn restart(&mut self, sites: &Sites) {
        *self = Checks::start(sites);
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}
