//! Runs each request through the front: request id, probes, redirects, maintenance, limits, scripts, sites, the app.
//!
//! Contract:
//! 1. [`Pipeline::new`] gets everything that a pipeline needs; its steps are the files of this folder.
//! 2. Only [`Pipeline::report`] counts and logs the failures of requests.

mod compression;
mod counted;
mod failure_log;
mod forwarded;
mod probes;
mod redirect;
mod request_id;
mod server_timing;

use crate::access_log::AccessLog;
use crate::content::{Content, Target};
use crate::error_log::ErrorLog;
use crate::interruption::Maintenance;
use crate::recording;
use crate::tls::Encryption;
use crate::traces::{Tracing, TracingSeed};
use crate::vitals::Vitals;
use crate::warm_up::RecentRequests;
use compression::Compressor;
use failure_log::FailureLog;
use forwarded::ForwardedFields;
use handler::{Answered, Ending, Exchange, Failure, Fault, Handler, Peer, Request, Response, Trace};
use net::memory::{self, Level};
use net::task::spawn_local;
use probes::Probes;
use ratelimit::Limiter;
use redirect::Redirects;
use request_id::{Id as RequestId, RequestIds};
use script::Hops;
use server_timing::Timing;
use settings::{Settings, TrustedProxies};
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

pub(crate) use redirect::explain as explain_redirects;

/// The steps that every request passes.
pub(crate) struct Pipeline {
    ids: Option<RequestIds>,
    forwarded: ForwardedFields,
    /// Answers health probes; `None` without configured paths.
    probes: Option<Probes>,
    /// Answers the HTTP-01 challenges of CAs.
    challenges: Option<certs::HttpAnswers>,
    /// Redirects to https and to the canonical host; `None` when neither is configured.
    redirects: Option<Redirects>,
    /// Answers requests during maintenance.
    maintenance: Arc<Maintenance>,
    trusted: TrustedProxies,
    /// Limits the rate and the number of requests.
    limits: Rc<Limiter>,
    timing: Timing,
    compressor: Compressor,
    /// `None` when distributed tracing is off.
    traces: Option<Tracing>,
    /// The content of the release in force. A request that arrives takes it.
    content: Rc<RefCell<Rc<Content>>>,
    recorder: stats::Recorder,
    recent: Arc<RecentRequests>,
    access_log: Option<AccessLog>,
    failures: FailureLog,
}

/// The parts that a front thread gives to its pipeline.
pub(crate) struct PipelineParts {
    pub(crate) has_app: bool,
    pub(crate) content: Rc<RefCell<Rc<Content>>>,
    pub(crate) maintenance: Arc<Maintenance>,
    pub(crate) limits: Rc<Limiter>,
    pub(crate) recorder: stats::Recorder,
    pub(crate) recent: Arc<RecentRequests>,
    pub(crate) access_log: Option<AccessLog>,
    /// `None` when distributed tracing is off.
    pub(crate) traces: Option<TracingSeed>,
    pub(crate) error_log: Arc<ErrorLog>,
}

/// Facts about the request that its response needs.
struct ResponseContext {
    id: Option<RequestId>,
    trace: Rc<Trace>,
    timed: bool,
    https: bool,
    /// `None` on a plain connection.
    peer: Option<Rc<Peer>>,
}

/// A request whose first steps have run.
struct StartedRequest {
    /// The response, if the first steps produced one. Boxed because it is rare, and many requests can wait at once.
    response: Option<Box<Response>>,
    /// `None`: the response is sent unchanged.
    context: Option<ResponseContext>,
}

/// Records whether a cache would have answered a request that is looked at closely.
#[cold]
fn forecast(content: &Content, trace: &Trace, response: &Response) {
    if let (Some(forecast), Some(request)) = (&content.forecast, trace.request()) {
        trace.would_hit.set(forecast.would_hit(&request, response));
    }
}

