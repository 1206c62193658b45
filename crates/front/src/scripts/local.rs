//! A front thread's own handlers: one VM, replaced when the files change or when it breaks.

use crate::sites::local::{Complain, OnFailure};
use handler::{Exchange, Request, Response};
use script::{Hops, Next, Plan, Script};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::watch;

/// The handlers of this thread.
pub(crate) struct LocalScripts {
    current: RefCell<Rc<Script>>,
    failed: OnFailure,
    complain: Complain,
    replacing: Cell<bool>,
}

/// The route of a request, in the VM that is current when it comes.
pub(crate) struct Found {
    script: Rc<Script>,
    route: usize,
}

impl LocalScripts {
    /// # Errors
    /// There is no mruby, or no memory for it.
    pub(crate) fn new(
        plan: Arc<Plan>,
        failed: OnFailure,
        complain: Complain,
    ) -> Result<Rc<LocalScripts>, String> {
        let current = open(&plan, &failed, &complain)?;
        Ok(Rc::new(LocalScripts {
            current: RefCell::new(current),
            failed,
            complain,
            replacing: Cell::new(false),
        }))
    }

    /// Ready when the handlers have been evaluated.
    ///
    /// # Errors
    /// What the first one that cannot be used says.
    pub(crate) async fn ready(&self) -> Result<(), String> {
        let script = self.current.borrow().clone();
        script.ready().await
    }

    /// Takes over new handlers as they come, for as long as it is polled.
    pub(crate) async fn follow(self: Rc<LocalScripts>, mut changes: watch::Receiver<Arc<Plan>>) {
        while changes.changed().await.is_ok() {
            let plan = changes.borrow_and_update().clone();
            match self.made_ready(&plan).await {
                Ok(script) => drop(self.current.replace(script)),
                Err(why) => (self.complain)(&format!("{why}\nthe handlers before this change stay in force")),
            }
        }
    }

    /// The handlers that are asked about a request.
    pub(crate) fn find(&self, request: &Request) -> Option<Found> {
        let script = self.current.borrow();
        script.route(request).map(|route| Found { script: script.clone(), route })
    }

    /// They answer, or `next` does.
    pub(crate) async fn handle(
        self: &Rc<Self>,
        Found { script, route }: Found,
        exchange: Exchange,
        next: Rc<dyn Next>,
        hops: Hops,
    ) -> Response {
        let response = script.handle(route, exchange, next, hops).await;
        if script.is_broken() && Rc::ptr_eq(&script, &self.current.borrow()) {
            self.replace_broken();
        }
        response
    }

    /// Opens a new VM in the place of one that is broken.
    fn replace_broken(self: &Rc<Self>) {
        if self.replacing.replace(true) {
            return;
        }
        (self.complain)("the mruby VM of a front thread broke; its handlers are evaluated anew in another");
        let scripts = self.clone();
        tokio::task::spawn_local(async move {
            let plan = scripts.current.borrow().plan().clone();
            match scripts.made_ready(&plan).await {
                Ok(script) => drop(scripts.current.replace(script)),
                Err(why) => (scripts.complain)(&why),
            }
            scripts.replacing.set(false);
        });
    }

    async fn made_ready(&self, plan: &Arc<Plan>) -> Result<Rc<Script>, String> {
        let script = open(plan, &self.failed, &self.complain)?;
        script.ready().await?;
        Ok(script)
    }
}

fn open(plan: &Arc<Plan>, failed: &OnFailure, complain: &Complain) -> Result<Rc<Script>, String> {
    let failed = failed.clone();
    Script::open(plan.clone(), complain.clone(), Box::new(move |failure, request| failed(failure, request)))
}
