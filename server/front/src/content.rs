//! The handlers, sites, files and app of one release, as one front thread serves them.
//!
//! Contract: a `Content` does not change. A request keeps the content that was in force at its start, also
//! when a handler passes it on.

use crate::app::App;
use crate::caching::{self, Proxied};
use crate::hub::local::LocalHub;
use crate::release::Serving;
use crate::scripts::local::{LocalScripts, MatchedRoute};
use crate::sites::load::bounds;
use crate::sites::local::{LocalSite, LocalSites, Log};
use cache::{Cache, Forecast};
use handler::{Answered, Exchange, Handler as _, Request, Response};
use script::{Hops, Next};
use settings::Settings;
use site::{AppFiles, PublicFiles, SiteResult};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Everything that responds to requests. A mruby handler can pass its request back to it.
pub(crate) struct Content {
    /// The release, and the tried files, that this content was built from.
    pub(crate) serving: Serving,
    /// mruby handlers. They run before the sites and the app.
    pub(crate) scripts: Option<Rc<LocalScripts>>,
    sites: Rc<LocalSites>,
    /// Files that the app's middleware would send. A site that serves a request takes precedence.
    files: Option<Rc<PublicFiles>>,
    /// The files of a release that is being tried, for files that this release does not have.
    tried: Option<Rc<PublicFiles>>,
    app: Option<Rc<App>>,
    /// `None` if no response is kept.
    pub(crate) cache: Option<Rc<Cache>>,
    /// The forecast of its hits; `None` if it is on.
    pub(crate) forecast: Option<Forecast>,
    /// The hub of live pages; `None` if it is off.
    pub(crate) hub: Option<Rc<LocalHub>>,
    log: Log,
}

