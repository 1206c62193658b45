//! The handlers of one front thread: [`Script`].

use crate::env::{self, Names};
use crate::fetch::{Owned, Url};
use crate::load::told;
use crate::next::{Hops, Origin, Place, delegate};
use crate::observed::Observed;
use crate::outcome::{self, Answer, Failed, begun, fail};
use crate::plan::{Plan, Route};
use crate::route::Path;
use crate::runtime::{Complain, Runtime, Seat, in_log};
use crate::stream::{Outlet, PATIENCE, is_departure};
use crate::subject::Spot;
use crate::tasks::{Asker, drive, start_spawned};
use handler::{
    Client, Departure, Exchange, Failure, FailureKind, Fault, Fields, Incoming, Request, Response,
};
use http::body::{Collected, collect};
use mruby::{Exception, Step, Tape, Text};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;

/// Whoever answers when a handler says 399.
pub trait Next {
    /// Answers in the handlers' place.
    fn answer(self: Rc<Self>, exchange: Exchange) -> Pin<Box<dyn Future<Output = Response>>>;

    /// Answers as if the request had just come; `hops` belong to it from now on.
    fn again(self: Rc<Self>, exchange: Exchange, hops: Hops) -> Pin<Box<dyn Future<Output = Response>>>;
}

/// A response that handlers make, or have made.
pub enum Handling {
    /// It was there at once.
    Answered(Option<Response>),
    /// It is waited for.
    Waits(Pin<Box<dyn Future<Output = Response>>>),
}

impl Future for Handling {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        match &mut *self {
            Handling::Answered(response) => response.take().map_or(Poll::Pending, Poll::Ready),
            Handling::Waits(rest) => rest.as_mut().poll(cx),
        }
    }
}

/// What a handler's first step gave.
enum First {
    Said(Result<Answer, Failed>),
    Waits(Box<Waiting>),
}

/// A request whose handler waits.
struct Waiting {
    seat: Seat,
    step: Step,
    exchange: Exchange,
}

/// Is told of each failure: the error log.
pub type OnFailure = Box<dyn Fn(&Failure, &Request)>;

/// The handlers of one front thread, in one VM.
pub struct Script {
    runtime: Rc<Runtime>,
    names: Names,
    plan: Arc<Plan>,
    apps: RefCell<Vec<Result<u32, String>>>,
    loaded: watch::Sender<usize>,
    failed: OnFailure,
}

impl Script {
    /// Opens a VM and begins to evaluate the handlers in it, in their order. For a `LocalSet` or `LocalRuntime`.
    ///
    /// # Errors
    /// When there is no mruby or no memory.
    pub fn open(plan: Arc<Plan>, complain: Complain, failed: OnFailure) -> Result<Rc<Script>, String> {
        Script::open_observed(plan, complain, failed, Observed::default())
    }

    /// The same, counted where others look.
    ///
    /// # Errors
    /// As of [`Script::open`].
    pub fn open_observed(
        plan: Arc<Plan>,
        complain: Complain,
        failed: OnFailure,
        observed: Observed,
    ) -> Result<Rc<Script>, String> {
        let runtime = Runtime::open(&plan, complain, observed)?;
        plan.sources.iter().for_each(|source| runtime.state.stdlib.folders.add(&source.file));
        let names = Names::new(&runtime).ok_or("no memory for a Ruby VM")?;
        let apps = RefCell::default();
        let script = Rc::new(Script { runtime, names, plan, apps, loaded: watch::Sender::new(0), failed });
        tokio::task::spawn_local(load(script.clone()));
        Ok(script)
    }

    /// Ready when all handlers have been evaluated.
    ///
    /// # Errors
    /// What the first one that cannot be used says.
    pub async fn ready(&self) -> Result<(), String> {
        let mut loaded = self.loaded.subscribe();
        // The sender is ours: it cannot be gone.
        let _ = loaded.wait_for(|count| *count == self.plan.sources.len()).await;
        self.apps
            .borrow()
            .iter()
            .find_map(|app| app.as_ref().err())
            .map_or(Ok(()), |error| Err(error.clone()))
    }

