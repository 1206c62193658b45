//! The handlers of one front thread: [`Script`].

use crate::basic::Log;
use crate::chain::{Chain, Hops, Next, Position, Responding, ServedRequest};
use crate::context::TaskContext;
use crate::env::{self, Names};
use crate::failure;
use crate::held::Owned;
use crate::load::describe_load_error;
use crate::next::delegate;
use crate::observed::Observed;
use crate::outcome::{self, Failed, HandlerOutcome, streamed};
use crate::plan::{HandlerPlan, HandlerRoute};
use crate::runtime::{Runtime, describe};
use crate::stream::{HALF_CLOSED_TIMEOUT, Outlet, is_disconnect};
use crate::subject::Location;
use crate::task::{Task, drive, start_spawned};
use handler::path::Path;
use handler::{Client, Departure, Exchange, Failure, Fault, Fields, Incoming, Request, Response};
use http::body::{BodyBounds, Collected, collect};
use mruby::{Exception, StepResult, Tape, Text};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;

/// The response of handlers, as a future that allocates nothing if the response is ready at once.
pub enum Handling {
    /// The response; `None` after it has been returned.
    Ready(Option<Response>),
    /// A handler waits.
    Pending(Pin<Box<dyn Future<Output = Response>>>),
}

impl Future for Handling {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        match &mut *self {
            Handling::Ready(response) => response.take().map_or(Poll::Pending, Poll::Ready),
            Handling::Pending(rest) => rest.as_mut().poll(cx),
        }
    }
}

/// The result of a handler's first step.
enum First {
    Done(Result<HandlerOutcome, Failed>),
    Waits(Box<WaitingRequest>),
}

/// A request whose handler waits.
struct WaitingRequest {
    task: Task,
    step: StepResult,
    exchange: Exchange,
}

/// The handlers of one front thread, in one VM.
pub struct Script {
    runtime: Rc<Runtime>,
    names: Names,
    plan: Arc<HandlerPlan>,
    /// For each handler its number in the VM, or the reason why it could not be loaded.
    apps: RefCell<Vec<Result<u32, String>>>,
    /// The number of evaluated handlers.
    loaded: watch::Sender<usize>,
}

impl Script {
    /// Opens a VM and starts to evaluate the handlers in it, in order. Needs a `LocalSet` or `LocalRuntime`.
    ///
    /// # Errors
    /// There is no mruby or not enough memory.
    pub fn open(plan: Arc<HandlerPlan>, log: Log) -> Result<Rc<Script>, String> {
        Script::open_observed(plan, log, Observed::default())
    }

    /// Does the same as [`Script::open`], with counters that other threads can read.
    ///
    /// # Errors
    /// The same as of [`Script::open`].
    pub fn open_observed(plan: Arc<HandlerPlan>, log: Log, observed: Observed) -> Result<Rc<Script>, String> {
        let runtime = Runtime::open(&plan, log, observed)?;
        plan.sources.iter().for_each(|source| runtime.stdlib.folders.add(&source.file));
        let names = Names::new(|text| runtime.intern(text.as_bytes())).ok_or("no memory for a Ruby VM")?;
        let apps = RefCell::default();
        let loaded = watch::Sender::new(0);
        let script = Rc::new(Script { runtime, names, plan, apps, loaded });
        net::task::spawn_local(load(script.clone()));
        Ok(script)
    }

    /// Completes when all handlers have been evaluated.
    ///
    /// # Errors
    /// The reason why the first failed handler could not be loaded.
    pub async fn ready(&self) -> Result<(), String> {
        let mut loaded = self.loaded.subscribe();
        // Cannot fail: `self` owns the sender.
        let _ = loaded.wait_for(|count| *count == self.plan.sources.len()).await;
        self.apps
            .borrow()
            .iter()
            .find_map(|app| app.as_ref().err())
            .map_or(Ok(()), |error| Err(error.clone()))
    }

    pub fn plan(&self) -> &Arc<HandlerPlan> {
        &self.plan
    }

