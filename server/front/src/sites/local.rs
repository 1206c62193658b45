//! The sites of a front thread.

use super::live::LivePages;
use super::{Sites, of_host};
use handler::Request;
use proxy::Proxy;
use site::{ExplainRequest, Site, SiteConfig};
use std::rc::Rc;

/// Logs errors of a site's files.
pub(crate) type Log = Rc<dyn Fn(&str)>;

pub(crate) struct LocalSite {
    pub(crate) site: Site,
    pub(crate) proxies: Vec<Rc<Proxy>>,
    /// `None` without live reload.
    pub(crate) live: Option<Rc<LivePages>>,
    /// The configuration to explain each request with, if `logging.error` is `debug`.
    debug: Option<SiteConfig>,
}

impl LocalSite {
    /// Returns the rule that responds, for the log; `None` unless `logging.error` is `debug`.
    pub(crate) fn explain(&self, request: &Request) -> Option<String> {
        let plan = self.debug.as_ref()?;
        let [target, host] = [request.target(), request.authority()].map(String::from_utf8_lossy);
        let input =
            ExplainRequest { target: &target, host: &host, https: request.https, fields: &request.fields };
        let text = site::explain(plan, &input).unwrap_or_else(|why| why);
        Some(format!("debug: {} {}", request.method().escape_ascii(), text.trim_end()))
    }
}

/// The sites of a release on one thread.
pub(crate) struct LocalSites {
    main: Option<LocalSite>,
    hosts: Vec<(String, LocalSite)>,
}

impl LocalSites {
    pub(crate) fn new(sites: &Sites, log: &Log) -> LocalSites {
        let local = |plan: &super::SitePlan| {
            let proxies = plan.upstreams.iter().map(|upstreams| Rc::new(Proxy::new(upstreams.clone())));
            let log = log.clone();
            let site = Site::new(plan.plan.clone(), Box::new(move |what| log(what)));
            let debug = (plan.plan.rules.error_level() == "debug").then(|| plan.plan.clone());
            let live = plan.live.then(|| LivePages::new(plan.plan.root.clone()));
            LocalSite { site, proxies: proxies.collect(), live, debug }
        };
        let hosts = sites.hosts.iter().map(|(host, plan)| (host.clone(), local(plan)));
        LocalSites { main: sites.main.as_ref().map(local), hosts: hosts.collect() }
    }

    /// Returns all sites.
    pub(crate) fn all(&self) -> impl Iterator<Item = &LocalSite> {
        self.main.iter().chain(self.hosts.iter().map(|(_, local)| local))
    }

    /// Returns the site of a request.
    pub(crate) fn of(&self, request: &Request) -> Option<&LocalSite> {
        match of_host(&self.hosts, request.authority()) {
            Some(index) => Some(&self.hosts[index].1),
            None => self.main.as_ref(),
        }
    }
}
