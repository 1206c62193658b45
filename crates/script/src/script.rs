//! The handlers of one front thread: [`Script`].

use crate::answer;
use crate::env::{self, Names};
use crate::fetch::{self, Owned, Url};
use crate::load::{Source, told};
use crate::next::{Hops, Origin, Place, delegate};
use crate::runtime::{Complain, Runtime, Seat, in_log};
use crate::stream::{Head, Outlet};
use crate::tasks::{Asker, drive, start_spawned};
use handler::{Body, Exchange, Failure, FailureKind, Fields, Incoming, Request, Response};
use http::body::{Collected, collect};
use mruby::{Exception, Step, Tape, Text};
use std::cell::RefCell;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What a request may take in a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Heap that the steps of a request may add in all, bytes.
    pub request_heap: usize,
    /// Computing without waiting; `None` is unlimited.
    pub step_time: Option<Duration>,
    /// From the first step to the head of the response; `None` is unlimited.
    pub deadline: Option<Duration>,
    /// Requests and tasks in the VM at a time.
    pub max_tasks: usize,
    /// Request bodies, which are collected in memory; bytes.
    pub max_body: usize,
}

impl Limits {
    /// Of each limit the largest.
    fn loosest<'a>(all: impl Iterator<Item = &'a Limits>) -> Limits {
        let none = Limits {
            request_heap: 0,
            step_time: Some(Duration::ZERO),
            deadline: Some(Duration::ZERO),
            max_tasks: 1,
            max_body: 0,
        };
        all.fold(none, |most, limits| Limits {
            request_heap: most.request_heap.max(limits.request_heap),
            step_time: most.step_time.zip(limits.step_time).map(|(a, b)| a.max(b)),
            deadline: most.deadline.zip(limits.deadline).map(|(a, b)| a.max(b)),
            max_tasks: most.max_tasks.max(limits.max_tasks),
            max_body: most.max_body.max(limits.max_body),
        })
    }
}

/// Handlers below a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Without the slash at its end: the root is empty. It is the handlers' `SCRIPT_NAME`.
    pub path: String,
    /// Asked in this order; numbers of [`Plan::sources`].
    pub handlers: Vec<usize>,
    /// What a request may take.
    pub limits: Arc<Limits>,
}

/// All handlers of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Each file once.
    pub sources: Vec<Source>,
    /// Who answers where; longer paths first.
    pub routes: Vec<Route>,
    /// Heap of one VM, bytes.
    pub heap: usize,
    /// Where bodies go that turn out to be too large, until they are refused.
    pub temp_dir: PathBuf,
}

/// Whoever answers when a handler says 399.
pub trait Next {
    /// Answers in the handlers' place.
    fn answer(self: Rc<Self>, exchange: Exchange) -> Pin<Box<dyn Future<Output = Response>>>;

    /// Answers as if the request had just come; `hops` belong to it from now on.
    fn again(self: Rc<Self>, exchange: Exchange, hops: Hops) -> Pin<Box<dyn Future<Output = Response>>>;
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
        let loosest = Limits::loosest(plan.routes.iter().map(|route| &*route.limits));
        let runtime = Runtime::open(plan.heap, loosest, complain)?;
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

