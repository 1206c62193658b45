//! Tells the pool how to start the template of a new release, and watches the file that requests a reload.

use super::pool::RunningPool;
use crate::boot;
use crate::release::Releases;
use settings::Settings;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};
use workers::spawner::{BootConfig, Handoff, before_bundler};
use workers::supervisor::{Command, Refresh};

/// Tells how to start a template of a new release: in the app's directory as typed, with the settings read again and the environment from
/// before Bundler.
pub(super) fn refresh(releases: Rc<Releases>, unlink: Vec<PathBuf>) -> Refresh {
    Refresh::new(move |id, calls| {
        let release = match calls {
            None => releases.read(id)?,
            Some(calls) => releases.evaluated(id, calls)?,
        };
        let settings = release.settings.clone();
        // The app that `puma.rb` names is unknown until the file has been evaluated.
        let unknown = settings.puma_rb.as_ref().filter(|_| calls.is_none()).map(|file| file.path.clone());
        let app = settings.app.clone().or(unknown);
        let app =
            app.ok_or_else(|| format!("there is no config.ru in {} any more", settings.dir.display()))?;
        let mut environment = before_bundler(std::env::vars_os());
        environment.push(("PWD".into(), Some(OsString::from(&settings.typed_dir))));
        Ok(BootConfig {
            app,
            lib: boot::lib()?,
            settings,
            environment,
            unlink: unlink.clone(),
            prepared: Handoff::default(),
        })
    })
}

/// Interval between two checks of `tmp/restart.txt`.
const LOOK: Duration = Duration::from_millis(500);

/// Requests a reload when `tmp/restart.txt` in the app's directory is touched, as Passenger does.
pub(super) async fn follow_restart_file(dir: PathBuf, pool: Commands) {
    let file = dir.join("tmp/restart.txt");
    let mut last = touched(&file);
    loop {
        tokio::time::sleep(LOOK).await;
        let now = touched(&file);
        if now.is_some() && now != last {
            // The send fails if the pool has ended.
            let _ = pool.send(Command::Reload(None)).await;
        }
        last = now.or(last);
    }
}

/// The sender of orders to the pool.
pub(super) type Commands = tokio::sync::mpsc::Sender<Command>;

fn touched(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|about| about.modified()).ok()
}

/// Starts watching the app's `tmp/restart.txt`.
pub(super) fn follow(settings: &Settings, pool: &RunningPool) {
    if pool.app().is_some() {
        let dir = settings.typed_dir.clone();
        net::task::spawn_local(follow_restart_file(dir, pool.commands.clone()));
    }
}