    /// Returns whether the VM can serve no more requests; then open another [`Script`].
    pub fn is_broken(&self) -> bool {
        self.runtime.is_broken()
    }

    /// Collects garbage, if enough may have come together, because the process has little memory.
    pub fn give_back(&self) {
        self.runtime.give_back();
    }

    /// Returns the number of requests and tasks in the VM.
    pub fn under_way(&self) -> usize {
        self.runtime.running_tasks()
    }

    /// Returns the number of the route for a request: the longest path that contains it.
    pub fn route(&self, request: &Request) -> Option<usize> {
        let path = Path::new(request.path());
        self.plan.routes.iter().position(|route| path.below(route.path.as_bytes()).is_some())
    }

    /// Returns the response of a route's handlers, or of `next`. Most handlers never wait: then the response
    /// is ready at once and nothing is allocated.
    pub fn handle(
        self: &Rc<Self>,
        route: usize,
        exchange: Exchange,
        next: Rc<dyn Next>,
        hops: Hops,
    ) -> Handling {
        self.runtime.counts.asked();
        let position = Position { route, handler: 0, next, hops };
        let first = self.plan.routes[route].handlers.first();
        let loaded = first.and_then(|handler| self.loaded(*handler)?.ok());
        let (Some(app), Incoming::Empty) = (loaded, &exchange.incoming) else {
            return Handling::Pending(self.clone().respond_from(position, exchange));
        };
        match self.first_step(app, &position, None, exchange) {
            First::Done(Ok(HandlerOutcome::Response(response))) => Handling::Ready(Some(response)),
            first => Handling::Pending(Box::pin(self.clone().finish(position, first))),
        }
    }

    /// Continues from a handler's first step to a response, its own or that of a later link.
    async fn finish(self: Rc<Self>, mut position: Position, mut first: First) -> Response {
        let mut fields = Fields::default();
        let mut response = loop {
            let outcome = match first {
                First::Done(outcome) => outcome,
                First::Waits(waiting) => self.wait(&position, *waiting).await,
            };
            let exchange = match outcome {
                Ok(HandlerOutcome::Response(response)) => break response,
                Ok(HandlerOutcome::Fallthrough(exchange, more)) => {
                    more.iter().for_each(|(name, value)| fields.push(name, value));
                    exchange
                }
                Ok(HandlerOutcome::Delegated(exchange, status, url)) => {
                    let fetch = &self.runtime.fetch;
                    break Box::pin(delegate(&*self, fetch, position, status, &url, exchange)).await;
                }
                Err(failed) => {
                    let (mut failure, exchange) = *failed;
                    failure.reason = format!("{}: {}", self.name(&position), failure.reason).into();
                    drop(exchange);
                    return self.fail(failure);
                }
            };
            position.handler += 1;
            first = match Box::pin(self.start(&position, exchange)).await {
                Ok(first) => first,
                Err(exchange) => break position.next.respond(exchange).await,
            };
        };
        fields.iter().for_each(|(name, value)| response.fields.push(name, value));
        response
    }

    /// Returns the name of a handler for the log.
    fn name(&self, position: &Position) -> String {
        let route = &self.plan.routes[position.route];
        let source = route.handlers.get(position.handler).map(|handler| self.plan.sources[*handler].name());
        format!("{} (route {})", source.unwrap_or_default(), route.shown())
    }

    /// Returns the location of a handler for the watchdog.
    fn location(&self, position: &Position) -> Location {
        let source = self.plan.routes[position.route].handlers.get(position.handler);
        let number = |index: &usize| u32::try_from(*index).ok();
        Location { source: source.and_then(number), route: number(&position.route) }
    }