    /// Number of the route that a request belongs to: the longest path that it is below.
    pub fn route(&self, request: &Request) -> Option<usize> {
        let path = request.path();
        self.plan.routes.iter().position(|route| {
            path.strip_prefix(route.path.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        })
    }

    /// The handlers of a route answer, or whoever comes after them.
    pub async fn handle(
        self: &Rc<Self>,
        route: usize,
        exchange: Exchange,
        next: Rc<dyn Next>,
        hops: Hops,
    ) -> Response {
        self.answer_from(Place { route, handler: 0, next, hops }, exchange).await
    }

    /// The same from somewhere in the chain on.
    pub(crate) async fn answer_from(self: &Rc<Self>, mut place: Place, mut exchange: Exchange) -> Response {
        let mut fields = Fields::default();
        let route = &self.plan.routes[place.route];
        while let Some(&handler) = route.handlers.get(place.handler) {
            match self.answer(handler, &place, exchange).await {
                Ok(Answer::Final(mut response)) => {
                    add(&mut response, &fields);
                    return response;
                }
                Ok(Answer::Fallthrough(left, more)) => {
                    more.iter().for_each(|(name, value)| fields.push(name, value));
                    exchange = left;
                }
                Ok(Answer::Elsewhere(left, status, url)) => {
                    let mut response = Box::pin(delegate(self, place, status, &url, left)).await;
                    add(&mut response, &fields);
                    return response;
                }
                Err(failed) => {
                    let (failure, exchange) = *failed;
                    self.tell(&failure, &exchange.request);
                    return failure.into_response();
                }
            }
            place.handler += 1;
        }
        let mut response = place.next.answer(exchange).await;
        add(&mut response, &fields);
        response
    }

    /// Tells the error log.
    pub(crate) fn tell(&self, failure: &Failure, request: &Request) {
        (self.failed)(failure, request);
    }

    /// The path of a route.
    pub(crate) fn mount(&self, route: usize) -> &str {
        &self.plan.routes[route].path
    }

    /// Asks another server.
    pub(crate) async fn forward(&self, url: Url, exchange: Exchange) -> Result<Response, Failure> {
        self.runtime.state.fetch.forward(url, exchange).await
    }

    async fn answer(
        self: &Rc<Self>,
        handler: usize,
        place: &Place,
        mut exchange: Exchange,
    ) -> Result<Answer, Failed> {
        let route = &self.plan.routes[place.route];
        let app = match self.app(handler).await {
            Ok(app) => app,
            Err(why) => return Err(fail(FailureKind::Internal, why, exchange)),
        };
        let body = match self.collect(route, &mut exchange).await {
            Ok(body) => body,
            Err(failure) => return Err(Box::new((failure, exchange))),
        };
        let Some(seat) = self.runtime.seat(&route.limits) else {
            let why = format!("mruby.max_tasks ({}) are under way", route.limits.max_tasks);
            return Err(fail(FailureKind::QueueFull, why, exchange));
        };
        let hops = place.hops.told();
        let first =
            env::build(&self.names, &exchange.request, route.path.as_bytes(), body.as_deref(), |env| {
                let hops = hops.iter().flatten();
                let hops =
                    hops.map(|(key, left)| (Text::Bytes(key.as_bytes()), Text::Bytes(left.as_bytes())));
                seat.request(app, env.iter().copied().chain(hops))
            });
        // Most handlers never wait: for them nothing is set up.
        start_spawned(&self.runtime);
        match first {
            Step::Done => self.read(exchange),
            Step::Raised(error) | Step::Broken(error) => {
                Err(fail(FailureKind::Internal, in_log(&error), exchange))
            }
            Step::Wait => self.wait(place, exchange, seat, first).await,
        }
    }

    /// Goes on with a request that waits, until there is a response or the head of one.
    async fn wait(
        self: &Rc<Self>,
        place: &Place,
        exchange: Exchange,
        seat: Seat,
        first: Step,
    ) -> Result<Answer, Failed> {
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
        let mut task: Pin<Box<dyn Future<Output = Result<(), Exception>>>> = Box::pin(async move {
            let ended = drive(&runtime, &seat, &own, first).await;
            own.held.end();
            ended
        });
        let ended = tokio::select! {
            biased;
            ended = &mut task => ended,
            Ok(head) = &mut head => {
                let runtime = self.runtime.clone();
                tokio::task::spawn_local(async move {
                    if let Err(error) = task.await {
                        (runtime.state.complain)(&format!("in a response that had begun: {}", in_log(&error)));
                    }
                });
                return begun(head, exchange);
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
            Err(_) => self.read(exchange),
        }
    }

    /// The response that the last step gave.
    fn read(&self, exchange: Exchange) -> Result<Answer, Failed> {
        let status = self.runtime.out(|out| out.array().and_then(|parts| parts.first()?.int()));
        if status == Some(FALLTHROUGH) {
            return self.fall_through(exchange);
        }
        let (response, held) = self.runtime.out(|out| (answer::whole(&out), answer::held(&out)));
        let response = match (response, held) {
            // What was passed on is not the handler's own: who made it cannot send the request elsewhere.
            (Ok(response), Some(number)) => self.with_body(response, number),
            (Ok(response), None) => match fetch::delegated(&response.fields) {
                Some(url) => return Ok(Answer::Elsewhere(exchange, response.status, url)),
                None => Ok(response),
            },
            (failed, _) => failed,
        };
        response.map(Answer::Final).map_err(|failure| Box::new((failure, exchange)))
    }

    /// A response with the body of one that the handler has asked for.
    fn with_body(&self, mut response: Response, number: fetch::Number) -> Result<Response, Failure> {
        let Some((body, came)) = self.runtime.state.fetch.untouched(number) else {
            let why = "a handler returned the body of a response that is over or has been read";
            return Err(Failure::new(FailureKind::Internal, why));
        };
        let upgraded = matches!(body, Body::Tunnel { .. });
        if upgraded != (response.status == 101) {
            let why = format!("a handler returned the status {} with a body of another", response.status);
            return Err(Failure::new(FailureKind::Internal, why));
        }
        let name = if upgraded { "upgrade" } else { "content-length" };
        if let Some(value) = came.get(name).filter(|_| response.fields.get(name).is_none()) {
            response.fields.push(name.as_bytes(), value);
        }
        response.close = upgraded;
        response.body = body;
        Ok(response)
    }

    /// The fields that were set with 399: those for the handlers that follow, and those for the response.
    fn fall_through(&self, mut exchange: Exchange) -> Result<Answer, Failed> {
        let pairs = self.runtime.out(|out| crate::stream::fields(out.array().and_then(|parts| parts.get(1))));
        let mut fields = Fields::default();
        for (name, value) in &pairs {
            let lower = name.to_ascii_lowercase();
            match lower.strip_prefix(b"x-fallthru-set-") {
                Some(variable) if http::h1::is_token(variable) => {
                    exchange.request.set_variable(&env::variable_name(variable), value);
                }
                Some(_) => {
                    let why = format!("a handler set a field named \"{}\"", name.escape_ascii());
                    return Err(fail(FailureKind::Internal, why, exchange));
                }
                None => match answer::fields(std::iter::once((name.as_slice(), value.as_slice()))) {
                    Ok(more) => more.iter().for_each(|(name, value)| fields.push(name, value)),
                    Err(failure) => return Err(Box::new((failure, exchange))),
                },
            }
        }
        Ok(Answer::Fallthrough(exchange, fields))
    }

    /// The VM's number of a handler, as soon as it has been loaded.
    async fn app(&self, app: usize) -> Result<u32, String> {
        if self.apps.borrow().len() <= app {
            let mut loaded = self.loaded.subscribe();
            let _ = loaded.wait_for(|count| *count > app).await;
        }
        self.apps.borrow().get(app).cloned().unwrap_or_else(|| Err("there is no such handler".to_owned()))
    }

    /// The request's body, which stays in the exchange for those who come after.
    async fn collect(&self, route: &Route, exchange: &mut Exchange) -> Result<Option<bytes::Bytes>, Failure> {
        if matches!(exchange.incoming, Incoming::Empty) {
            return Ok(None);
        }
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

/// The status by which a handler leaves the answer to those after it.
const FALLTHROUGH: i64 = 399;

enum Answer {
    Final(Response),
    Fallthrough(Exchange, Fields),
    /// The status and `x-reproxy-url` of a handler that sends the request elsewhere.
    Elsewhere(Exchange, u16, Vec<u8>),
}

type Failed = Box<(Failure, Exchange)>;

fn fail(kind: FailureKind, why: impl Into<std::borrow::Cow<'static, str>>, exchange: Exchange) -> Failed {
    Box::new((Failure::new(kind, why), exchange))
}

/// A response whose body is still being made.
fn begun(head: Head, exchange: Exchange) -> Result<Answer, Failed> {
    let pairs = head.fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
    let response = answer::fields(pairs)
        .and_then(|fields| answer::response(head.status, fields, Body::Stream(Box::new(head.body))));
    response.map(Answer::Final).map_err(|failure| Box::new((failure, exchange)))
}

/// What handlers set before they left the answer to others.
fn add(response: &mut Response, fields: &Fields) {
    fields.iter().for_each(|(name, value)| response.fields.push(name, value));
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
    for source in &script.plan.sources {
        let mut args = Tape::new();
        args.array(2).str(&source.code).str(source.name());
        let Some(seat) = runtime.seat(&runtime.loosest) else { return };
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
