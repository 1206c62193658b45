//! `firebrick serve`, from the first line to the last.
//!
//! [`run`] is the table of contents; each stage is a file below:
//! [`configuration`] (settings, sites, handlers), [`logs`], [`sockets`] (ports, control socket, pid file), [`pool`] (the
//! app's workers), [`reload`] (what new code is started with), [`threads`] (front threads), [`lifecycle`] (everything from the
//! open port to the end); [`observer`], [`snapshot`] and [`in_flight`] are what the control socket reads.

mod configuration;
mod in_flight;
mod lifecycle;
mod logs;
mod observer;
mod pool;
mod reload;
mod snapshot;
mod sockets;
mod threads;

use crate::banner::Banner;
use crate::signals::Signals;
use crate::systemd::activation::Activated;
use crate::systemd::notify::Notifier;
use crate::tls::{Encryption, development};
use crate::vitals::Vitals;
use configuration::Configuration;
use lifecycle::{Lifecycle, Server};
use logs::Logs;
use observer::Observer;
use pool::Pool;
pub use reload::Reread;
use settings::Loaded;
use snapshot::Snapshotter;
use sockets::Sockets;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use threads::Threads;
use tokio::runtime::{Builder, LocalOptions};

/// Serves an app or a site until a signal stops it. 0 after an orderly end, 1 when the server could not start.
/// `reread` loads the settings again when the app is reloaded.
pub fn serve(loaded: Loaded, reread: Reread) -> ExitCode {
    // No thread has been started yet.
    let activated = match Activated::receive() {
        Ok(activated) => activated,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let runtime = match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!("error: no event loop: {e}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(loaded, reread, activated)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(loaded: Loaded, reread: Reread, activated: Activated) -> Result<(), String> {
    let (begun, started) = (Instant::now(), SystemTime::now());
    raise_open_files();
    let configuration = Configuration::read(loaded)?;
    let mut signals = Signals::listen().map_err(|e| format!("cannot handle signals: {e}"))?;
    let logs = Logs::open(&configuration)?;
    let encryption = Arc::new(Encryption::read(&configuration.settings())?);
    encryption.warnings.iter().for_each(|warning| logs.error.write(&format!("warning: {warning}")));
    development::serve(&configuration.settings(), &encryption.certificates, &logs.error)?;
    let mut sockets = Sockets::bind(&configuration.settings(), activated, &logs)?;
    encryption.obtain(&configuration.settings(), &logs.error)?;
    encryption.bound(sockets.addresses());
    let vitals = Vitals::new(configuration.settings().front_threads as usize);
    let observer = Observer::new(&configuration.settings(), &vitals, started);
    let control_lines = sockets.control_lines();
    sockets.serve_control(observer.clone());
    let systemd = Notifier::new(&logs.error);
    systemd.booting();
    let refresh = reload::refresh(reread, &configuration, sockets.files());
    let Some(pool) = Pool::boot(&configuration, refresh, sockets.files(), &mut signals).await? else {
        return Ok(());
    };
    vitals.booted(pool.shared());
    let threads = Threads::start(&configuration, pool.shared(), &encryption, &vitals, &logs).await?;
    configuration.follow_files(&logs.error);
    encryption.follow_files(configuration.settings(), logs.error.clone());
    let pool = pool.run();
    reload::follow(&configuration.settings(), &pool);
    let banner = Banner::new(&configuration.settings(), pool.facts(), control_lines, begun);
    observer.begin(Snapshotter::new(
        &configuration.settings(),
        &pool,
        &threads,
        &encryption,
        &vitals,
        started,
    ));
    let server = Server {
        configuration: &configuration,
        logs: &logs,
        encryption: &encryption,
        vitals: &vitals,
        observer,
        systemd,
    };
    let outcome = Lifecycle::new(server, sockets.ports(), pool, threads, banner).run(signals).await;
    encryption.stop_obtaining();
    logs.close();
    outcome
}

/// As many descriptors as the system lets us have: a connection is one.
fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If it is refused, the limit that is in force has to do.
    let _ = setrlimit(Resource::Nofile, limit);
}