/// The target of a request after the mruby handlers.
pub(crate) enum Target<'a> {
    Site(&'a LocalSite),
    App(&'a Rc<App>),
    Nothing,
}

impl Content {
    pub(crate) fn new(
        serving: Serving,
        app: Option<Rc<App>>,
        cache: Option<Rc<Cache>>,
        scripts: Option<Rc<LocalScripts>>,
        hub: Option<Rc<LocalHub>>,
        log: Log,
    ) -> Content {
        let release = &serving.release;
        let sites = Rc::new(LocalSites::new(&release.sites, &log));
        let files = |of: &Arc<AppFiles>| public_files(of, &release.settings);
        let (files, tried) = (files(&release.files), serving.tried.as_ref().and_then(files));
        let forecast = forecast(cache.is_none(), &release.settings);
        Content { scripts, sites, files, tried, app, cache, forecast, hub, log, serving }
    }

    /// Returns the content of the next release. Unchanged parts keep their state: opened files, connections
    /// to origins.
    pub(crate) fn next(&self, serving: Serving, scripts: Option<Rc<LocalScripts>>) -> Content {
        let (before, release) = (&self.serving.release, &serving.release);
        // Its channels may be others.
        self.hub.iter().for_each(|hub| hub.take_again());
        let files = |of: &Arc<AppFiles>| match self.opened(of) {
            Some(files) => files.clone(),
            None => public_files(of, &release.settings),
        };
        Content {
            scripts,
            sites: match Arc::ptr_eq(&before.sites, &release.sites) {
                true => self.sites.clone(),
                false => Rc::new(LocalSites::new(&release.sites, &self.log)),
            },
            files: files(&release.files),
            tried: serving.tried.as_ref().and_then(files),
            app: self.app.clone(),
            cache: self.cache.clone(),
            forecast: forecast(self.cache.is_none(), &release.settings),
            hub: self.hub.clone(),
            log: self.log.clone(),
            serving,
        }
    }

    /// Gives back what is kept only to save work, because memory is scarce.
    pub(crate) fn give_back(&self) {
        self.cache.iter().for_each(|cache| cache.give_back());
        self.sites.all().for_each(|local| local.site.give_back());
        self.files.iter().chain(&self.tried).for_each(|files| files.give_back());
        self.scripts.iter().for_each(|scripts| scripts.give_back());
    }

    /// Ends the responses that wait for changes of pages, because the server stops.
    pub(crate) fn close(&self) {
        self.sites.all().filter_map(|local| local.live.as_ref()).for_each(|live| live.close());
    }

    /// Returns the opened files of an app, as far as this content has them.
    fn opened(&self, files: &Arc<AppFiles>) -> Option<&Option<Rc<PublicFiles>>> {
        let is_tried = || self.serving.tried.as_ref().is_some_and(|tried| Arc::ptr_eq(tried, files));
        if Arc::ptr_eq(&self.serving.release.files, files) {
            Some(&self.files)
        } else {
            is_tried().then_some(&self.tried)
        }
    }
}

fn forecast(wanted: bool, settings: &Settings) -> Option<Forecast> {
    wanted.then(|| Forecast::new(caching::policy(settings)))
}

/// Returns the caches of an app's files; `None` without any.
fn public_files(files: &AppFiles, settings: &Settings) -> Option<Rc<PublicFiles>> {
    let any = files.roots().next().is_some();
    any.then(|| Rc::new(PublicFiles::new(files, bounds(settings))))
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
    pub(crate) fn script(&self, request: &Request) -> Option<MatchedRoute> {
        self.scripts.as_ref()?.find(request)
    }

    /// Returns the site of the request's host, or else the app.
    pub(crate) fn target(&self, request: &Request) -> Target<'_> {
        match (self.sites.of(request), &self.app) {
            (Some(site), _) => Target::Site(site),
            (None, Some(app)) => Target::App(app),
            (None, None) => Target::Nothing,
        }
    }

    pub(crate) async fn serve(&self, target: Target<'_>, exchange: Exchange) -> Response {
        match target {
            Target::Site(site) => self.site(site, exchange).await,
            Target::App(app) => self.app(app, exchange).await,
            // Every site belongs to a host, and no site has this one.
            Target::Nothing => Response::text(404, "text/plain; charset=utf-8", "404 Not Found\n"),
        }
    }

    /// Lets the site respond, or forwards the request to the target that the site names.
    async fn site(&self, local: &LocalSite, mut exchange: Exchange) -> Response {
        if let Some(live) = &local.live {
            live.prepare(&mut exchange.request);
        }
        if let Some(explained) = local.explain(&exchange.request) {
            (self.log)(&explained);
        }
        let (mut response, edits) = match local.site.respond(&exchange.request).await {
            SiteResult::Response(mut response) => {
                exchange.trace.answered.set(Answered::File);
                // It has a coding by the rules of the site.
                response.negotiated = true;
                return match &local.live {
                    Some(live) => live.complete(&exchange.request, response),
                    None => response,
                };
            }
            SiteResult::Proxy(forwarding) => {
                let proxy = &local.proxies[forwarding.id];
                exchange.trace.answered.set(Answered::Proxy);
                if let Some(active) = exchange.trace.span.get() {
                    active.forwarded.set(Some(Instant::now()));
                }
                let response = match self.cache.as_ref().filter(|_| self.keeps_proxied()) {
                    None => Box::pin(proxy.forward(exchange, forwarding.target)).await,
                    Some(cache) => {
                        let origin = Proxied { proxy: proxy.clone(), target: forwarding.target };
                        Box::pin(cache.serve(exchange, Rc::new(origin))).await
                    }
                };
                (response, forwarding.edits)
            }
            SiteResult::App(edits) => {
                let target = self.app.as_ref().map_or(Target::Nothing, Target::App);
                (Box::pin(self.serve(target, exchange)).await, edits)
            }
        };
        let proxied = edits.is_proxied();
        local.site.finish(&edits, &mut response);
        // A proxied site is compressed by its own rule; the app behind a site by the settings.
        response.negotiated |= proxied;
        response
    }

    /// Returns the hub if a request for the app is for it.
    pub(crate) fn live(&self, request: &Request) -> Option<&Rc<LocalHub>> {
        self.hub.as_ref().filter(|hub| hub.takes(request))
    }

    /// Opens a WebSocket of the hub, serves a file that the app's middleware would send, or else calls the app.
    async fn app(&self, app: &Rc<App>, mut exchange: Exchange) -> Response {
        if let Some(hub) = self.live(&exchange.request) {
            return Box::pin(hub.clone().open(exchange)).await;
        }
        match self.file(app, &mut exchange).await {
            Some(response) => response,
            None => match &self.cache {
                Some(cache) => Box::pin(cache.serve(exchange, app.clone())).await,
                None => app.rack.handle(exchange).await,
            },
        }
    }

    fn keeps_proxied(&self) -> bool {
        self.serving.release.settings.cache.proxied
    }

    /// Stamps the request. Returns a response if the request is for a file of the app.
    pub(crate) async fn file(&self, app: &App, exchange: &mut Exchange) -> Option<Response> {
        app.stamp.apply(&mut exchange.request);
        let request = &exchange.request;
        let find = |files: &Option<Rc<PublicFiles>>| files.as_ref()?.find(request);
        let mut response = match find(&self.files) {
            Some(file) => Box::pin(file.respond(request)).await,
            None => None,
        };
        if response.is_none() {
            response = Box::pin(find(&self.tried)?.respond(request)).await;
        }
        if response.is_some() {
            exchange.trace.answered.set(Answered::File);
        }
        // Files have a coding by rules of their own.
        response.iter_mut().for_each(|response| response.negotiated = true);
        response
    }
}
