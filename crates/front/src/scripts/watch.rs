//! Reading handlers again when a file of theirs changes.

use super::plan;
use crate::error_log::ErrorLog;
use crate::sites::watch::{EVERY, marks};
use script::Plan;
use settings::Settings;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;

/// Gives new handlers to `threads` whenever a file changes. A syntax error is told to `log`; then the old ones stay.
pub(crate) async fn run(settings: Arc<Settings>, threads: watch::Sender<Arc<Plan>>, log: Arc<ErrorLog>) {
    if !settings.sites.watch {
        std::future::pending::<()>().await;
    }
    let sources: Vec<PathBuf> = threads.borrow().sources.iter().map(|source| source.file.clone()).collect();
    let mut seen = marks(&sources);
    loop {
        tokio::time::sleep(EVERY).await;
        let now = marks(&sources);
        if now == seen {
            continue;
        }
        seen = now;
        match plan(&settings) {
            Ok(Some(new)) => {
                threads.send_replace(new);
                log.write("the mruby handlers have been read again");
            }
            Ok(None) => {}
            Err(error) => log.write(&format!("{error}\nthe handlers before this change stay in force")),
        }
    }
}
