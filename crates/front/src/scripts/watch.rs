//! Reads handlers again when a file changes that the settings name or that a handler has required.

use super::{Edition, plan};
use crate::error_log::ErrorLog;
use crate::sites::watch::{EVERY, Mark, marks};
use settings::Settings;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A file that has not changed for this long is complete.
const SETTLED: Duration = Duration::from_millis(50);

/// Sends new handlers to `threads` whenever a file changes. A syntax error is written to `log` and the old handlers stay.
pub(crate) async fn run(
    settings: watch::Receiver<Arc<Settings>>,
    threads: watch::Sender<Arc<Edition>>,
    log: Arc<ErrorLog>,
) {
    if !settings.borrow().sites.cache.watch {
        std::future::pending::<()>().await;
    }
    let sources = |edition: &Edition| edition.plan.sources.iter().map(|source| source.file.clone()).collect();
    let mut edition = threads.borrow().clone();
    let mut files = Files::new(sources(&edition));
    loop {
        tokio::time::sleep(EVERY).await;
        // A reload has replaced the handlers.
        if !Arc::ptr_eq(&edition, &threads.borrow()) {
            edition = threads.borrow().clone();
            files = Files::new(sources(&edition));
        }
        if !files.changed(script::required()) {
            continue;
        }
        // The file may be incomplete: half of a file can be valid Ruby.
        loop {
            tokio::time::sleep(SETTLED).await;
            if !files.changed(Vec::new()) {
                break;
            }
        }
        let settings = settings.borrow().clone();
        match plan(&settings) {
            Ok(Some(new)) => {
                edition = Edition::new(new);
                threads.send_replace(edition.clone());
            }
            Ok(None) => {}
            Err(error) => log.write(&format!("{error}\nthe handlers before this change stay in force")),
        }
    }
}

/// The watched files, each with its last state.
struct Files(BTreeMap<PathBuf, Mark>);

impl Files {
    fn new(paths: Vec<PathBuf>) -> Files {
        let seen = marks(&paths);
        Files(paths.into_iter().zip(seen).collect())
    }

    /// Whether a file has changed. New files in `more` are watched from now on.
    fn changed(&mut self, more: Vec<PathBuf>) -> bool {
        let paths: Vec<PathBuf> = self.0.keys().cloned().collect();
        let now = marks(&paths);
        let changed = !now.iter().eq(self.0.values());
        self.0 = paths.into_iter().zip(now).collect();
        let fresh: Vec<PathBuf> = more.into_iter().filter(|path| !self.0.contains_key(path)).collect();
        let seen = marks(&fresh);
        self.0.extend(fresh.into_iter().zip(seen));
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_added_are_watched_from_then_on() {
        let dir = tempfile::tempdir().unwrap();
        let [first, second] = ["a.rb", "b.rb"].map(|name| dir.path().join(name));
        std::fs::write(&first, "1").unwrap();
        std::fs::write(&second, "1").unwrap();
        let mut files = Files::new(vec![first.clone()]);
        let more = || vec![second.clone()];
        assert!(!files.changed(more()) && !files.changed(more()));
        std::fs::write(&second, "22").unwrap();
        assert!(files.changed(more()) && !files.changed(more()));
        std::fs::remove_file(&first).unwrap();
        assert!(files.changed(Vec::new()) && !files.changed(more()));
    }
}
