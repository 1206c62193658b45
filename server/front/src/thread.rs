//! A front thread: an event loop with its own listeners, connections and part of the pool.

use crate::accept::{Acceptor, Admission, Handshakes, accept, drain_arrivals, serve_others};
use crate::access_log::AccessLog;
use crate::app::App;
use crate::content::Content;
use crate::error_log::ErrorLog;
use crate::hub::local::LocalHub;
use crate::hub::{Mailbox, SharedHub};
use crate::interruption::Maintenance;
use crate::listen::Listener;
use crate::memory::give_back;
use crate::pipeline::{Pipeline, PipelineParts};
use crate::release::Serving;
use crate::scripts::local::{LocalScripts, made_ready};
use crate::sites::local::Log;
use crate::stamp::Stamp;
use crate::tls::Encryption;
use crate::traces::TracingSeed;
use crate::vitals::Vitals;
use crate::warm_up::RecentRequests;
use cache::{Cache, Store};
use http::Context;
use net::Timers;
use net::task::spawn_local;
use ratelimit::{Limiter, LimiterState};
use script::Observed;
use settings::{Current, Settings};
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use workers::{Local, Rack, Shared};

/// Time-out for the packets that close QUIC connections.
const LAST_PACKETS: Duration = Duration::from_millis(300);
/// The pause between two looks at what is still open.
const TICK: Duration = Duration::from_millis(5);
/// Time-out, after the tunnels of the app, for those that only their clients or origins can end.
const LAST_TUNNELS: Duration = Duration::from_millis(500);