impl Handler for Pipeline {
    /// Not an `async fn`: its future would hold the argument twice.
    fn handle(&self, mut exchange: Exchange) -> impl Future<Output = Response> {
        let recorded = if recording::is_on() { recording::observe(&mut exchange) } else { None };
        let StartedRequest { mut response, context } = self.begin(&mut exchange);
        // The request keeps its content, because another release may go into force while it is served.
        let content = self.content.borrow().clone();
        async move {
            if response.is_none()
                && let Some(judged) = self.limits.judge(&exchange.request)
            {
                response = judged.await;
            }
            // The steps to the app are written inline, so that no future is boxed or nested on this path.
            let mut response = if let Some(decided) = response {
                *decided
            } else if let Some(found) = content.script(&exchange.request) {
                if let Some(active) = exchange.trace.span.get() {
                    active.scripted.set(true);
                }
                exchange.trace.answered.set(Answered::Handler);
                found.handle(exchange, content.clone(), Hops::default()).await
            } else {
                match content.target(&exchange.request) {
                    Target::App(app) => {
                        if let Some(hub) = content.live(&exchange.request) {
                            Box::pin(hub.clone().open(exchange)).await
                        } else if let Some(response) = content.file(app, &mut exchange).await {
                            response
                        } else if let Some(cache) = &content.cache {
                            match cache.hit(&exchange) {
                                Some(response) => {
                                    // The next steps need the request.
                                    drop(exchange);
                                    response
                                }
                                None => Box::pin(cache.serve(exchange, app.clone())).await,
                            }
                        } else {
                            app.rack.handle(exchange).await
                        }
                    }
                    other => Box::pin(content.serve(other, exchange)).await,
                }
            };
            if let Some(recorded) = &recorded {
                recorded.answered(&mut response);
            }
            if let Some(context) = &context {
                if context.trace.measure.get() {
                    forecast(&content, &context.trace, &response);
                }
                self.compressor.apply(
                    &content.serving.release.settings.compression,
                    &mut response,
                    &context.trace,
                );
                self.mark(&mut response, context);
            }
            if let Some(recorded) = &recorded {
                recorded.sends(&response);
            }
            response
        }
    }

    fn finished(&self, ending: &Ending<'_>) {
        let (route, remarks) = (ending.trace.route.borrow(), ending.trace.remarks.borrow());
        if self.recorder.finished(&counted::request(ending, route.as_deref(), remarks.as_deref())) {
            self.recent.offer(ending, route.as_deref());
        }
        drop((route, remarks));
        self.report(ending.request, ending.trace, ending.failure);
        if let Some(recorded) = ending.trace.recorded.get() {
            recording::finished(recorded, ending);
        }
        if let Some(log) = &self.access_log {
            log.record(ending);
        }
        if let Some(traces) = &self.traces {
            traces.finished(ending);
        }
    }
}

impl Pipeline {
    pub(crate) fn new(
        settings: &Settings,
        encryption: &Arc<Encryption>,
        vitals: &Arc<Vitals>,
        parts: PipelineParts,
    ) -> Pipeline {
        let PipelineParts {
            has_app,
            content,
            maintenance,
            limits,
            recorder,
            recent,
            access_log,
            traces,
            error_log,
        } = parts;
        // Request ids serve to find a request in the app's log.
        let id_header = settings.rack.request_id_header.as_deref();
        let write = Box::new(move |what: &str, id: Option<&[u8]>| error_log.error(what, id));
        let failures = FailureLog::new(write, id_header);
        spawn_local(failures.follow());
        Pipeline {
            ids: id_header.filter(|_| has_app).map(RequestIds::new),
            forwarded: ForwardedFields::new(settings.rack.trusted_proxies.clone()),
            probes: Probes::new(&settings.health, vitals),
            challenges: encryption.challenges(),
            redirects: Redirects::new(settings, encryption),
            maintenance,
            trusted: settings.rack.trusted_proxies.clone(),
            limits,
            compressor: Compressor::new(),
            timing: Timing::new(settings.logs.server_timing),
            traces: traces.map(Tracing::new),
            content,
            recorder,
            recent,
            access_log,
            failures,
        }
    }

