//! Reads handlers again when a file changes that the settings name or that a handler has required.

use super::Releases;
use crate::error_log::ErrorLog;
use crate::file_state::{EVERY, FileStamp, stamp};
use crate::scripts::{Edition, plan};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A file that has not changed for this long is complete.
const SETTLED: Duration = Duration::from_millis(50);

/// Replaces the handlers of the release in force whenever a file changes. A syntax error is written to `log`
/// and the old handlers stay.
pub(crate) async fn run(releases: Rc<Releases>, log: Arc<ErrorLog>) {
    let mut edition = None;
    let mut files = Files::default();
    loop {
        let release = releases.in_force();
        // The first handlers, or a reload has replaced them.
        if let Some(in_force) = &release.handlers
            && !edition.as_ref().is_some_and(|known| Arc::ptr_eq(known, in_force))
        {
            edition = Some(in_force.clone());
            files = Files::new(in_force.plan.sources.iter().map(|source| source.file.clone()).collect());
        }
        tokio::time::sleep(EVERY).await;
        if !release.settings.sites.cache.watch || !files.changed(script::required()) {
            continue;
        }
        // The file may be incomplete: half of a file can be valid Ruby.
        loop {
            tokio::time::sleep(SETTLED).await;
            if !files.changed(Vec::new()) {
                break;
            }
        }
        match plan(&release.settings) {
            Ok(Some(new)) => {
                let new = Edition::new(new);
                edition = Some(new.clone());
                releases.replace_handlers(release.id, new);
            }
            Ok(None) => {}
            Err(error) => log.write(&format!("{error}\nthe handlers before this change stay in force")),
        }
    }
}

/// The watched files, each with its last state.
#[derive(Default)]
struct Files(BTreeMap<PathBuf, FileStamp>);

impl Files {
    fn new(paths: Vec<PathBuf>) -> Files {
        Files(paths.into_iter().map(|path| (path.clone(), stamp(&path))).collect())
    }

    /// Whether a file has changed. New files in `more` are watched from now on.
    fn changed(&mut self, more: Vec<PathBuf>) -> bool {
        let now = Files::new(self.0.keys().cloned().collect());
        let changed = now.0 != self.0;
        self.0 = now.0;
        for path in more {
            self.0.entry(path).or_insert_with_key(|path| stamp(path));
        }
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
