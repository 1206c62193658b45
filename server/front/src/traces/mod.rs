//! Distributed traces: passes on the trace context of requests, and exports spans by OTLP/HTTP (docs/traces.md).
//!
//! When the head of a request arrives, a front thread decides whether to record it ([`Tracing::begin`]). When
//! the request is over, the thread passes a [`record::Record`] to the exporter, a task of the main thread.
//! Encoding, retries and a slow collector never delay a request.
//!
//! Contract: while traces are off, none of this runs, and `traceparent` is passed on unchanged.

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

/// Time-out for the last batches when the server stops.
const LAST_BATCHES: Duration = Duration::from_secs(3);

pub(crate) struct Traces {
    thread: TracingSeed,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// The parameters with which a front thread records requests.
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
        Ok(Some(Traces { thread, stop, task: net::task::spawn_local(exporter.run()) }))
    }

    /// Returns the parameters for one front thread.
    pub(crate) fn seed(&self) -> TracingSeed {
        self.thread.clone()
    }

    /// Sends the remaining batches, for at most [`LAST_BATCHES`]. Returns `false` if that was not enough.
    pub(crate) async fn close(self) -> bool {
        let _ = self.stop.send(true);
        tokio::time::timeout(LAST_BATCHES, self.task).await.is_ok()
    }
}

/// Records the requests of one front thread.
pub(crate) struct Tracing {
    seed: TracingSeed,
    random: RefCell<fastrand::Rng>,
}

impl Tracing {
    /// Each thread and process generates different ids.
    pub(crate) fn new(seed: TracingSeed) -> Tracing {
        let random = RandomState::new().hash_one((std::process::id(), SystemTime::now()));
        Tracing { seed, random: RefCell::new(fastrand::Rng::with_seed(random)) }
    }

    /// Reads or creates the request's trace context and sets the one that its handlers pass on. Returns the
    /// recording, if the request is to be recorded.
    pub(crate) fn begin(&self, request: &mut Request) -> Option<Active> {
        let mut given = request.fields.all("traceparent");
        // Two fields are invalid (W3C Trace Context, section 3.2.1).
        let first = given.next();
        let parent =
            first.filter(|_| given.next().is_none()).and_then(|value| TraceParent::parse(value.trim_ascii()));
        drop(given);
        let trace = parent.map_or_else(|| self.trace_id(), |parent| parent.trace);
        let sampled = self.seed.sampler.decide(parent.as_ref(), &trace);
        if !sampled && parent.is_some_and(|parent| !parent.is_sampled()) {
            // Nothing is added to the trace, so its context is passed on unchanged.
            return None;
        }
        let state = match parent {
            Some(_) if sampled => joined(request.fields.all("tracestate")),
            _ => Box::default(),
        };
        if first.is_some() || parent.is_none() {
            // Without a valid `traceparent`, `tracestate` is invalid as well (section 3.3.1.4).
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

    /// Passes a recorded request to the exporter.
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

/// Joins several fields to one list (section 3.3.1.1).
fn joined<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Box<str> {
    let texts: Vec<_> = fields.map(|field| String::from_utf8_lossy(field.trim_ascii())).collect();
    texts.join(",").into_boxed_str()
}