    /// Gives a request to the handler at a position, once the handler is loaded and the body has arrived.
    /// Returns the exchange if there are no more handlers.
    async fn start(self: &Rc<Self>, position: &Position, mut exchange: Exchange) -> Result<First, Exchange> {
        let route = &self.plan.routes[position.route];
        let Some(&handler) = route.handlers.get(position.handler) else { return Err(exchange) };
        let failed = |failure, exchange| Ok(First::Done(Err(Box::new((failure, exchange)))));
        let app = match self.app(handler).await {
            Ok(app) => app,
            Err(why) => return failed(failure::handler(why), exchange),
        };
        match self.collect(route, &mut exchange).await {
            Ok(body) => Ok(self.first_step(app, position, body.as_deref(), exchange)),
            Err(failure) => failed(failure, exchange),
        }
    }

    /// Runs a handler's first step.
    fn first_step(&self, app: u32, position: &Position, body: Option<&[u8]>, exchange: Exchange) -> First {
        let route = &self.plan.routes[position.route];
        let Some(task) = Task::new(&self.runtime, &route.limits, self.location(position)) else {
            self.runtime.counts.refused();
            let failure = failure::too_many_tasks(route.limits.max_tasks);
            return First::Done(Err(Box::new((failure, exchange))));
        };
        let hops = position.hops.env();
        let more = body.is_some() || hops.is_some();
        let step = env::build(&self.names, &exchange.request, route.path.as_bytes(), body, |env| {
            let hops = hops.iter().flatten();
            let hops = hops.map(|(key, left)| (Text::Bytes(key.as_bytes()), Text::Bytes(left.as_bytes())));
            task.request(app, &exchange.request, env.iter().copied().chain(hops), more)
        });
        start_spawned(&self.runtime);
        First::Done(match step {
            StepResult::Done => outcome::read(&self.runtime, exchange),
            StepResult::Raised(error) | StepResult::Broken(error) => {
                Err(Box::new((failure::handler(describe(&error)), exchange)))
            }
            StepResult::Wait => return First::Waits(Box::new(WaitingRequest { task, step, exchange })),
        })
    }

    /// Continues a waiting request until it has a response or the head of one.
    async fn wait(
        self: &Rc<Self>,
        position: &Position,
        waiting: WaitingRequest,
    ) -> Result<HandlerOutcome, Failed> {
        let WaitingRequest { task, step, exchange } = waiting;
        let (outlet, mut head) = Outlet::new();
        let context = Rc::new(TaskContext {
            outlet: Some(RefCell::new(outlet)),
            origin: Some(ServedRequest::new(self.clone(), position.clone(), &exchange)),
            held: Owned::of_request(),
        });
        let route = &self.plan.routes[position.route];
        let runtime = self.runtime.clone();
        // `context` must live until the response has been read, because it may hold the body.
        let own = context.clone();
        let mut driven: Pin<Box<dyn Future<Output = Result<(), Exception>>>> = Box::pin(async move {
            let ended = drive(&runtime, &task, &own, step).await;
            own.held.end();
            ended
        });
        let client = exchange.client.clone();
        let ended = tokio::select! {
            biased;
            ended = &mut driven => ended,
            Ok(head) = &mut head => {
                let (script, position) = (self.clone(), position.clone());
                let lost = context.client_lost();
                let failed = context.outlet.as_ref().map(|outlet| outlet.borrow().failure());
                net::task::spawn_local(async move {
                    let ended = tokio::select! {
                        biased;
                        ended = driven => ended,
                        // Cancels the task now, not only when it has something to send.
                        () = lost => Ok(()),
                    };
                    if let Err(error) = ended
                        && !is_disconnect(&error)
                    {
                        script.runtime.counts.failed();
                        let name = script.name(&position);
                        let why = format!("{name}: after the response had started: {}", describe(&error));
                        match &failed {
                            // The body carries the failure to the log.
                            Some(failed) if Rc::strong_count(failed) > 1 => {
                                failed.set(Some(failure::handler(why)));
                            }
                            _ => (script.runtime.basic.log)(&why),
                        }
                    }
                });
                return streamed(head, exchange);
            }
            () = departure(&*client) => return Err(Box::new((failure::client_gone(), exchange))),
            limit = deadline(route.limits.deadline) => {
                return Err(Box::new((failure::deadline(limit), exchange)));
            }
        };
        if let Err(error) = ended {
            return Err(Box::new((failure::handler(describe(&error)), exchange)));
        }
        // A short body may be complete before its head has been received.
        match head.try_recv() {
            Ok(head) => streamed(head, exchange),
            Err(_) => outcome::read(&self.runtime, exchange),
        }
    }

