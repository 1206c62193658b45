//! Starts new code, and watches the file that requests a reload.

use super::configuration::{Configuration, with_rules};
use super::pool::RunningPool;
use crate::boot;
use crate::error_log::ErrorLog;
use crate::scripts;
use crate::sites::load::load as load_sites;
use ::pool::spawner::{BootConfig, Handoff, before_bundler};
use ::pool::supervisor::{Command, Refresh};
use settings::puma::Call;
use settings::{Limits, Loaded, Mruby, Rack, Route, Settings, Sites, Timeouts};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Loads the settings again, with the arguments and the directory (as typed) of the start. The parameter
/// holds the calls of `puma.rb`, if there is one and it has been evaluated.
pub type Reread = Rc<dyn Fn(Option<&[Call]>) -> Result<Loaded, String>>;

/// Tells how to start a template with new code: in the app's directory as typed, with the settings read again
/// and the environment from before Bundler.
pub(super) fn refresh(
    reread: Reread,
    configuration: &Configuration,
    unlink: Vec<PathBuf>,
    log: Arc<ErrorLog>,
) -> Refresh {
    let (settings, sites) = (configuration.watch_settings(), configuration.watch_sites());
    Refresh::new(move |calls| {
        let fresh = with_rules(reread(calls)?, &sites.borrow());
        // The app that `puma.rb` names is unknown until the file has been evaluated.
        let unknown = fresh.puma_rb.as_ref().filter(|_| calls.is_none()).map(|file| file.path.clone());
        let app = fresh
            .app
            .clone()
            .or(unknown.clone())
            .ok_or_else(|| format!("there is no config.ru in {} any more", fresh.dir.display()))?;
        let mut environment = before_bundler(std::env::vars_os());
        environment.push(("PWD".into(), Some(OsString::from(&fresh.typed_dir))));
        // The same applies to its settings. This closure runs again after the evaluation.
        if let Some(text) = takes_restart(&settings.borrow(), &fresh).filter(|_| unknown.is_none()) {
            log.write(&format!("warning: {text}"));
        }
        let settings = Arc::new(merge(&settings.borrow(), fresh));
        // A release's rules for files and handlers are checked before any part of it serves.
        load_sites(&settings)?;
        scripts::plan(&settings)?;
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

/// Returns a warning if the change of `fiber_paths` needs a restart.
fn takes_restart(now: &Settings, fresh: &Settings) -> Option<String> {
    let text = |settings: &Settings| settings.fiber_paths_text().filter(|_| settings.fibers > 0);
    match (text(now), text(fresh)) {
        (None, Some(paths)) => Some(format!(
            "fiber_paths ({paths}) takes effect only after a restart, because the running workers do not have both threads and fibers"
        )),
        (Some(paths), None) => Some(format!(
            "without fiber_paths a restart is needed: fibers still serve {paths}, and threads all others"
        )),
        (None, None) | (Some(_), Some(_)) => None,
    }
}

/// Merges the settings in force with those of `fresh` that can change at run time: the options that the table marks as `reloadable`.
///
/// Whether workers have fibers beside threads (`fiber_paths`) determines their numbers of links and threads, which a reload cannot change.
fn merge(now: &Settings, fresh: Settings) -> Settings {
    let stays = now.fiber_paths.is_empty() || fresh.fiber_paths.is_empty();
    Settings {
        fiber_paths: if stays { now.fiber_paths.clone() } else { fresh.fiber_paths },
        dir: fresh.dir,
        app: fresh.app,
        puma_rb: fresh.puma_rb,
        workers: fresh.workers,
        workers_auto: fresh.workers_auto,
        limits: Limits { max_queue: now.limits.max_queue, ..fresh.limits },
        timeouts: Timeouts {
            worker_boot: now.timeouts.worker_boot,
            shutdown: now.timeouts.shutdown,
            // A property of the listening sockets.
            tcp_keepalive: now.timeouts.tcp_keepalive,
            ..fresh.timeouts
        },
        rack: Rack {
            ruby: fresh.rack.ruby,
            yjit: fresh.rack.yjit,
            allocator: fresh.rack.allocator,
            warmup: fresh.rack.warmup,
            compact: fresh.rack.compact,
            out_of_band_gc: fresh.rack.out_of_band_gc,
            refork_after: fresh.rack.refork_after,
            fiber_slice: fresh.rack.fiber_slice,
            fiber_stack: fresh.rack.fiber_stack,
            blocking_call: fresh.rack.blocking_call,
            ..now.rack.clone()
        },
        reload: fresh.reload,
        files: fresh.files,
        sites: Sites { cache: now.sites.cache.clone(), ..fresh.sites },
        mruby: Mruby { routes: routes(&now.mruby, fresh.mruby), ..now.mruby.clone() },
        sendfile: fresh.sendfile,
        services: fresh.services,
        rate_limits: fresh.rate_limits,
        ..now.clone()
    }
}

/// Returns the handlers that `fresh` names, with the limits in force.
fn routes(now: &Mruby, fresh: Mruby) -> Vec<Route> {
    let limited = |route: Route| match now.routes.iter().find(|one| one.path == route.path) {
        Some(one) => Route { limits: one.limits.clone(), ..route },
        None => route,
    };
    fresh.routes.into_iter().map(limited).collect()
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
        tokio::task::spawn_local(follow_restart_file(dir, pool.commands.clone()));
    }
}

#[cfg(test)]
mod tests;
