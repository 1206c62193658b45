//! `firebrick serve`, from the first line to the last.

use crate::access_log;
use crate::banner;
use crate::check::explain;
use crate::control_socket;
use crate::error_log::ErrorLog;
use crate::leftovers::Leftovers;
use crate::listen::{self, Bound, Listener};
use crate::plan;
use crate::scripts;
use crate::signals::{Signals, Wish};
use crate::sites::{self, Sites};
use crate::snapshot::Camera;
use crate::thread::{self, Phase, Scripts, Seed};
use pool::Shared;
use pool::supervisor::{AppFacts, Command, Notice, Supervisor};
use settings::{Loaded, Settings};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, watch};

/// Serves an app or a site until it is told to stop. 0 after an orderly end, 1 when the server could not start.
pub fn serve(loaded: Loaded) -> ExitCode {
    let runtime = match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
        Ok(runtime) => runtime,
        Err(e) => {
            eprintln!("error: no event loop: {e}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(loaded)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(loaded: Loaded) -> Result<(), String> {
    let (begun, started) = (Instant::now(), SystemTime::now());
    raise_open_files();
    loaded.settings.something_to_serve().map_err(|nothing| nothing.to_string())?;
    let (found, notes) = sites::load::load(&loaded.settings)?;
    let settings = Arc::new(plan::with_rules(loaded, &found));
    let handlers = scripts::plan(&settings)?;
    let mut signals = Signals::listen().map_err(|e| format!("cannot handle signals: {e}"))?;
    let error_log = Arc::new(ErrorLog::open(&settings.logs.error_log)?);
    let access_log = open_access_log(&settings, &error_log)?;
    notes.iter().for_each(|note| error_log.write(&format!("warning: {note}")));

    let mut leftovers = Leftovers::default();
    let bound = listen::bind_all(&settings.binds, settings.front_threads as usize)?;
    bound.iter().filter_map(Bound::file).for_each(|file| leftovers.add(file));
    let control = control_socket::bind(&settings, &error_log)?;
    let mut unlink = leftovers.files();
    unlink.extend(control.iter().flat_map(|control| control.files().map(std::path::Path::to_owned)));
    if let Some(pidfile) = &settings.pidfile {
        leftovers.write_pidfile(pidfile)?;
        unlink.push(pidfile.clone());
    }

    let supervisor = match settings.app {
        Some(_) => match boot(&settings, unlink, &mut signals).await? {
            Some(supervisor) => Some(supervisor),
            None => return Ok(()),
        },
        None => None,
    };
    let facts: Option<AppFacts> = supervisor.as_ref().map(|supervisor| supervisor.facts().clone());
    let shared = supervisor.as_ref().map(Supervisor::shared);
    let (new_sites, sites) = watch::channel(Arc::new(found));
    let (told, mut loaded) = mpsc::unbounded_channel();
    let handlers = handlers.map(|handlers| {
        let (new, plan) = watch::channel(scripts::Edition::new(handlers));
        tokio::task::spawn_local(scripts::watch::run(settings.clone(), new, error_log.clone()));
        Scripts { plan, told }
    });
    let threads = Threads::start(
        &settings,
        shared.as_ref(),
        &sites,
        handlers.as_ref(),
        access_log.as_ref(),
        &error_log,
    )?;
    if handlers.is_some() {
        let patience = settings.timeouts.worker_boot_timeout;
        scripts::ready(&mut loaded, settings.front_threads as usize, patience).await?;
    }
    tokio::task::spawn_local(sites::watch::run(settings.clone(), new_sites, error_log.clone()));
    let (commands, orders) = mpsc::channel(16);
    let camera = Camera {
        settings: settings.clone(),
        facts: facts.clone(),
        shared,
        recorders: threads.recorders.clone(),
        handlers: threads.handlers.clone(),
        commands: commands.clone(),
        started,
        template: supervisor.as_ref().and_then(Supervisor::template_pid),
    };
    let mut asked_at = Vec::new();
    if let Some(control) = control {
        asked_at = control_socket::lines(&control);
        if settings.quiet {
            control_socket::tell_token(&control);
        }
        tokio::task::spawn_local(control.run(camera));
    }

    let (notify, mut notices) = mpsc::unbounded_channel();
    // Nobody reads notices once the server ends.
    let notify = move |notice| drop(notify.send(notice));
    let pool = match supervisor {
        Some(supervisor) => tokio::task::spawn_local(supervisor.run(orders, notify)),
        None => tokio::task::spawn_local(without_app(orders, notify)),
    };
    let mut bound = Some(bound);
    let mut outcome = Ok(());
    let mut life = Life { commands, threads: Some(threads), interrupted: false };
    tokio::pin!(pool);
    loop {
        tokio::select! {
            _ = &mut pool => break,
            Some(()) = life.drained() => life.order(Command::Drain).await,
            Some(notice) = notices.recv() => match notice {
                Notice::Log(text) => error_log.write(&text),
                Notice::Settled => match open(bound.take(), &life) {
                    Ok(addresses) => {
                        let app = facts.as_ref();
                        banner::print(&settings, app, &sites.borrow(), &asked_at, &addresses, begun.elapsed());
                    }
                    Err(e) => {
                        outcome = Err(e);
                        life.order(Command::Halt).await;
                    }
                },
                Notice::Hopeless => {
                    outcome = Err("the workers die before they can take requests; see above for the reason".to_owned());
                    life.order(Command::Halt).await;
                }
            },
            wish = signals.next() => match wish {
                Wish::Reopen => reopen(&error_log, access_log.as_ref()),
                Wish::More => life.order(Command::More).await,
                Wish::Fewer => life.order(Command::Fewer).await,
                Wish::Restart => error_log.write("USR1 and USR2 do nothing here: to load new code, start anew"),
                Wish::Stop => life.stop(false, settings.timeouts.shutdown_timeout).await,
                Wish::Interrupt => life.stop(true, settings.timeouts.shutdown_timeout).await,
            },
        }
    }
    while let Ok(Notice::Log(text)) = notices.try_recv() {
        error_log.write(&text);
    }
    if let Some(log) = access_log
        && !log.close(LAST_LINES)
    {
        error_log.write("the last lines of the access log could not be written");
    }
    outcome
}

/// What the pool would do, for a server without an app: it is there at once and ends when it is told to.
async fn without_app(mut orders: mpsc::Receiver<Command>, notify: impl Fn(Notice)) {
    notify(Notice::Settled);
    while let Some(command) = orders.recv().await {
        match command {
            Command::Drain | Command::Halt => return,
            // Who asked may have gone.
            Command::Rows(answer) => drop(answer.send(Vec::new())),
            Command::More | Command::Fewer | Command::Trace(..) => {}
        }
    }
}

/// How long the access log's output may take nothing at the end.
const LAST_LINES: Duration = Duration::from_secs(1);

fn open_access_log(
    settings: &Settings,
    error_log: &Arc<ErrorLog>,
) -> Result<Option<access_log::Output>, String> {
    let log = error_log.clone();
    access_log::Output::open(&settings.logs.access_log, move |what| log.write(what))
        .map_err(|e| e.to_string())
}

/// As many descriptors as the system lets us have: a connection is one.
fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Not being allowed to is no reason not to serve with what there is.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Loads the app; `None` when a signal came first.
async fn boot(
    settings: &Settings,
    unlink: Vec<std::path::PathBuf>,
    signals: &mut Signals,
) -> Result<Option<Supervisor>, String> {
    let options = plan::options(settings, unlink)?;
    let timeout = settings.timeouts.worker_boot_timeout;
    let booting = tokio::time::timeout(timeout, Supervisor::boot(options));
    tokio::pin!(booting);
    loop {
        tokio::select! {
            booted = &mut booting => return match booted {
                Ok(Ok(supervisor)) => Ok(Some(supervisor)),
                Ok(Err(error)) => Err(explain(&error, settings)),
                Err(_) => Err(format!("the app did not load within worker_boot_timeout ({} s)", timeout.as_secs_f64())),
            },
            wish = signals.next() => if matches!(wish, Wish::Stop | Wish::Interrupt) { return Ok(None) },
        }
    }
}

fn reopen(error_log: &ErrorLog, access_log: Option<&access_log::Output>) {
    error_log.reopen();
    if let Some(Err(e)) = access_log.map(access_log::Output::reopen) {
        error_log.write(&format!("still writing to the old access log: {e}"));
    }
}

/// Opens the port and gives each thread its listeners.
fn open(bound: Option<Vec<Bound>>, life: &Life) -> Result<Vec<listen::Address>, String> {
    let mut addresses = Vec::new();
    for bound in bound.into_iter().flatten() {
        let address = bound.address().clone();
        let listeners = bound.listen().map_err(|e| format!("cannot listen on {address}: {e}"))?;
        if let Some(threads) = &life.threads {
            threads.give(listeners);
        }
        addresses.push(address);
    }
    Ok(addresses)
}

/// All front threads.
struct Threads {
    listeners: Vec<mpsc::UnboundedSender<Listener>>,
    recorders: Vec<stats::Recorder>,
    /// What each thread's handlers on mruby do; none where there are no routes to any.
    handlers: Vec<stats::HandlerCounts>,
    phase: watch::Sender<Phase>,
    drained: mpsc::Receiver<()>,
}

impl Threads {
    fn start(
        settings: &Arc<Settings>,
        shared: Option<&Arc<Shared>>,
        sites: &watch::Receiver<Arc<Sites>>,
        scripts: Option<&Scripts>,
        access_log: Option<&access_log::Output>,
        error_log: &Arc<ErrorLog>,
    ) -> Result<Threads, String> {
        let (phase, in_phase) = watch::channel(Phase::Serve);
        let (last, drained) = mpsc::channel(1);
        let open = Arc::new(AtomicUsize::new(0));
        let (listeners, recorders, handlers) = (Vec::new(), Vec::new(), Vec::new());
        let mut threads = Threads { listeners, recorders, handlers, phase, drained };
        for index in 0..settings.front_threads as u16 {
            let (give, listeners) = mpsc::unbounded_channel();
            let recorder = stats::Recorder::new();
            threads.listeners.push(give);
            threads.recorders.push(recorder.clone());
            let handlers = stats::HandlerCounts::default();
            threads.handlers.extend(scripts.map(|_| handlers.clone()));
            let header = settings.rack.request_id_header.as_deref();
            let seed = Seed {
                index,
                settings: settings.clone(),
                shared: shared.cloned(),
                sites: sites.clone(),
                scripts: scripts.cloned(),
                recorder,
                handlers,
                access_log: access_log.map(|log| log.log(settings.logs.log_format, header)),
                error_log: error_log.clone(),
                open: open.clone(),
                listeners,
                phase: in_phase.clone(),
                drained: last.clone(),
            };
            thread::start(seed).map_err(|e| format!("cannot start a front thread: {e}"))?;
        }
        Ok(threads)
    }

    fn give(&self, listeners: Vec<Listener>) {
        for (thread, listener) in self.listeners.iter().zip(listeners) {
            // A thread that has ended has said why.
            let _ = thread.send(listener);
        }
    }
}

/// Where in its life the server is.
struct Life {
    commands: mpsc::Sender<Command>,
    threads: Option<Threads>,
    interrupted: bool,
}

impl Life {
    async fn order(&self, command: Command) {
        // A pool that has ended needs no orders.
        let _ = self.commands.send(command).await;
    }

    /// First the clients, then the workers; the second interrupt ends both at once.
    async fn stop(&mut self, interrupt: bool, patience: Duration) {
        if interrupt && self.interrupted {
            return self.order(Command::Halt).await;
        }
        self.interrupted |= interrupt;
        if let Some(threads) = &self.threads {
            threads.phase.send_replace(Phase::Drain);
            let commands = self.commands.clone();
            tokio::task::spawn_local(async move {
                // Clients that do not come to an end do not hold the workers for ever.
                tokio::time::sleep(patience).await;
                let _ = commands.send(Command::Drain).await;
            });
        }
    }

    /// Once, when all front threads have drained.
    async fn drained(&mut self) -> Option<()> {
        let Some(threads) = &mut self.threads else { return std::future::pending().await };
        // The channel carries nothing; it ends when the last thread has dropped its sender.
        while threads.drained.recv().await.is_some() {}
        self.threads = None;
        Some(())
    }
}