    /// Returns the VM's number of a handler, or the reason why it could not be loaded; `None` if it has not
    /// been evaluated yet.
    fn loaded(&self, app: usize) -> Option<Result<u32, String>> {
        self.apps.borrow().get(app).cloned()
    }

    /// Waits until the handler has been evaluated, then does the same.
    async fn app(&self, app: usize) -> Result<u32, String> {
        let mut loaded = self.loaded.subscribe();
        // Cannot fail: `self` owns the sender.
        let _ = loaded.wait_for(|count| *count > app).await;
        self.loaded(app).unwrap_or_else(|| Err("there is no such handler".to_owned()))
    }

    /// Reads the request's body, which also stays in the exchange for later links.
    async fn collect(
        &self,
        route: &HandlerRoute,
        exchange: &mut Exchange,
    ) -> Result<Option<bytes::Bytes>, Failure> {
        let incoming = std::mem::replace(&mut exchange.incoming, Incoming::Empty);
        let max_body = route.limits.max_body;
        let account = exchange.client.open_account();
        let bounds =
            BodyBounds { memory: max_body, temp_dir: &self.plan.temp_dir, account, patience: Duration::ZERO };
        match collect(incoming, bounds).await? {
            Collected::Empty => Ok(None),
            Collected::Memory(bytes) => {
                exchange.incoming = Incoming::Ready(bytes.clone());
                Ok(Some(bytes))
            }
            Collected::Spooled { len, .. } => Err(failure::body_too_large(len, max_body)),
        }
    }
}

impl Chain for Script {
    fn mount(&self, route: usize) -> &str {
        &self.plan.routes[route].path
    }

    fn may_reproxy(&self, route: usize) -> bool {
        self.plan.routes[route].limits.reproxy
    }

    fn respond_from(self: Rc<Self>, position: Position, exchange: Exchange) -> Responding {
        Box::pin(async move {
            match self.start(&position, exchange).await {
                Ok(first) => self.finish(position, first).await,
                Err(exchange) => position.next.respond(exchange).await,
            }
        })
    }

    fn fail(&self, failure: Failure) -> Response {
        if failure.fault != Fault::Client {
            self.runtime.counts.failed();
        }
        failure.into_response()
    }
}

/// Completes when the client has disconnected, or has been half-closed for too long.
async fn departure(client: &dyn Client) {
    let departed = || poll_fn(|cx| client.poll_departure(cx));
    if departed().await == Departure::HalfClosed {
        let _ = tokio::time::timeout(HALF_CLOSED_TIMEOUT, departed()).await;
    }
}

/// Completes when the deadline has passed; returns it.
async fn deadline(limit: Option<Duration>) -> Duration {
    match limit {
        Some(limit) => {
            tokio::time::sleep(limit).await;
            limit
        }
        None => std::future::pending().await,
    }
}

/// Evaluates the handlers one after the other; each may wait.
async fn load(script: Rc<Script>) {
    let runtime = &script.runtime;
    for (number, source) in (0..).zip(&script.plan.sources) {
        let mut args = Tape::new();
        args.array(2).str(&source.code).str(source.name());
        let location = Location { source: Some(number), route: None };
        let Some(task) = Task::new(runtime, &runtime.loosest_limits, location) else { return };
        let first = task.start(runtime.load_app, &args);
        let app = match drive(runtime, &task, &TaskContext::default(), first).await {
            Ok(()) => {
                let number = runtime.out(|out| out.int()).and_then(|app| u32::try_from(app).ok());
                number.ok_or_else(|| format!("{}: the VM returned no handler", source.name()))
            }
            Err(error) => Err(describe_load_error(source, &error)),
        };
        script.apps.borrow_mut().push(app);
        script.loaded.send_modify(|count| *count += 1);
    }
}
