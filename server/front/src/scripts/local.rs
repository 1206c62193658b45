//! The mruby handlers of a release on one thread: one VM, replaced when it breaks.

use super::Edition;
use crate::sites::local::Log;
use handler::{Exchange, Request};
use script::{HandlerPlan, Handling, Hops, Next, Observed, Script};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Returns handlers that have been evaluated, and records that this thread uses them.
///
/// # Errors
/// A handler cannot be used. The first thread that notices it has written why to `log`.
pub(crate) async fn made_ready(
    edition: &Edition,
    log: &Log,
    observed: &Observed,
) -> Result<Rc<LocalScripts>, ()> {
    let made = async {
        let scripts = LocalScripts::new(edition.plan.clone(), log.clone(), observed.clone())?;
        scripts.ready().await.map(|()| scripts)
    };
    match made.await {
        Ok(scripts) => {
            observed.counts.reloaded();
            if edition.is_used() {
                log("the mruby handlers have been read again");
            }
            Ok(scripts)
        }
        Err(why) => {
            if edition.is_refused() {
                log(&format!("{why}\nthe handlers before this change stay in force"));
            }
            Err(())
        }
    }
}

/// The retry interval for handlers that could not be evaluated in a new VM. A resource that they need may
/// have returned by then.
const RETRY: Duration = Duration::from_secs(5);

pub(crate) struct LocalScripts {
    current: RefCell<Rc<Script>>,
    log: Log,
    /// Shared by all VMs, one after the other.
    observed: Observed,
    replacing: Cell<bool>,
}

/// The route of a request, in the VM that was current when the request arrived.
pub(crate) struct MatchedRoute {
    script: Rc<Script>,
    route: usize,
}

impl MatchedRoute {
    /// Lets the handlers respond, or `next`.
    pub(crate) fn handle(self, exchange: Exchange, next: Rc<dyn Next>, hops: Hops) -> Handling {
        self.script.handle(self.route, exchange, next, hops)
    }
}

impl LocalScripts {
    /// # Errors
    /// There is no mruby, or no memory for it.
    pub(crate) fn new(
        plan: Arc<HandlerPlan>,
        log: Log,
        observed: Observed,
    ) -> Result<Rc<LocalScripts>, String> {
        let current = open(&plan, &log, &observed)?;
        Ok(Rc::new(LocalScripts {
            current: RefCell::new(current),
            log,
            observed,
            replacing: Cell::new(false),
        }))
    }

    /// Waits until the handlers have been evaluated.
    ///
    /// # Errors
    /// The error of the first handler that cannot be used.
    pub(crate) async fn ready(&self) -> Result<(), String> {
        let script = self.current.borrow().clone();
        script.ready().await
    }

    /// Returns the handlers of a request's route.
    pub(crate) fn find(self: &Rc<Self>, request: &Request) -> Option<MatchedRoute> {
        if self.current.borrow().is_broken() {
            self.replace_broken();
        }
        let script = self.current.borrow();
        script.route(request).map(|route| MatchedRoute { script: script.clone(), route })
    }

    /// Collects garbage, because memory is scarce.
    pub(crate) fn give_back(&self) {
        self.current.borrow().give_back();
    }

    /// Replaces a broken VM. Requests that arrive before its handlers have been evaluated wait for them.
    fn replace_broken(self: &Rc<Self>) {
        if self.replacing.replace(true) {
            return;
        }
        self.observed.counts.replaced();
        (self.log)("the mruby VM of a front thread broke; its handlers are evaluated anew in another");
        let (scripts, log, mut renewed) = (Rc::downgrade(self), self.log.clone(), self.renew());
        net::task::spawn_local(async move {
            while let Err(why) = ready(&renewed).await {
                log(&why);
                tokio::time::sleep(RETRY).await;
                // Other handlers may have replaced these.
                let Some(scripts) = scripts.upgrade() else { return };
                renewed = scripts.renew();
            }
            if let Some(scripts) = scripts.upgrade() {
                scripts.replacing.set(false);
            }
        });
    }

    /// Opens a new VM with the same handlers, and makes it the current one.
    fn renew(&self) -> Result<Rc<Script>, String> {
        let plan = self.current.borrow().plan().clone();
        let script = open(&plan, &self.log, &self.observed)?;
        self.current.replace(script.clone());
        Ok(script)
    }
}

async fn ready(script: &Result<Rc<Script>, String>) -> Result<(), String> {
    match script {
        Ok(script) => script.ready().await,
        Err(why) => Err(why.clone()),
    }
}

fn open(plan: &Arc<HandlerPlan>, log: &Log, observed: &Observed) -> Result<Rc<Script>, String> {
    Script::open_observed(plan.clone(), log.clone(), observed.clone())
}
