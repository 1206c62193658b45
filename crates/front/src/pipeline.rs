//! Runs each request through the front: request id, probes, redirects, limits, scripts, sites, the app.
//!
//! Contract: only [`Pipeline::report`] counts and logs the failures of requests.

use crate::access_log::AccessLog;
use crate::failure_log::FailureLog;
use crate::forwarded::Forwarded;
use crate::probes::Probes;
use crate::redirect::Redirects;
use crate::request_id::{Id as RequestId, RequestIds};
use crate::scripts::local::{Found, LocalScripts};
use crate::server_timing::Timing;
use crate::sites::local::{LocalSite, LocalSites};
use crate::stamp::Stamp;
use crate::traces::Tracing;
use handler::{Ending, Exchange, Failure, Fault, Handler, Peer, Request, Response, Trace};
use pool::Rack;
use ratelimit::Limiter;
use script::{Hops, Next};
use site::{Outcome, PublicFiles};
use stats::Finished;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Instant;

/// The app, and the steps that run before it.
pub(crate) struct App {
    pub(crate) stamp: Stamp,
    /// Files that the app's middleware would send. A site that serves a request takes precedence.
    pub(crate) files: RefCell<Option<PublicFiles>>,
    pub(crate) rack: Rack,
}

/// The steps that every request passes.
pub(crate) struct Pipeline {
    pub(crate) ids: Option<RequestIds>,
    pub(crate) forwarded: Forwarded,
    /// Answers health probes; `None` without configured paths.
    pub(crate) probes: Option<Probes>,
    /// Answers the HTTP-01 challenges of CAs.
    pub(crate) challenges: Option<certs::HttpAnswers>,
    /// Redirects to https and to the canonical host; `None` when neither is configured.
    pub(crate) redirects: Option<Redirects>,
    /// Limits the rate and the number of requests.
    pub(crate) limits: Option<Rc<Limiter>>,
    pub(crate) timing: Timing,
    /// `None` when distributed tracing is off.
    pub(crate) traces: Option<Tracing>,
    pub(crate) content: Rc<Content>,
    pub(crate) recorder: stats::Recorder,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) failures: FailureLog,
}

/// Everything that serves requests. A mruby handler can pass its request back to it.
pub(crate) struct Content {
    /// mruby handlers. They run before the sites and the app.
    pub(crate) scripts: Option<Rc<LocalScripts>>,
    pub(crate) sites: Rc<LocalSites>,
    pub(crate) app: Option<App>,
    pub(crate) log: Box<dyn Fn(&str)>,
}

/// The target of a request after the mruby handlers.
enum Target<'a> {
    Site(Rc<LocalSite>),
    App(&'a App),
    Nothing,
}

/// Facts about the request that its response needs.
struct Marks {
    id: Option<RequestId>,
    trace: Rc<Trace>,
    timed: bool,
    https: bool,
    /// `None` on a plain connection.
    peer: Option<Rc<Peer>>,
}

/// A request whose first steps have run.
struct Begun {
    /// The response, if the first steps produced one. Boxed because it is rare, and many requests can wait at once.
    response: Option<Box<Response>>,
    /// `None`: the response is sent unchanged.
    marks: Option<Marks>,
}

impl Handler for Pipeline {
    /// Not an `async fn`: its future would hold the argument twice.
    fn handle(&self, mut exchange: Exchange) -> impl Future<Output = Response> {
        let Begun { mut response, marks } = self.begin(&mut exchange);
        let content = &self.content;
        async move {
            if response.is_none()
                && let Some(judged) = self.limits.as_ref().and_then(|limits| limits.judge(&exchange.request))
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
                found.handle(exchange, content.clone(), Hops::default()).await
            } else {
                match content.target(&exchange.request) {
                    Target::App(app) => {
                        if let Some(response) = app.before(&mut exchange).await {
                            response
                        } else {
                            app.rack.handle(exchange).await
                        }
                    }
                    other => Box::pin(content.serve(other, exchange)).await,
                }
            };
            if let Some(marks) = &marks {
                self.mark(&mut response, marks);
            }
            response
        }
    }

    fn finished(&self, ending: &Ending<'_>) {
        let worker = ending.trace.worker.get() != 0;
        self.recorder.finished(&Finished {
            status: ending.status,
            body_bytes: ending.body_bytes,
            queue_us: worker.then(|| ending.trace.queue_us.get()),
            app_us: worker.then(|| ending.trace.app_us.get()),
            cpu_us: ending.trace.cpu_us.get(),
            gvl_us: ending.trace.gvl_us.get(),
            total_us: u64::try_from(ending.ended.saturating_duration_since(ending.started).as_micros())
                .unwrap_or(u64::MAX),
            hijacked: ending.hijacked,
        });
        self.report(ending.request, ending.trace, ending.failure);
        if let Some(log) = &self.access_log {
            log.record(ending);
        }
        if let Some(traces) = &self.traces {
            traces.finished(ending);
        }
    }
}

