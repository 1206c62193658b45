//! The sites of a front thread.

use super::{Sites, of_host};
use handler::Request;
use proxy::Proxy;
use site::{ExplainRequest, Site, SiteConfig};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::watch;

/// Logs errors of a site's files.
pub(crate) type Log = Rc<dyn Fn(&str)>;

pub(crate) struct LocalSite {
    pub(crate) site: Site,
    pub(crate) proxies: Vec<Proxy>,
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

pub(crate) struct LocalSites {
    current: RefCell<Rc<Set>>,
    log: Log,
}

struct Set {
    main: Option<Rc<LocalSite>>,
    hosts: Vec<(String, Rc<LocalSite>)>,
}

impl LocalSites {
    pub(crate) fn new(sites: &Sites, log: Log) -> Rc<LocalSites> {
        let current = RefCell::new(Rc::new(Set::new(sites, &log)));
        Rc::new(LocalSites { current, log })
    }

    /// Replaces the sites when new ones arrive, for as long as it is polled.
    pub(crate) async fn follow(self: Rc<LocalSites>, mut changes: watch::Receiver<Arc<Sites>>) {
        while changes.changed().await.is_ok() {
            let sites = changes.borrow_and_update().clone();
            self.current.replace(Rc::new(Set::new(&sites, &self.log)));
        }
    }

    /// Returns the site of a request.
    pub(crate) fn of(&self, request: &Request) -> Option<Rc<LocalSite>> {
        let set = self.current.borrow();
        match of_host(&set.hosts, request.authority()) {
            Some(index) => Some(set.hosts[index].1.clone()),
            None => set.main.clone(),
        }
    }
}

impl Set {
    fn new(sites: &Sites, log: &Log) -> Set {
        let local = |plan: &super::SitePlan| {
            let proxies = plan.upstreams.iter().map(|upstreams| Proxy::new(upstreams.clone()));
            let log = log.clone();
            let site = Site::new(plan.plan.clone(), Box::new(move |what| log(what)));
            let debug = (plan.plan.rules.error_level() == "debug").then(|| plan.plan.clone());
            Rc::new(LocalSite { site, proxies: proxies.collect(), debug })
        };
        let hosts = sites.hosts.iter().map(|(host, plan)| (host.clone(), local(plan)));
        Set { main: sites.main.as_ref().map(local), hosts: hosts.collect() }
    }
}