    /// Runs the steps that come before the target of the request is known.
    fn begin(&self, exchange: &mut Exchange) -> StartedRequest {
        let as_it_is = |response| StartedRequest { response: Some(Box::new(response)), context: None };
        let id = self.ids.as_ref().map(|ids| ids.identify(&mut exchange.request));
        let proxied = self.forwarded.apply(&mut exchange.request);
        of_connection(&mut exchange.request);
        compression::restore_tags(&mut exchange.request);
        if let Some(probes) = &self.probes
            && let Some(answer) = probes.answer(&exchange.request)
        {
            return as_it_is(answer);
        }
        if let Some(challenges) = &self.challenges
            && let Some(answer) = challenge(challenges, &exchange.request)
        {
            return as_it_is(Response::text(200, "application/octet-stream", answer));
        }
        if let Some(traces) = &self.traces
            && let Some(active) = traces.begin(&mut exchange.request)
        {
            // Cannot fail: each exchange has its own trace, still empty here.
            let _ = exchange.trace.span.set(Box::new(active));
        }
        let timed = self.timing.is_due(&exchange.request);
        let trace = exchange.trace.clone();
        if timed {
            trace.measure.set(true);
        }
        let https = exchange.request.https;
        let peer = https.then(|| exchange.request.peer.clone());
        let elsewhere =
            self.redirects.as_ref().and_then(|redirects| redirects.of(&exchange.request, proxied));
        let response = elsewhere
            .map(Box::new)
            .or_else(|| self.maintenance.answer(&exchange.request, &self.trusted))
            .or_else(full);
        StartedRequest { response, context: Some(ResponseContext { id, trace, timed, https, peer }) }
    }

    /// Adds header fields, timing and trace data to a response.
    fn mark(&self, response: &mut Response, context: &ResponseContext) {
        let trace = &context.trace;
        if self.traces.is_some()
            && let Some(active) = trace.span.get()
        {
            active.responded.set(Some(Instant::now()));
        }
        if let Some(redirects) = &self.redirects {
            redirects.mark(context.https, &mut response.fields);
        }
        if let Some(session) = context.peer.as_ref().and_then(|peer| peer.session.as_ref())
            && let Some(alt_svc) = session.alt_svc.take()
        {
            response.fields.push(b"Alt-Svc", &alt_svc);
        }
        if let (Some(ids), Some(id)) = (&self.ids, &context.id) {
            ids.mark(&mut response.fields, id);
        }
        if context.timed {
            Timing::mark(&mut response.fields, trace);
        }
        if response.failure.is_some() || trace.has_failures() {
            // Logged before the client sees the response. Later failures are reported in `finished`.
            let failure = response.failure.take();
            self.report(trace.request().as_deref(), trace, failure.as_deref());
        }
    }

    /// Counts and logs the failure of a request, and the failures whose responses a handler has replaced.
    fn report(&self, request: Option<&Request>, trace: &Trace, failure: Option<&Failure>) {
        let replaced = trace.take_failures();
        for failure in replaced.iter().chain(failure) {
            self.recorder.failed(fault(failure.fault));
            self.failures.write(failure, request);
        }
    }
}

/// Returns the response to a request for which there is no memory.
#[inline]
fn full() -> Option<Box<Response>> {
    if memory::level() < Level::Waiting { None } else { relieve() }
}

/// Ends responses whose clients hardly read, and refuses a request if memory is full.
#[cold]
fn relieve() -> Option<Box<Response>> {
    handler::held::relieve_memory();
    let is_full = memory::level() == Level::Full;
    is_full.then(|| Box::new(Failure::busy(memory::refuse()).into_response()))
}

/// Adds the connection's TLS variables for the app.
fn of_connection(request: &mut Request) {
    let peer = request.peer.clone();
    if let Some(session) = &peer.session {
        request.variables.extend(session.variables.iter().cloned());
    }
}

/// Returns the answer to a challenge of a CA.
fn challenge(challenges: &certs::HttpAnswers, request: &Request) -> Option<String> {
    let path = std::str::from_utf8(request.path()).ok().filter(|path| path.starts_with(certs::HTTP_PATH))?;
    challenges.answer(std::str::from_utf8(request.server().0).ok()?, path)
}

fn fault(fault: Fault) -> stats::Fault {
    match fault {
        Fault::Client => stats::Fault::Client,
        Fault::App => stats::Fault::App,
        Fault::Server => stats::Fault::Server,
    }
}