    /// What it was made of.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Whether the VM can be used no more: open another [`Script`].
    pub fn is_broken(&self) -> bool {
        self.runtime.is_broken()
    }

    /// How many requests and tasks are under way in the VM.
    pub fn under_way(&self) -> usize {
        self.runtime.under_way()
    }

    /// Number of the route that a request belongs to: the longest path that it is below.
    pub fn route(&self, request: &Request) -> Option<usize> {
        let path = Path::new(request.path());
        self.plan.routes.iter().position(|route| path.below(route.path.as_bytes()).is_some())
    }

    /// The handlers of a route answer, or whoever comes after them. Most handlers never wait: their response is there at once, and
    /// nothing is set up for them.
    pub fn handle(
        self: &Rc<Self>,
        route: usize,
        exchange: Exchange,
        next: Rc<dyn Next>,
        hops: Hops,
    ) -> Handling {
        self.runtime.counts.asked();
        let place = Place { route, handler: 0, next, hops };
        let first = self.plan.routes[route].handlers.first();
        let loaded = first.and_then(|handler| self.loaded(*handler)?.ok());
        let (Some(app), Incoming::Empty) = (loaded, &exchange.incoming) else {
            return Handling::Waits(Box::pin(self.clone().answer_from(place, exchange)));
        };
        match self.first_step(app, &place, None, exchange) {
            First::Said(Ok(Answer::Final(response))) => Handling::Answered(Some(response)),
            first => Handling::Waits(Box::pin(self.clone().go_on(place, first))),
        }
    }

    /// The same from somewhere in the chain on.
    pub(crate) async fn answer_from(self: Rc<Self>, place: Place, exchange: Exchange) -> Response {
        match self.ask(&place, exchange).await {
            Ok(first) => self.go_on(place, first).await,
            Err(exchange) => place.next.answer(exchange).await,
        }
    }

    /// From what a handler's first step gave to a response, its own or that of those after it.
    async fn go_on(self: Rc<Self>, mut place: Place, mut first: First) -> Response {
        let mut fields = Fields::default();
        let mut response = loop {
            let said = match first {
                First::Said(said) => said,
                First::Waits(waiting) => self.wait(&place, *waiting).await,
            };
            let left = match said {
                Ok(Answer::Final(response)) => break response,
                Ok(Answer::Fallthrough(left, more)) => {
                    more.iter().for_each(|(name, value)| fields.push(name, value));
                    left
                }
                Ok(Answer::Elsewhere(left, status, url)) => {
                    break Box::pin(delegate(&self, place, status, &url, left)).await;
                }
                Err(failed) => {
                    let (mut failure, exchange) = *failed;
                    failure.reason = format!("{}: {}", self.name(&place), failure.reason).into();
                    self.tell(&failure, &exchange.request);
                    return failure.into_response();
                }
            };
            place.handler += 1;
            first = match Box::pin(self.ask(&place, left)).await {
                Ok(first) => first,
                Err(exchange) => break place.next.answer(exchange).await,
            };
        };
        fields.iter().for_each(|(name, value)| response.fields.push(name, value));
        response
    }

    /// Counts it and tells the error log.
    pub(crate) fn tell(&self, failure: &Failure, request: &Request) {
        if failure.fault() != Fault::Client {
            self.runtime.counts.failed();
        }
        (self.failed)(failure, request);
    }

    /// A handler as the log names it.
    fn name(&self, place: &Place) -> String {
        let route = &self.plan.routes[place.route];
        let source = route.handlers.get(place.handler).map(|handler| self.plan.sources[*handler].name());
        format!("{} (route {})", source.unwrap_or_default(), route.shown())
    }

    /// The same for the watchdog.
    fn spot(&self, place: &Place) -> Spot {
        let source = self.plan.routes[place.route].handlers.get(place.handler);
        let number = |index: &usize| u32::try_from(*index).ok();
        Spot { source: source.and_then(number), route: number(&place.route) }
    }

