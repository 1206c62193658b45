//! Runs `firebrick serve` from start to end.
//!
//! [`run`] lists the stages; each stage is a file below (settings, sites and handlers are a
//! [release](crate::release)): [`logs`], [`sockets`] (ports, control socket, pid file), [`boot`] (the app's
//! workers), [`reload`] (how new code starts), [`threads`] (front threads), [`interruptions`] (pauses and
//! maintenance), [`changes`] (of settings), [`lifecycle`] (from the open port to the end), [`upgrade`] (handovers from and to another
//! program). [`server`] holds the parts that lifecycle and upgrade both use. The control socket reads
//! [`observer`], [`snapshot`], [`in_flight`] and [`heap`].

mod changes;
mod heap;
mod in_flight;
mod interruptions;
mod lifecycle;
mod logs;
mod observer;
mod profile;
mod reload;
mod server;
mod snapshot;
mod sockets;
mod threads;
mod upgrade;

use crate::banner::Banner;
use crate::boot::{self, BootedWorkers};
use crate::caching::SharedPurges;
use crate::error_log::ErrorLog;
use crate::handover::{self, Predecessor, Started, UpgradeRecord};
use crate::hub::{Publishing, SharedHub};
use crate::listen::passed;
use crate::release::{Releases, Reread, watch_handlers, watch_sites};
use crate::services::Services;
use crate::signals::Signals;
use crate::systemd::activation::Activated;
use crate::systemd::notify::Notifier;
use crate::tls::{Encryption, development};
use crate::traces::Traces;
use crate::vitals::Vitals;
use cache::Store;
use interruptions::Interruptions;
use lifecycle::Lifecycle;
use logs::Logs;
use observer::Observer;
use reload::Reloads;
use server::Server;
use settings::{Loaded, Settings};
use snapshot::Snapshotter;
use sockets::{InheritedSockets, Sockets};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use threads::Threads;
use tokio::runtime::{Builder, LocalOptions};
use upgrade::Upgrades;

/// Extra boot time of a new program, beyond the app's.
const BOOT_SPARE: Duration = Duration::from_secs(10);

/// How long the end of the server waits for the deletion of files of the cache.
const LAST_DELETIONS: Duration = Duration::from_secs(2);

/// Serves an app or a site until a signal stops it. Returns 0 after an orderly end and 1 if the server could
/// not start. `reread` loads the settings again for a reload; `started` tells an upgrade how to start the
/// program again.
pub fn serve(loaded: Loaded, reread: Reread, started: Started) -> ExitCode {
    match serve_as(loaded, reread, started, None) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Like [`serve`], with the app in an `attached` process if there is one.
///
/// # Errors
/// The reason why the server does not start. The old program of an upgrade has received it.
pub(crate) fn serve_as(
    loaded: Loaded,
    reread: Reread,
    started: Started,
    attached: Option<Arc<UnixStream>>,
) -> Result<(), String> {
    // Must run before any thread starts.
    let begin = || {
        let (handed, predecessor) = handover::receive()?.unzip();
        Ok::<_, String>((Activated::receive()?, handed.unwrap_or_default(), predecessor.map(Rc::new)))
    };
    let (activated, handed, predecessor) = begin()?;
    let outcome = match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
        Ok(runtime) => {
            let old = predecessor.as_ref().map(|predecessor| predecessor.pid());
            let given = InheritedSockets { activated, handed, old };
            runtime.block_on(run(loaded, reread, started, given, predecessor.clone(), attached))
        }
        Err(e) => Err(format!("no event loop: {e}")),
    };
    if let (Err(error), Some(predecessor)) = (&outcome, predecessor) {
        predecessor.fail(error);
    }
    outcome
}

