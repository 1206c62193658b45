//! Distributed traces: the context of requests passed on, and spans exported by OTLP/HTTP (docs/traces.md).
//!
//! A front thread decides at the head of a request whether it is recorded ([`Tracing::begin`]), and hands a [`record::Record`] to the
//! exporter when it is over. The exporter is a task of the main thread: encoding, retries and a slow collector never hold up a request.
//!
//! Contract: while traces are off there is none of this, and `traceparent` passes as it came.

mod config;
mod export;
mod otlp;
mod record;
mod retry;
mod send;
#[cfg(test)]
mod tests;

use crate::error_log::ErrorLog;
use export::{Exporter, Losses};
use handler::{Ending, Request};
use record::Record;
use send::Collector;
use settings::Settings;
use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use trace::{Active, Sampler, SpanId, TraceId, TraceParent};

/// How long the last batches may take when the server ends.
const LAST_BATCHES: Duration = Duration::from_secs(3);

/// The exporter of a server.
pub(crate) struct Traces {
    thread: TracingSeed,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// What a front thread needs to record requests.
#[derive(Clone)]
pub(crate) struct TracingSeed {
    sampler: Sampler,
    to: mpsc::Sender<Record>,
    crowded: Arc<AtomicU64>,
}

impl Traces {
    /// Starts the exporter if the settings ask for it. Warnings go to the log.
    ///
    /// # Errors
    /// The collector's address cannot be used.
    pub(crate) fn start(settings: &Settings, log: &Arc<ErrorLog>) -> Result<Option<Traces>, String> {
        let variable = |name: &str| std::env::var(name).ok();
        let Some((mut config, mut warnings)) = config::read(&settings.traces, &settings.tag, variable) else {
            return Ok(None);
        };
        warnings.extend(config.check_authorities());
        warnings.iter().for_each(|warning| log.write(&format!("warning: {warning}")));
        let collector = Collector::new(&config).map_err(|why| format!("traces.endpoint: {why}"))?;
        let (to, records) = mpsc::channel(config.queue);
        let (stop, stopped) = watch::channel(false);
        let crowded = Arc::new(AtomicU64::new(0));
        let thread = TracingSeed { sampler: config.sampler, to, crowded: crowded.clone() };
        let losses = Losses::new(log.clone(), crowded);
        let exporter = Exporter { config, collector, records, stop: stopped, losses };
        Ok(Some(Traces { thread, stop, task: tokio::task::spawn_local(exporter.run()) }))
    }

    /// For one front thread.
    pub(crate) fn seed(&self) -> TracingSeed {
        self.thread.clone()
    }

    /// Sends what is left, for at most [`LAST_BATCHES`]; `false` when that was not enough.
    pub(crate) async fn close(self) -> bool {
        let _ = self.stop.send(true);
        tokio::time::timeout(LAST_BATCHES, self.task).await.is_ok()
    }
}

/// The recorder of one front thread.
pub(crate) struct Tracing {
    seed: TracingSeed,
    random: RefCell<fastrand::Rng>,
}

impl Tracing {
    /// Ids differ in every thread and process.
    pub(crate) fn new(seed: TracingSeed) -> Tracing {
        let random = RandomState::new().hash_one((std::process::id(), SystemTime::now()));
        Tracing { seed, random: RefCell::new(fastrand::Rng::with_seed(random)) }
    }

    /// Finds the request's place in a trace and writes what its handlers pass on; what is to be recorded, if anything.
    pub(crate) fn begin(&self, request: &mut Request) -> Option<Active> {
        let mut given = request.fields.all("traceparent");
        // Two of them are none (section 3.2.1).
        let first = given.next();
        let parent =
            first.filter(|_| given.next().is_none()).and_then(|value| TraceParent::parse(value.trim_ascii()));
        drop(given);
        let trace = parent.map_or_else(|| self.trace_id(), |parent| parent.trace);
        let sampled = self.seed.sampler.decide(parent.as_ref(), &trace);
        if !sampled && parent.is_some_and(|parent| !parent.is_sampled()) {
            // Nothing is added to the trace, so its position stays.
            return None;
        }
        let state = match parent {
            Some(_) if sampled => joined(request.fields.all("tracestate")),
            _ => Box::default(),
        };
        if first.is_some() || parent.is_none() {
            // What belongs to a position that cannot be read is of no use (section 3.3.1.4).
            request.fields.retain(|name, _| {
                !name.eq_ignore_ascii_case(b"traceparent")
                    && (parent.is_some() || !name.eq_ignore_ascii_case(b"tracestate"))
            });
        }
        let flags = parent.map_or(0, |parent| parent.flags);
        let handler = self.span_id();
        let passed_on = TraceParent { trace, span: handler, flags }.sampled(sampled);
        request.fields.push(b"traceparent", &passed_on.write());
        sampled.then(|| Active {
            trace,
            parent: parent.map(|parent| parent.span),
            server: self.span_id(),
            handler,
            flags: passed_on.flags,
            state,
            forwarded: Default::default(),
            responded: Default::default(),
            scripted: Default::default(),
        })
    }

    /// Hands over what is known of a recorded request.
    pub(crate) fn finished(&self, ending: &Ending<'_>) {
        let Some(active) = ending.trace.span.get() else { return };
        let now = (Instant::now(), SystemTime::now());
        let record = Record::new(ending, active, now, || *self.span_id().bytes());
        if self.seed.to.try_send(record).is_err() {
            self.seed.crowded.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn trace_id(&self) -> TraceId {
        loop {
            if let Some(id) = TraceId::new(self.random.borrow_mut().u128(..).to_be_bytes()) {
                return id;
            }
        }
    }

    fn span_id(&self) -> SpanId {
        loop {
            if let Some(id) = SpanId::new(self.random.borrow_mut().u64(..).to_be_bytes()) {
                return id;
            }
        }
    }
}

/// Several fields are one list (section 3.3.1.1).
fn joined<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Box<str> {
    let texts: Vec<_> = fields.map(|field| String::from_utf8_lossy(field.trim_ascii())).collect();
    texts.join(",").into_boxed_str()
}