/// The phase that the main thread orders for all front threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ThreadPhase {
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
    /// The release in force, and the files of one that is being tried.
    pub(crate) serving: watch::Receiver<Serving>,
    /// The pool that runs the app; `None` without an app.
    pub(crate) shared: Option<Arc<Shared>>,
    /// Receives one message if there are mruby handlers: whether the first can be used.
    pub(crate) evaluated: mpsc::UnboundedSender<Result<(), String>>,
    pub(crate) recorder: stats::Recorder,
    pub(crate) recent: Arc<RecentRequests>,
    /// The counters of its mruby handlers.
    pub(crate) handlers: stats::HandlerCounts,
    pub(crate) access_log: Option<AccessLog>,
    /// `None` when distributed tracing is off.
    pub(crate) traces: Option<TracingSeed>,
    pub(crate) error_log: Arc<ErrorLog>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) maintenance: Arc<Maintenance>,
    /// The rate limits' counts of all threads.
    pub(crate) ledger: Arc<LimiterState>,
    /// The kept responses of all threads; `None` if the cache is off.
    pub(crate) store: Option<Arc<Store>>,
    /// The hub of live pages, and the messages for this thread; `None` if it is off.
    pub(crate) hub: Option<(Arc<SharedHub>, Mailbox)>,
    pub(crate) encryption: Arc<Encryption>,
    pub(crate) vitals: Arc<Vitals>,
    pub(crate) listeners: mpsc::UnboundedReceiver<Listener>,
    pub(crate) phase: watch::Receiver<ThreadPhase>,
    /// Dropped when the thread has drained.
    pub(crate) drained: mpsc::Sender<()>,
    /// Dropped when the thread's tunnels have ended as well, and their clients have everything.
    pub(crate) ended: mpsc::Sender<()>,
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
        mut serving,
        shared,
        evaluated,
        recorder,
        recent,
        handlers,
        access_log,
        traces,
        error_log,
        admission,
        maintenance,
        ledger,
        encryption,
        vitals,
        store,
        hub,
        mut listeners,
        mut phase,
        drained,
        ended,
    } = seed;
    let first = serving.borrow_and_update().clone();
    let settings = first.release.settings.clone();
    share(&settings);
    recorder.count_routes(settings.stats.routes);
    let limits = match Limiter::new(&settings, ledger) {
        Ok(limits) => limits,
        Err(why) => return error_log.write(&why),
    };
    spawn_local(limits.clone().keep_in_touch());
    let current = Current::new(Settings::clone(&settings));
    let local = shared.map(|shared| Local::new(index, shared, current.clone(), log_to(&error_log)));
    if let Some(local) = &local {
        spawn_local(local.clone().run());
    }
    let timers = Timers::new();
    {
        let timers = timers.clone();
        spawn_local(async move { timers.run().await });
    }
    let log: Log = log_to(&error_log).into();
    let observed = observed(handlers, &error_log);
    let scripts = first_scripts(&first, &log, &observed, evaluated);
    let tunnels = local.clone();
    let app = local.map(|local| Rc::new(App { stamp: Stamp::default(), rack: Rack::new(local) }));
    let has_app = app.is_some();
    let hub = app
        .clone()
        .zip(hub)
        .map(|(app, (shared, mailbox))| LocalHub::start(shared, index, app, log.clone(), mailbox));
    let content = Content::new(first, app, store.map(Cache::new), scripts, hub.clone(), log.clone());
    let content = Rc::new(RefCell::new(Rc::new(content)));
    spawn_local(give_back(content.clone()));
    let last = content.clone();
    let followers = (current.clone(), limits.clone(), recorder.clone());
    spawn_local(follow(serving, content.clone(), followers, (log, observed)));
    let parts = PipelineParts {
        has_app,
        content,
        maintenance,
        limits,
        recorder: recorder.clone(),
        recent,
        access_log,
        traces,
        error_log: error_log.clone(),
    };
    let pipeline = Pipeline::new(&settings, &encryption, &vitals, parts);
    let context = Context::new(pipeline, current.clone(), timers);
    let handshakes = Handshakes::new();
    if encryption.is_used() {
        let handshakes = handshakes.clone();
        spawn_local(async move { handshakes.run().await });
    }
    spawn_local(serve_others(context.clone(), recorder.clone(), admission.join(index)));
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
    if let Some(hub) = &hub {
        let acceptor = acceptor.clone();
        hub.resumes_by(Box::new(move |connection, peer, ahead, io| {
            acceptor.resume(connection, peer, ahead, io)
        }));
    }
    spawn_local(vitals.answer(index));
    let mut accepting = Vec::new();
    let (mut leaving, mut yielding, mut yielded) = (phase.clone(), phase.clone(), false);
    loop {
        tokio::select! {
            biased;
            _ = phase.wait_for(|phase| *phase == ThreadPhase::Drain) => break,
            _ = leaving.wait_for(|phase| *phase >= ThreadPhase::Leave), if !context.is_leaving() => context.leave(),
            _ = yielding.wait_for(|phase| *phase >= ThreadPhase::Yield), if !yielded => {
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
    hub.iter().for_each(|hub| hub.close());
    last.borrow().close();
    drop(last);
    drain_arrivals(&context).await;
    // Tunnels have no response to wait for. They end with their worker.
    let responds = || context.connections().open > context.connections().tunnels;
    while responds() || hub.as_ref().is_some_and(|hub| hub.is_telling()) {
        tokio::time::sleep(TICK).await;
    }
    // Waits for the last packets of closed connections.
    let endpoints = acceptor.quic.take();
    for endpoint in &endpoints {
        let _ = tokio::time::timeout(LAST_PACKETS, endpoint.wait_idle()).await;
    }
    drop(drained);
    // A client of a tunnel that has ended may still be receiving.
    while tunnels.as_ref().is_some_and(|local| local.tunnels() > 0) || responds() {
        tokio::time::sleep(TICK).await;
    }
    let until = Instant::now() + LAST_TUNNELS;
    while context.connections().open > 0 && Instant::now() < until {
        tokio::time::sleep(TICK).await;
    }
    for endpoint in &endpoints {
        let _ = tokio::time::timeout(LAST_PACKETS, endpoint.wait_idle()).await;
    }
    drop(ended);
    // The links to the workers stay open until the process exits.
    std::future::pending::<()>().await;
}

/// Follows the release in force: replaces settings, rate limits, handlers, sites and files at once. Handlers are evaluated before.
async fn follow(
    mut arriving: watch::Receiver<Serving>,
    content: Rc<RefCell<Rc<Content>>>,
    (current, limits, recorder): (Current, Rc<Limiter>, stats::Recorder),
    (log, observed): (Log, Observed),
) {
    while arriving.changed().await.is_ok() {
        let next = arriving.borrow_and_update().clone();
        let now = content.borrow().clone();
        let scripts = match (&now.serving.release.handlers, &next.release.handlers) {
            (Some(known), Some(edition)) if !Arc::ptr_eq(known, edition) => {
                made_ready(edition, &log, &observed).await.ok().or_else(|| now.scripts.clone())
            }
            _ => now.scripts.clone(),
        };
        if !Arc::ptr_eq(&now.serving.release.settings, &next.release.settings) {
            limits.replace(&next.release.settings);
            share(&next.release.settings);
            recorder.count_routes(next.release.settings.stats.routes);
            current.replace(Settings::clone(&next.release.settings));
        }
        let next = Rc::new(now.next(next, scripts));
        drop(content.replace(next));
    }
}

/// Gives this thread its share of the descriptors and of the memory.
fn share(settings: &Settings) {
    let threads = usize::try_from(settings.front_threads).unwrap_or(usize::MAX);
    let limits = &settings.limits;
    handler::held::share(threads, limits.memory.unwrap_or(u64::MAX), limits.response_spool);
}

/// Returns a function that writes lines to the error log.
fn log_to(log: &Arc<ErrorLog>) -> Box<dyn Fn(&str)> {
    let log = log.clone();
    Box::new(move |what| log.write(what))
}

/// Returns the counters of mruby handlers, and the log for their alarms.
fn observed(counts: stats::HandlerCounts, log: &Arc<ErrorLog>) -> Observed {
    let log = log.clone();
    Observed { counts, alarm: Arc::new(move |what| log.write(what)) }
}

/// Opens this thread's VM if there are handlers, evaluates them in it, and reports whether they can be used.
fn first_scripts(
    first: &Serving,
    log: &Log,
    observed: &Observed,
    evaluated: mpsc::UnboundedSender<Result<(), String>>,
) -> Option<Rc<LocalScripts>> {
    let edition = first.release.handlers.as_ref()?;
    match LocalScripts::new(edition.plan.clone(), log.clone(), observed.clone()) {
        Ok(scripts) => {
            let waiting = scripts.clone();
            // The receiver is gone if the server is stopping.
            spawn_local(async move { drop(evaluated.send(waiting.ready().await)) });
            Some(scripts)
        }
        Err(why) => {
            let _ = evaluated.send(Err(why));
            None
        }
    }
}
