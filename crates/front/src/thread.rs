//! A front thread: an event loop with its own listeners, connections and part of the pool.

use crate::accept::{Acceptor, accept};
use crate::access_log::AccessLog;
use crate::admission::Admission;
use crate::error_log::ErrorLog;
use crate::failure_log::FailureLog;
use crate::forwarded::Forwarded;
use crate::listen::Listener;
use crate::pipeline::{App, Content, Pipeline};
use crate::probes::Probes;
use crate::redirect::Redirects;
use crate::request_id::RequestIds;
use crate::room;
use crate::scripts::Edition;
use crate::scripts::local::LocalScripts;
use crate::server_timing::Timing;
use crate::sites::Sites;
use crate::sites::load::bounds;
use crate::sites::local::LocalSites;
use crate::stamp::Stamp;
use crate::tls::Encryption;
use crate::tls::handshakes::Handshakes;
use crate::traces::{Tracing, TracingSeed};
use crate::vitals::Vitals;
use http::Context;
use net::Timers;
use pool::{Local, Rack, Shared};
use ratelimit::{Ledger, Limiter};
use settings::{Current, Settings};
use site::{AppFiles, PublicFiles};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_local};

/// Time-out for the packets that close QUIC connections.
const LAST_PACKETS: Duration = Duration::from_millis(300);

/// The phase that the main thread orders for all front threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Accept connections as soon as listeners arrive.
    Serve,
    /// Continue accepting, but keep no connection open for another request.
    Leave,
    /// Accept no more connections, because another program does. Open connections end with their next response.
    Yield,
    /// Accept no more connections, finish requests in progress, close idle connections.
    Drain,
}

/// The inputs of a front thread.
pub(crate) struct Seed {
    pub(crate) index: u16,
    pub(crate) settings: watch::Receiver<Arc<Settings>>,
    /// The pool that runs the app; `None` without an app.
    pub(crate) shared: Option<Arc<Shared>>,
    pub(crate) sites: watch::Receiver<Arc<Sites>>,
    /// The files of the app. They change when other code goes into service.
    pub(crate) public: watch::Receiver<Arc<AppFiles>>,
    pub(crate) scripts: Option<Scripts>,
    pub(crate) recorder: stats::Recorder,
    /// The counters of its mruby handlers.
    pub(crate) handlers: stats::HandlerCounts,
    pub(crate) access_log: Option<AccessLog>,
    /// `None` when distributed tracing is off.
    pub(crate) traces: Option<TracingSeed>,
    pub(crate) error_log: Arc<ErrorLog>,
    pub(crate) admission: Arc<Admission>,
    /// The rate limits' counts of all threads.
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) encryption: Arc<Encryption>,
    pub(crate) vitals: Arc<Vitals>,
    pub(crate) listeners: mpsc::UnboundedReceiver<Listener>,
    pub(crate) phase: watch::Receiver<Phase>,
    /// Dropped when the thread has drained.
    pub(crate) drained: mpsc::Sender<()>,
    /// Dropped when the thread's tunnels have ended as well.
    pub(crate) ended: mpsc::Sender<()>,
}

/// The mruby handlers for a front thread.
#[derive(Clone)]
pub(crate) struct Scripts {
    /// The handlers' code. It changes with its files.
    pub(crate) plan: watch::Receiver<Arc<Edition>>,
    /// Receives one message: whether the first handlers can be used.
    pub(crate) evaluated: mpsc::UnboundedSender<Result<(), String>>,
}

/// # Errors
/// The thread cannot be created.
pub(crate) fn start(seed: Seed) -> io::Result<()> {
    let name = format!("front-{}", seed.index);
    std::thread::Builder::new().name(name).spawn(move || {
        let log = seed.error_log.clone();
        match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
            Ok(runtime) => runtime.block_on(run(seed)),
            Err(e) => log.write(&format!("a front thread has no event loop: {e}")),
        }
    })?;
    Ok(())
}