    /// The path of a route.
    pub(crate) fn mount(&self, route: usize) -> &str {
        &self.plan.routes[route].path
    }

    /// Whether handlers of a route may send requests to other servers.
    pub(crate) fn reproxies(&self, route: usize) -> bool {
        self.plan.routes[route].limits.reproxy
    }

    /// Asks another server.
    pub(crate) async fn forward(&self, url: Url, exchange: Exchange) -> Result<Response, Failure> {
        self.runtime.state.fetch.forward(url, exchange).await
    }

    /// Gives a request to the handler whose turn it is, as soon as both are there; the exchange when there is no handler left.
    async fn ask(self: &Rc<Self>, place: &Place, mut exchange: Exchange) -> Result<First, Exchange> {
        let route = &self.plan.routes[place.route];
        let Some(&handler) = route.handlers.get(place.handler) else { return Err(exchange) };
        let failed = |kind, why, exchange| Ok(First::Said(Err(fail(kind, why, exchange))));
        let app = match self.app(handler).await {
            Ok(app) => app,
            Err(why) => return failed(FailureKind::Internal, why, exchange),
        };
        match self.collect(route, &mut exchange).await {
            Ok(body) => Ok(self.first_step(app, place, body.as_deref(), exchange)),
            Err(failure) => Ok(First::Said(Err(Box::new((failure, exchange))))),
        }
    }

    /// Takes a handler's first step.
    fn first_step(&self, app: u32, place: &Place, body: Option<&[u8]>, exchange: Exchange) -> First {
        let route = &self.plan.routes[place.route];
        let Some(seat) = self.runtime.seat(&route.limits, self.spot(place)) else {
            self.runtime.counts.refused();
            let why = format!("mruby.max_tasks ({}) are under way", route.limits.max_tasks);
            return First::Said(Err(fail(FailureKind::QueueFull, why, exchange)));
        };
        let hops = place.hops.told();
        let more = body.is_some() || hops.is_some();
        let step = env::build(&self.names, &exchange.request, route.path.as_bytes(), body, |env| {
            let hops = hops.iter().flatten();
            let hops = hops.map(|(key, left)| (Text::Bytes(key.as_bytes()), Text::Bytes(left.as_bytes())));
            seat.request(app, &exchange.request, env.iter().copied().chain(hops), more)
        });
        start_spawned(&self.runtime);
        First::Said(match step {
            Step::Done => outcome::read(&self.runtime, exchange),
            Step::Raised(error) | Step::Broken(error) => {
                Err(fail(FailureKind::Internal, in_log(&error), exchange))
            }
            Step::Wait => return First::Waits(Box::new(Waiting { seat, step, exchange })),
        })
    }

    /// Goes on with a request that waits, until there is a response or the head of one.
    async fn wait(self: &Rc<Self>, place: &Place, waiting: Waiting) -> Result<Answer, Failed> {
        let Waiting { seat, step, exchange } = waiting;
        let (outlet, mut head) = Outlet::new();
        let asker = Rc::new(Asker {
            outlet: Some(RefCell::new(outlet)),
            origin: Some(Origin::new(self, place.clone(), &exchange)),
            held: Owned::of_request(),
        });
        let route = &self.plan.routes[place.route];
        let runtime = self.runtime.clone();
        // Until the response has been read, what the task has asked for stays.
        let own = asker.clone();
        let streamed = asker.clone();
        let mut task: Pin<Box<dyn Future<Output = Result<(), Exception>>>> = Box::pin(async move {
            let ended = drive(&runtime, &seat, &own, step).await;
            own.held.end();
            ended
        });
        let client = exchange.client.clone();
        let ended = tokio::select! {
            biased;
            ended = &mut task => ended,
            Ok(head) = &mut head => {
                let (script, place) = (self.clone(), place.clone());
                let lost = streamed.lost();
                tokio::task::spawn_local(async move {
                    let ended = tokio::select! {
                        biased;
                        ended = task => ended,
                        // Given up: what it waits for ends now, and not when it has something to send.
                        () = lost => Ok(()),
                    };
                    if let Err(error) = ended
                        && !is_departure(&error)
                    {
                        script.runtime.counts.failed();
                        let name = script.name(&place);
                        let why = format!("{name}: in a response that had begun: {}", in_log(&error));
                        (script.runtime.state.complain)(&why);
                    }
                });
                return begun(head, exchange);
            }
            () = departure(&*client) => {
                return Err(fail(FailureKind::ClientGone, "the client went away", exchange));
            }
            span = over(route.limits.deadline) => {
                let why = format!("the handler gave no answer within mruby.deadline ({} s)", span.as_secs_f64());
                return Err(fail(FailureKind::WorkerStuck, why, exchange));
            }
        };
        if let Err(error) = ended {
            return Err(fail(FailureKind::Internal, in_log(&error), exchange));
        }
        // A short body may be whole before its head has been seen.
        match head.try_recv() {
            Ok(head) => begun(head, exchange),
            Err(_) => outcome::read(&self.runtime, exchange),
        }
    }

