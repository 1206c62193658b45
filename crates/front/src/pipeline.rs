//! A request's life, from top to bottom.

use crate::access_log::AccessLog;
use crate::forwarded::Forwarded;
use crate::request_id::RequestIds;
use crate::scripts::local::LocalScripts;
use crate::server_timing::Timing;
use crate::sites::local::{LocalSite, LocalSites};
use crate::stamp::Stamp;
use handler::{Ending, Exchange, Fault, Handler, Request, Response};
use pool::Rack;
use script::{Hops, Next};
use site::{Answer, PublicFiles};
use stats::Finished;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Instant;

/// The app and what stands before it.
pub(crate) struct App {
    pub(crate) stamp: Stamp,
    /// Its `public` directory, unless a site serves it.
    pub(crate) files: Option<PublicFiles>,
    pub(crate) rack: Rack,
}

/// What every request goes through.
pub(crate) struct Pipeline {
    pub(crate) ids: Option<RequestIds>,
    pub(crate) forwarded: Forwarded,
    pub(crate) timing: Timing,
    pub(crate) content: Rc<Content>,
    pub(crate) recorder: stats::Recorder,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) complain: Box<dyn Fn(&str)>,
}

/// Whoever answers requests; handlers may ask it again, within the server.
pub(crate) struct Content {
    /// Handlers on mruby, before everything else.
    pub(crate) scripts: Option<Rc<LocalScripts>>,
    pub(crate) sites: Rc<LocalSites>,
    pub(crate) app: Option<App>,
    pub(crate) complain: Box<dyn Fn(&str)>,
}

impl Handler for Pipeline {
    async fn handle(&self, mut exchange: Exchange) -> Response {
        let id = self.ids.as_ref().map(|ids| ids.identify(&mut exchange.request));
        self.forwarded.apply(&mut exchange.request);
        let timed = self.timing.is_due(&exchange.request).then(|| exchange.trace.clone());
        if let Some(trace) = &timed {
            trace.measure.set(true);
        }
        let mut response = Content::answer(&self.content, exchange, Hops::default()).await;
        if let (Some(ids), Some(id)) = (&self.ids, id) {
            ids.mark(&mut response.fields, &id);
        }
        if let Some(trace) = &timed {
            Timing::mark(&mut response.fields, trace);
        }
        response
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
            total_us: u64::try_from(Instant::now().saturating_duration_since(ending.started).as_micros())
                .unwrap_or(u64::MAX),
            hijacked: ending.hijacked,
        });
        if let Some(failure) = ending.failure {
            self.recorder.failed(fault(failure.fault()));
            // What clients do wrong is theirs to find in the status; what we do wrong is the operator's to read.
            if failure.fault() != Fault::Client {
                (self.complain)(&format!(
                    "{} for {}: {}",
                    failure.status(),
                    name(ending.request),
                    failure.reason
                ));
            }
        }
        if let Some(log) = &self.access_log {
            log.record(ending);
        }
    }
}

/// What a handler leaves to others.
impl Next for Content {
    fn answer(self: Rc<Self>, exchange: Exchange) -> Pin<Box<dyn Future<Output = Response>>> {
        Box::pin(async move { self.behind(exchange).await })
    }

    fn again(self: Rc<Self>, exchange: Exchange, hops: Hops) -> Pin<Box<dyn Future<Output = Response>>> {
        Box::pin(async move { Content::answer(&self, exchange, hops).await })
    }
}

impl Content {
    /// The handlers of the request's route, else those behind them.
    async fn answer(self: &Rc<Self>, exchange: Exchange, hops: Hops) -> Response {
        if let Some(scripts) = &self.scripts
            && let Some(found) = scripts.find(&exchange.request)
        {
            return found.handle(exchange, self.clone(), hops).await;
        }
        // In a box of its own: a connection whose handler waits, perhaps one of ten thousand, has no room for it.
        Box::pin(self.behind(exchange)).await
    }

    /// The site of the request's host, else the app.
    async fn behind(&self, exchange: Exchange) -> Response {
        match self.sites.of(&exchange.request) {
            Some(site) => self.site(&site, exchange).await,
            None => self.app(exchange).await,
        }
    }

    /// The site answers, or says who does.
    async fn site(&self, local: &LocalSite, exchange: Exchange) -> Response {
        if let Some(explained) = local.explain(&exchange.request) {
            (self.complain)(&explained);
        }
        let (mut response, after) = match local.site.answer(&exchange.request).await {
            Answer::Response(response) => return response,
            Answer::Proxy(forwarding) => {
                let proxy = &local.proxies[forwarding.id];
                (Box::pin(proxy.forward(exchange, forwarding.target)).await, forwarding.after)
            }
            Answer::App(after) => (self.app(exchange).await, after),
        };
        local.site.finish(&after, &mut response);
        response
    }

    /// A file of the app's `public` directory, else the app.
    async fn app(&self, mut exchange: Exchange) -> Response {
        let Some(app) = &self.app else {
            // Only hosts have sites, and this is none of them.
            return Response::text(404, "text/plain; charset=utf-8", "404 Not Found\n");
        };
        app.stamp.apply(&mut exchange.request);
        if let Some(files) = &app.files
            && let Some(file) = files.find(&exchange.request)
            && let Some(response) = Box::pin(files.answer(&exchange.request, file)).await
        {
            return response;
        }
        app.rack.handle(exchange).await
    }
}

/// The statistics' word for a fault.
pub(crate) fn fault(fault: Fault) -> stats::Fault {
    match fault {
        Fault::Client => stats::Fault::Client,
        Fault::App => stats::Fault::App,
        Fault::Server => stats::Fault::Server,
    }
}

/// A request as an error log names it.
pub(crate) fn name(request: Option<&Request>) -> String {
    request.map_or("a request that could not be read".to_owned(), |request| {
        format!("{} {}", request.method().escape_ascii(), request.target().escape_ascii())
    })
}