impl Pipeline {
    /// Runs the steps that come before the target of the request is known.
    fn begin(&self, exchange: &mut Exchange) -> Begun {
        let as_it_is = |response| Begun { response: Some(Box::new(response)), marks: None };
        let id = self.ids.as_ref().map(|ids| ids.identify(&mut exchange.request));
        let proxied = self.forwarded.apply(&mut exchange.request);
        of_connection(&mut exchange.request);
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
        Begun { response: elsewhere.map(Box::new), marks: Some(Marks { id, trace, timed, https, peer }) }
    }

    /// Adds header fields, timing and trace data to a response.
    fn mark(&self, response: &mut Response, marks: &Marks) {
        let trace = &marks.trace;
        if self.traces.is_some()
            && let Some(active) = trace.span.get()
        {
            active.responded.set(Some(Instant::now()));
        }
        if let Some(redirects) = &self.redirects {
            redirects.mark(marks.https, &mut response.fields);
        }
        if let Some(session) = marks.peer.as_ref().and_then(|peer| peer.session.as_ref())
            && let Some(alt_svc) = session.alt_svc.take()
        {
            response.fields.push(b"Alt-Svc", &alt_svc);
        }
        if let (Some(ids), Some(id)) = (&self.ids, &marks.id) {
            ids.mark(&mut response.fields, id);
        }
        if marks.timed {
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

/// The targets after the mruby handlers.
impl Next for Content {
    fn respond(self: Rc<Self>, exchange: Exchange) -> Pin<Box<dyn Future<Output = Response>>> {
        Box::pin(async move { self.serve(self.target(&exchange.request), exchange).await })
    }

    fn reprocess(self: Rc<Self>, exchange: Exchange, hops: Hops) -> Pin<Box<dyn Future<Output = Response>>> {
        match self.script(&exchange.request) {
            Some(found) => Box::pin(found.handle(exchange, self, hops)),
            None => self.respond(exchange),
        }
    }
}

impl Content {
    /// Returns the mruby handlers of the request's route.
    fn script(&self, request: &Request) -> Option<Found> {
        self.scripts.as_ref()?.find(request)
    }

    /// Returns the site of the request's host, or else the app.
    fn target(&self, request: &Request) -> Target<'_> {
        match (self.sites.of(request), &self.app) {
            (Some(site), _) => Target::Site(site),
            (None, Some(app)) => Target::App(app),
            (None, None) => Target::Nothing,
        }
    }

    async fn serve(&self, target: Target<'_>, exchange: Exchange) -> Response {
        match target {
            Target::Site(site) => self.site(&site, exchange).await,
            Target::App(app) => app.serve(exchange).await,
            // Every site belongs to a host, and no site has this one.
            Target::Nothing => Response::text(404, "text/plain; charset=utf-8", "404 Not Found\n"),
        }
    }

    /// Lets the site respond, or forwards the request to the target that the site names.
    async fn site(&self, local: &LocalSite, exchange: Exchange) -> Response {
        if let Some(explained) = local.explain(&exchange.request) {
            (self.log)(&explained);
        }
        let (mut response, edits) = match local.site.respond(&exchange.request).await {
            Outcome::Response(response) => return response,
            Outcome::Proxy(forwarding) => {
                let proxy = &local.proxies[forwarding.id];
                if let Some(active) = exchange.trace.span.get() {
                    active.forwarded.set(Some(Instant::now()));
                }
                (Box::pin(proxy.forward(exchange, forwarding.target)).await, forwarding.edits)
            }
            Outcome::App(edits) => {
                let target = self.app.as_ref().map_or(Target::Nothing, Target::App);
                (Box::pin(self.serve(target, exchange)).await, edits)
            }
        };
        local.site.finish(&edits, &mut response);
        response
    }
}

impl App {
    /// Serves a file that the app's middleware would send, or else calls the app.
    async fn serve(&self, mut exchange: Exchange) -> Response {
        match self.before(&mut exchange).await {
            Some(response) => response,
            None => self.rack.handle(exchange).await,
        }
    }

    /// Stamps the request. Returns a response if the request is for a file.
    async fn before(&self, exchange: &mut Exchange) -> Option<Response> {
        self.stamp.apply(&mut exchange.request);
        let file = self.files.borrow().as_ref()?.find(&exchange.request)?;
        Box::pin(file.respond(&exchange.request)).await
    }
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