async fn run(seed: Seed) {
    let Seed {
        index,
        settings,
        shared,
        sites,
        public,
        scripts,
        recorder,
        handlers,
        access_log,
        traces,
        error_log,
        admission,
        ledger,
        encryption,
        vitals,
        mut listeners,
        mut phase,
        drained,
        ended,
    } = seed;
    handler::held::share(usize::try_from(settings.borrow().front_threads).unwrap_or(usize::MAX));
    let limits = match Limiter::new(&settings.borrow(), ledger) {
        Ok(limits) => limits,
        Err(why) => return error_log.write(&why),
    };
    spawn_local(limits.clone().keep_in_touch());
    let current = follow(settings, limits.clone());
    let settings = current.get();
    let local = shared.map(|shared| Local::new(index, shared, current.clone(), log_to(&error_log)));
    if let Some(local) = &local {
        spawn_local(local.clone().run());
    }
    let local_sites = {
        let complain: Rc<dyn Fn(&str)> = log_to(&error_log).into();
        LocalSites::new(&sites.borrow(), complain)
    };
    spawn_local(local_sites.clone().follow(sites));
    let timers = Timers::new();
    {
        let timers = timers.clone();
        spawn_local(async move { timers.run().await });
    }
    let scripts = scripts.and_then(|scripts| local_scripts(scripts, handlers, &error_log));
    let redirects = Redirects::new(&settings, &encryption);
    let pipeline = pipeline(&settings, local, scripts, local_sites, recorder.clone(), access_log, &error_log);
    spawn_local(pipeline.failures.follow());
    let probes = Probes::new(&settings.health, &vitals);
    let traces = traces.map(Tracing::new);
    spawn_local(follow_public(public, pipeline.content.clone(), current.clone()));
    let pipeline = Pipeline {
        limits: Some(limits),
        redirects,
        probes,
        traces,
        challenges: encryption.challenges(),
        ..pipeline
    };
    let context = Context::new(pipeline, current.clone(), timers);
    let handshakes = Handshakes::new();
    if encryption.is_used() {
        let handshakes = handshakes.clone();
        spawn_local(async move { handshakes.run().await });
    }
    spawn_local(room::serve_others(context.clone(), recorder.clone(), admission.join(index)));
    let acceptor = Rc::new(Acceptor {
        context: context.clone(),
        recorder,
        index,
        tally: admission.tally(),
        admission,
        encryption,
        handshakes,
        waiting: Rc::default(),
        quic: RefCell::default(),
        alt_svc: RefCell::default(),
        settings: current,
        log: log_to(&error_log),
        logged: Cell::new(None),
    });
    spawn_local(vitals.answer(index));
    let mut accepting = Vec::new();
    let (mut leaving, mut yielding, mut yielded) = (phase.clone(), phase.clone(), false);
    loop {
        tokio::select! {
            biased;
            _ = phase.wait_for(|phase| *phase == Phase::Drain) => break,
            _ = leaving.wait_for(|phase| *phase >= Phase::Leave), if !context.is_leaving() => context.leave(),
            _ = yielding.wait_for(|phase| *phase >= Phase::Yield), if !yielded => {
                yielded = true;
                accepting.drain(..).for_each(|task: JoinHandle<()>| task.abort());
                acceptor.refuse_quic();
            }
            Some(listener) = listeners.recv() => {
                let (acceptor, log) = (acceptor.clone(), error_log.clone());
                accepting.push(spawn_local(async move {
                    if let Err(e) = accept(acceptor, listener).await {
                        log.write(&format!("a listener cannot be used: {e}"));
                    }
                }));
            }
            else => break,
        }
    }
    // One more turn for connections that are already in the backlog: closing the listener would reset them.
    tokio::task::yield_now().await;
    accepting.iter().for_each(JoinHandle::abort);
    if !yielded {
        acceptor.refuse_quic();
    }
    context.drain();
    room::drain_arrivals(&context).await;
    // Tunnels have no response to wait for. They end with their worker.
    while context.connections().open > context.connections().tunnels {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Waits for the last packets of closed connections.
    let endpoints = acceptor.quic.take();
    for endpoint in &endpoints {
        let _ = tokio::time::timeout(LAST_PACKETS, endpoint.wait_idle()).await;
    }
    drop(drained);
    while context.connections().tunnels > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(ended);
    // The links to the workers stay open until the process exits.
    std::future::pending::<()>().await;
}

/// Returns the settings of this thread. A task replaces them, and the rate limits, when new settings arrive.
fn follow(mut arriving: watch::Receiver<Arc<Settings>>, limits: Rc<Limiter>) -> Current {
    let current = Current::new(Settings::clone(&arriving.borrow_and_update()));
    let replaced = current.clone();
    spawn_local(async move {
        while arriving.changed().await.is_ok() {
            let settings = arriving.borrow_and_update().clone();
            limits.replace(&settings);
            replaced.replace(Settings::clone(&settings));
        }
    });
    current
}

/// Creates the log of failed requests.
fn failures(settings: &Settings, log: &Arc<ErrorLog>) -> FailureLog {
    let log = log.clone();
    let write = Box::new(move |what: &str, id: Option<&[u8]>| log.error(what, id));
    FailureLog::new(write, settings.rack.request_id_header.as_deref())
}

/// Replaces the app's files when other code goes into service.
async fn follow_public(
    mut arriving: watch::Receiver<Arc<AppFiles>>,
    content: Rc<Content>,
    settings: Current,
) {
    let Some(app) = &content.app else { return };
    loop {
        let files = arriving.borrow_and_update().clone();
        let any = files.roots().next().is_some();
        *app.files.borrow_mut() = any.then(|| PublicFiles::new(&files, bounds(&settings.get())));
        if arriving.changed().await.is_err() {
            return;
        }
    }
}

/// Returns a function that writes lines to the error log.
fn log_to(log: &Arc<ErrorLog>) -> Box<dyn Fn(&str)> {
    let log = log.clone();
    Box::new(move |what| log.write(what))
}

fn pipeline(
    settings: &Settings,
    local: Option<Rc<Local>>,
    scripts: Option<Rc<LocalScripts>>,
    sites: Rc<LocalSites>,
    recorder: stats::Recorder,
    access_log: Option<AccessLog>,
    log: &Arc<ErrorLog>,
) -> Pipeline {
    let app =
        local.map(|local| App { stamp: Stamp::default(), files: RefCell::default(), rack: Rack::new(local) });
    // Request ids serve to find a request in the app's log.
    let ids = settings.rack.request_id_header.as_deref().filter(|_| app.is_some()).map(RequestIds::new);
    Pipeline {
        ids,
        limits: None,
        timing: Timing::new(settings.logs.server_timing),
        forwarded: Forwarded::new(settings.rack.trusted_proxies.clone()),
        probes: None,
        challenges: None,
        redirects: None,
        traces: None,
        content: Rc::new(Content { scripts, sites, app, log: log_to(log) }),
        recorder,
        access_log,
        failures: failures(settings, log),
    }
}

/// Opens this thread's VM, evaluates the handlers in it, and reports whether they can be used.
fn local_scripts(
    scripts: Scripts,
    counts: stats::HandlerCounts,
    log: &Arc<ErrorLog>,
) -> Option<Rc<LocalScripts>> {
    let Scripts { plan, evaluated } = scripts;
    let complain: Rc<dyn Fn(&str)> = log_to(log).into();
    let first = plan.borrow().plan.clone();
    let alarmed = log.clone();
    let observed = script::Observed { counts, alarm: Arc::new(move |what| alarmed.write(what)) };
    match LocalScripts::new(first, complain, observed) {
        Ok(local) => {
            let waiting = local.clone();
            // The receiver is gone if the server is stopping.
            spawn_local(async move { drop(evaluated.send(waiting.ready().await)) });
            spawn_local(local.clone().follow(plan));
            Some(local)
        }
        Err(why) => {
            let _ = evaluated.send(Err(why));
            None
        }
    }
}