async fn run(
    loaded: Loaded,
    reread: Reread,
    mut started_as: Started,
    mut given: InheritedSockets,
    predecessor: Option<Rc<Predecessor>>,
    attached: Option<Arc<UnixStream>>,
) -> Result<(), String> {
    let (begun, started) = (Instant::now(), SystemTime::now());
    raise_open_files();
    if let Some(old) = &predecessor {
        old.within(loaded.settings.timeouts.worker_boot + BOOT_SPARE);
    }
    let (mut loaded, prepared) = boot::configure(loaded, &reread, attached.as_deref())?;
    loaded.puma_notes().for_each(|note| output::complain(format_args!("{note}")));
    passed::name_addresses(&mut loaded.settings, &mut given.activated, &mut given.handed)?;
    let releases = Rc::new(Releases::first(loaded, reread)?);
    let settings = releases.settings();
    started_as.link(&settings.dir, &settings.typed_dir);
    if let Some(old) = &predecessor {
        // The boot time of the template, then of the workers.
        old.within(settings.timeouts.worker_boot * 2 + BOOT_SPARE);
        old.step(&format!("Firebrick {} loads the app beside this program", crate::VERSION));
    }
    let mut signals = Signals::listen().map_err(|e| format!("cannot handle signals: {e}"))?;
    let logs = Logs::open(&releases)?;
    crate::memory::begin(&settings, &logs.error);
    if let Some(file) = predecessor.as_ref().and_then(|old| old.recent())
        && let Err(error) = releases.recent.inherit(file)
    {
        logs.error.write(&format!("the recent requests of the old program are not repeated: {error}"));
    }
    let encryption = Arc::new(Encryption::read(&settings)?);
    encryption.warnings.iter().for_each(|warning| logs.error.write(&format!("warning: {warning}")));
    development::serve(&settings, &encryption.certificates, &logs.error)?;
    let mut sockets = Sockets::bind(&settings, given, &logs)?;
    encryption.obtain(&settings, &logs.error)?;
    encryption.bound(sockets.addresses());
    let hub = SharedHub::new(&settings, settings.front_threads as usize, predecessor.is_some());
    let publishing = match &hub {
        Some((hub, _)) => {
            let log = logs.error.clone();
            let log = move |what: &str| log.write(what);
            Some(Publishing::start(hub.clone(), &settings, predecessor.is_some(), log)?)
        }
        None => None,
    };
    let vitals = Vitals::new(settings.front_threads as usize);
    let interruptions = Interruptions::new(&releases, &vitals, &logs.error);
    let (observer, wishes) = Observer::new(&settings, &vitals, &interruptions, started);
    let control_lines = sockets.control_lines();
    if predecessor.is_none() {
        sockets.serve_control(observer.clone());
    }
    let systemd = Notifier::new(&logs.error, predecessor.is_some());
    systemd.booting();
    let restart_file = reload::RestartFile::of(&settings);
    let booting =
        BootedWorkers::boot(&releases, sockets.files(), prepared, &mut signals, &logs.error, attached);
    let Some(workers) = booting.await? else {
        return Ok(());
    };
    vitals.booted(workers.shared());
    interruptions.booted(workers.shared());
    if let Some(old) = &predecessor {
        old.step("the app is loaded, the workers start");
    }
    let traces = Traces::start(&settings, &logs.error)?;
    let maintenance = interruptions.maintenance_of_threads();
    let starting = Threads::start(
        &releases,
        workers.shared(),
        &encryption,
        &vitals,
        &maintenance,
        &logs,
        (traces.as_ref(), hub),
    );
    let threads = starting.await?;
    interruptions.changes().keep(threads.store.clone());
    net::task::spawn_local(watch_sites::run(releases.clone(), logs.error.clone()));
    net::task::spawn_local(watch_handlers::run(releases.clone(), logs.error.clone()));
    encryption.follow_files(settings.clone(), logs.error.clone());
    let workers = workers.run();
    if let Some(facts) = workers.facts() {
        // The banner prints the notes.
        releases.declared(releases.in_force().id, facts.services.clone(), &facts.files);
    }
    let reloads = Reloads::new(workers.commands.clone());
    if workers.app().is_some_and(|app| app.source.can_replace) {
        restart_file.follow(&reloads);
    }
    let banner = Banner::new(&settings, workers.facts(), control_lines, begun, workers.are_attached());
    let record = UpgradeRecord::new(predecessor.as_deref());
    let snapshotter =
        Snapshotter::new(&releases, &workers, &threads, &encryption, &interruptions, &record, started);
    let declared = workers.facts().map_or(Vec::new(), |facts| facts.services.clone());
    let services =
        Services::new(logs.error.clone(), snapshotter.services(), workers.commands.clone(), declared);
    observer.begin(snapshotter, reloads.clone());
    if let Some(store) = &threads.store {
        share_purges(&settings, store, &observer, &logs.error)?;
    }
    let store = threads.store.clone();
    let server = Server {
        releases: &releases,
        logs: &logs,
        encryption: &encryption,
        vitals: &vitals,
        observer,
        interruptions,
        systemd,
        sockets,
        workers,
        reloads,
        threads: Some(threads),
        publishing,
        services,
        banner,
    };
    let upgrades = Upgrades::new(started_as, wishes, record, predecessor);
    let outcome = Lifecycle::new(server, upgrades).run(signals).await;
    encryption.stop_obtaining();
    if let Some(traces) = traces
        && !traces.close().await
    {
        logs.error.write("traces: the last spans could not be exported in time");
    }
    if let Some(store) = store {
        // Files of removed responses must not outlive this process. A hanging disk does not delay the exit.
        let _ = tokio::time::timeout(LAST_DELETIONS, store.flushed()).await;
    }
    logs.close();
    outcome
}

/// Carries out the purges of other servers, and publishes those of this server, with `shared.redis`.
fn share_purges(
    settings: &Settings,
    store: &Arc<Store>,
    observer: &Observer,
    log: &Arc<ErrorLog>,
) -> Result<(), String> {
    if let Some(purges) = SharedPurges::new(settings)? {
        let log = log.clone();
        net::task::spawn_local(purges.clone().follow(store.clone(), move |what| log.write(what)));
        observer.share(purges);
    }
    Ok(())
}

/// Raises the limit of open descriptors to the maximum: each connection needs one.
fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If the system refuses, the current limit stays in force.
    let _ = setrlimit(Resource::Nofile, limit);
}