    /// The VM's number of a handler, or why there is none, once it has been loaded.
    fn loaded(&self, app: usize) -> Option<Result<u32, String>> {
        self.apps.borrow().get(app).cloned()
    }

    /// The same as soon as it has been loaded.
    async fn app(&self, app: usize) -> Result<u32, String> {
        let mut loaded = self.loaded.subscribe();
        // The sender is ours: it cannot be gone.
        let _ = loaded.wait_for(|count| *count > app).await;
        self.loaded(app).unwrap_or_else(|| Err("there is no such handler".to_owned()))
    }

    /// The request's body, which stays in the exchange for those who come after.
    async fn collect(&self, route: &Route, exchange: &mut Exchange) -> Result<Option<bytes::Bytes>, Failure> {
        let incoming = std::mem::replace(&mut exchange.incoming, Incoming::Empty);
        let limit = route.limits.max_body;
        match collect(incoming, limit, &self.plan.temp_dir).await? {
            Collected::Empty => Ok(None),
            Collected::Memory(bytes) => {
                exchange.incoming = Incoming::Ready(bytes.clone());
                Ok(Some(bytes))
            }
            Collected::Spooled { len, .. } => {
                let why = format!("the body has {len} bytes, a handler takes mruby.max_body ({limit})");
                Err(Failure::new(FailureKind::ContentTooLarge, why))
            }
        }
    }
}

/// Ready when the client has gone, or seems to have.
async fn departure(client: &dyn Client) {
    let departed = || poll_fn(|cx| client.poll_departure(cx));
    if departed().await == Departure::HalfClosed {
        let _ = tokio::time::timeout(PATIENCE, departed()).await;
    }
}

/// Ready when so much time has passed.
async fn over(span: Option<Duration>) -> Duration {
    match span {
        Some(span) => {
            tokio::time::sleep(span).await;
            span
        }
        None => std::future::pending().await,
    }
}

/// Evaluates one handler after the other; each may wait.
async fn load(script: Rc<Script>) {
    let runtime = &script.runtime;
    for (number, source) in (0..).zip(&script.plan.sources) {
        let mut args = Tape::new();
        args.array(2).str(&source.code).str(source.name());
        let spot = Spot { source: Some(number), route: None };
        let Some(seat) = runtime.seat(&runtime.loosest, spot) else { return };
        let first = seat.start(runtime.load_app, &args);
        let app = match drive(runtime, &seat, &Rc::default(), first).await {
            Ok(()) => {
                let number = runtime.out(|out| out.int()).and_then(|app| u32::try_from(app).ok());
                number.ok_or_else(|| format!("{}: the VM gave no handler", source.name()))
            }
            Err(error) => Err(told(source, &error)),
        };
        script.apps.borrow_mut().push(app);
        script.loaded.send_modify(|count| *count += 1);
    }
}
