//! A front thread: an event loop of its own, with its listeners, its connections and its part of the pool.

use crate::accept::{Acceptor, accept};
use crate::access_log::AccessLog;
use crate::error_log::ErrorLog;
use crate::forwarded::Forwarded;
use crate::listen::Listener;
use crate::pipeline::{self, App, Content, Pipeline};
use crate::request_id::RequestIds;
use crate::scripts::Edition;
use crate::scripts::local::LocalScripts;
use crate::server_timing::Timing;
use crate::sites::Sites;
use crate::sites::load::bounds;
use crate::sites::local::{LocalSites, OnFailure};
use crate::stamp::Stamp;
use handler::Fault;
use http::{Context, Timers};
use pool::{Local, Rack, RackOptions, Shared};
use settings::Settings;
use site::PublicFiles;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_local;

/// What the main thread wants of all front threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Accept connections as soon as there are listeners.
    Serve,
    /// Accept no more, answer what has been asked, close what is idle.
    Drain,
}

/// What a front thread is given.
pub(crate) struct Seed {
    pub(crate) index: u16,
    pub(crate) settings: Arc<Settings>,
    /// The pool that runs the app, if there is one.
    pub(crate) shared: Option<Arc<Shared>>,
    pub(crate) sites: watch::Receiver<Arc<Sites>>,
    pub(crate) scripts: Option<Scripts>,
    pub(crate) recorder: stats::Recorder,
    /// What its handlers on mruby do.
    pub(crate) handlers: stats::HandlerCounts,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) error_log: Arc<ErrorLog>,
    pub(crate) open: Arc<AtomicUsize>,
    pub(crate) listeners: mpsc::UnboundedReceiver<Listener>,
    pub(crate) phase: watch::Receiver<Phase>,
    /// Dropped when the thread has drained.
    pub(crate) drained: mpsc::Sender<()>,
}

/// Handlers on mruby, for a front thread.
#[derive(Clone)]
pub(crate) struct Scripts {
    /// The handlers, whenever they change.
    pub(crate) plan: watch::Receiver<Arc<Edition>>,
    /// Is told once whether the first ones can be used.
    pub(crate) told: mpsc::UnboundedSender<Result<(), String>>,
}

/// Starts the thread.
///
/// # Errors
/// The system refuses a thread.
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
        scripts,
        recorder,
        handlers,
        access_log,
        error_log,
        open,
        mut listeners,
        mut phase,
        drained,
    } = seed;
    let limits = &settings.limits;
    let local = shared.map(|shared| {
        Local::new(
            index,
            shared,
            limits.response_memory,
            limits.response_spool,
            settings.temp_dir.clone(),
            complaint(&error_log),
        )
    });
    if let Some(local) = &local {
        spawn_local(local.clone().run());
    }
    let local_sites = {
        let complain: Rc<dyn Fn(&str)> = complaint(&error_log).into();
        LocalSites::new(&sites.borrow(), failed(&recorder, &error_log), complain)
    };
    spawn_local(local_sites.clone().follow(sites));
    let timers = Timers::new();
    {
        let timers = timers.clone();
        spawn_local(async move { timers.run().await });
    }
    let scripts = scripts.and_then(|scripts| local_scripts(scripts, handlers, &recorder, &error_log));
    let pipeline = pipeline(&settings, local, scripts, local_sites, recorder.clone(), access_log, &error_log);
    let context = Context::new(pipeline, http_limits(&settings), timers);
    let acceptor = Rc::new(Acceptor {
        context: context.clone(),
        recorder,
        open,
        max_connections: limits.max_connections,
        complain: complaint(&error_log),
        complained: Cell::new(None),
    });
    let mut accepting = Vec::new();
    loop {
        tokio::select! {
            biased;
            _ = phase.wait_for(|phase| *phase == Phase::Drain) => break,
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
    // One more turn for those whom the kernel has accepted already: closing the listener would reset them.
    tokio::task::yield_now().await;
    accepting.iter().for_each(tokio::task::JoinHandle::abort);
    context.drain();
    // Tunnels have no response to wait for: they end with the worker at their other end.
    while context.connections().open > context.connections().tunnels {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(drained);
    // Links to the workers stay until the process ends.
    std::future::pending::<()>().await;
}

fn complaint(log: &Arc<ErrorLog>) -> Box<dyn Fn(&str)> {
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
    let options =
        RackOptions { body_memory: settings.limits.body_memory, temp_dir: settings.temp_dir.clone() };
    let app = local.map(|local| {
        let failed = failed(&recorder, log);
        // A site in front of the app has looked for a file already.
        let public = settings.files.public.as_deref().filter(|_| settings.sites.main.is_none());
        App {
            stamp: Stamp::default(),
            files: public.map(|dir| PublicFiles::new(dir, bounds(settings))),
            rack: Rack::new(local, options, Box::new(move |failure, request| failed(failure, request))),
        }
    });
    // Ids are for following a request through an app's log.
    let ids = settings.rack.request_id_header.as_deref().filter(|_| app.is_some()).map(RequestIds::new);
    Pipeline {
        ids,
        timing: Timing::new(settings.server_timing),
        forwarded: Forwarded::new(settings.rack.trusted_proxies.clone()),
        content: Rc::new(Content { scripts, sites, app, complain: complaint(log) }),
        recorder,
        access_log,
        complain: complaint(log),
    }
}

/// Opens this thread's VM and has the handlers evaluated; tells whether they can be used.
fn local_scripts(
    scripts: Scripts,
    counts: stats::HandlerCounts,
    recorder: &stats::Recorder,
    log: &Arc<ErrorLog>,
) -> Option<Rc<LocalScripts>> {
    let Scripts { plan, told } = scripts;
    let complain: Rc<dyn Fn(&str)> = complaint(log).into();
    let first = plan.borrow().plan.clone();
    let alarmed = log.clone();
    let observed = script::Observed { counts, alarm: Arc::new(move |what| alarmed.write(what)) };
    match LocalScripts::new(first, failed(recorder, log), complain, observed) {
        Ok(local) => {
            let waiting = local.clone();
            // Whoever waits for the answer has gone when the server ends.
            spawn_local(async move { drop(told.send(waiting.ready().await)) });
            spawn_local(local.clone().follow(plan));
            Some(local)
        }
        Err(why) => {
            let _ = told.send(Err(why));
            None
        }
    }
}

/// Counts and logs what the app, or an origin, fails to do.
fn failed(recorder: &stats::Recorder, log: &Arc<ErrorLog>) -> OnFailure {
    let (recorder, complain) = (recorder.clone(), complaint(log));
    Rc::new(move |failure, request| {
        recorder.failed(pipeline::fault(failure.fault()));
        if failure.fault() != Fault::Client {
            complain(&format!(
                "{} for {}: {}",
                failure.status(),
                pipeline::name(Some(request)),
                failure.reason
            ));
        }
    })
}

fn http_limits(settings: &Settings) -> http::Limits {
    let (limits, timeouts) = (&settings.limits, &settings.timeouts);
    http::Limits {
        max_header_bytes: limits.max_header_bytes,
        max_headers: limits.max_headers,
        max_uri: limits.max_uri,
        max_body: limits.max_body,
        max_requests_per_connection: limits.max_requests_per_connection,
        header_timeout: timeouts.header_timeout,
        body_min_rate: timeouts.body_min_rate,
        body_grace: timeouts.body_grace,
        keep_alive_timeout: timeouts.keep_alive_timeout,
        send_timeout: timeouts.send_timeout,
        allow_underscore_headers: settings.rack.allow_underscore_headers,
    }
}
