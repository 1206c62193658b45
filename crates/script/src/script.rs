//! The handlers of one front thread: [`Script`].

use crate::answer;
use crate::env::{self, Names};
use crate::load::{Source, told};
use crate::runtime::{Complain, Runtime, Seat, in_log};
use crate::stream::Outlet;
use crate::tasks::{Asker, drive, start_spawned};
use handler::{Body, Exchange, Failure, FailureKind, Fields, Incoming, Request, Response};
use http::body::{Collected, collect};
use mruby::{Exception, Limits, Step, Tape};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::watch;

/// Limits of handlers.
#[derive(Debug, Clone)]
pub struct Options {
    /// Heap of one VM, bytes.
    pub heap: usize,
    /// What one step of a request may add to it, bytes.
    pub step_heap: usize,
    /// From the first step of a request to the head of its response.
    pub deadline: Duration,
    /// Request bodies, which are collected in memory; bytes.
    pub max_body: usize,
    /// Where `collect` puts what is larger than memory allows; only used to refuse.
    pub temp_dir: PathBuf,
}

/// Whoever answers when a handler says 399.
pub trait Next {
    /// Answers.
    fn answer(&self, exchange: Exchange) -> Pin<Box<dyn Future<Output = Response> + '_>>;
}

/// Is told of each failure: the error log.
pub type OnFailure = Box<dyn Fn(&Failure, &Request)>;

/// The handlers of one front thread, in one VM.
pub struct Script {
    runtime: Rc<Runtime>,
    names: Names,
    apps: RefCell<Vec<Result<u32, String>>>,
    loaded: watch::Sender<usize>,
    wanted: usize,
    options: Options,
    failed: OnFailure,
    served: Cell<u64>,
}

impl Script {
    /// Opens a VM and begins to load `sources` into it, in their order. For a `LocalSet` or `LocalRuntime`.
    ///
    /// # Errors
    /// When there is no mruby, no memory, or the first step of a handler's code fails; the text names file and line.
    pub fn open(
        sources: Vec<Source>,
        options: Options,
        complain: Complain,
        failed: OnFailure,
    ) -> Result<Rc<Script>, String> {
        let limits = Limits { heap: options.heap, step: options.step_heap };
        let runtime = Runtime::open(limits, complain)?;
        let names = Names::new(&runtime).ok_or("no memory for a Ruby VM")?;
        let script = Rc::new(Script {
            runtime,
            names,
            apps: RefCell::default(),
            loaded: watch::Sender::new(0),
            wanted: sources.len(),
            options,
            failed,
            served: Cell::new(0),
        });
        tokio::task::spawn_local(load(script.clone(), sources));
        Ok(script)
    }

    /// Ready when all handlers have been evaluated.
    ///
    /// # Errors
    /// What the first one that cannot be used says.
    pub async fn ready(&self) -> Result<(), String> {
        let mut loaded = self.loaded.subscribe();
        // The sender is ours: it cannot be gone.
        let _ = loaded.wait_for(|count| *count == self.wanted).await;
        self.apps
            .borrow()
            .iter()
            .find_map(|app| app.as_ref().err())
            .map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Requests that were given to Ruby.
    pub fn served(&self) -> u64 {
        self.served.get()
    }

    /// Whether the VM can be used no more: open another [`Script`].
    pub fn is_broken(&self) -> bool {
        self.runtime.is_broken()
    }

    /// Handler number `app` answers, or whoever comes after it. `mount`: where it stands, without a trailing slash.
    pub async fn handle(&self, app: usize, mount: &[u8], exchange: Exchange, next: &dyn Next) -> Response {
        match self.answer(app, mount, exchange).await {
            Ok(Answer::Final(response)) => response,
            Ok(Answer::Fallthrough(exchange, fields)) => {
                let mut response = next.answer(exchange).await;
                for (name, value) in fields.iter() {
                    response.fields.push(name, value);
                }
                response
            }
            Err(failed) => {
                let (failure, exchange) = *failed;
                (self.failed)(&failure, &exchange.request);
                failure.into_response()
            }
        }
    }

    async fn answer(&self, app: usize, mount: &[u8], mut exchange: Exchange) -> Result<Answer, Failed> {
        let app = match self.app(app).await {
            Ok(app) => app,
            Err(why) => return Err(fail(FailureKind::Internal, why, exchange)),
        };
        let body = match self.collect(&mut exchange).await {
            Ok(body) => body,
            Err(failure) => return Err(Box::new((failure, exchange))),
        };
        self.served.set(self.served.get() + 1);
        let seat = self.runtime.seat();
        let first = env::build(&self.names, &exchange.request, mount, body.as_deref(), |env| {
            seat.request(app, env.iter().copied())
        });
        // Most handlers never wait: for them nothing is set up.
        if matches!(first, Step::Done) {
            start_spawned(&self.runtime);
            return self.read(exchange);
        }
        self.wait(exchange, seat, first).await
    }

    /// Goes on with a request that waits, until there is a response or the head of one.
    async fn wait(&self, exchange: Exchange, seat: Seat, first: Step) -> Result<Answer, Failed> {
        let (outlet, head) = Outlet::new();
        let asker = Rc::new(Asker { outlet: Some(RefCell::new(outlet)) });
        let runtime = self.runtime.clone();
        let mut task: Pin<Box<dyn Future<Output = Result<(), Exception>>>> =
            Box::pin(async move { drive(&runtime, &seat, &asker, first).await });
        let ended = tokio::select! {
            biased;
            ended = &mut task => ended,
            Ok(head) = head => {
                let (runtime, fields) = (self.runtime.clone(), head.fields);
                tokio::task::spawn_local(async move {
                    if let Err(error) = task.await {
                        (runtime.state.complain)(&format!("in a response that had begun: {}", in_log(&error)));
                    }
                });
                let pairs = fields.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
                let response = answer::fields(pairs)
                    .and_then(|fields| answer::response(head.status, fields, Body::Stream(Box::new(head.body))));
                return response.map(Answer::Final).map_err(|failure| Box::new((failure, exchange)));
            }
            () = tokio::time::sleep(self.options.deadline) => {
                let why = format!("no answer within the deadline ({} s)", self.options.deadline.as_secs_f64());
                return Err(fail(FailureKind::WorkerStuck, why, exchange));
            }
        };
        if let Err(error) = ended {
            return Err(fail(FailureKind::Internal, in_log(&error), exchange));
        }
        self.read(exchange)
    }

    /// The response that the last step gave.
    fn read(&self, exchange: Exchange) -> Result<Answer, Failed> {
        let status = self.runtime.out(|out| out.array().and_then(|parts| parts.first()?.int()));
        if status == Some(FALLTHROUGH) {
            return self.fall_through(exchange);
        }
        let response = self.runtime.out(|out| answer::whole(&out));
        response.map(Answer::Final).map_err(|failure| Box::new((failure, exchange)))
    }

    /// The fields that were set with 399: those for the handlers that follow, and those for the response.
    fn fall_through(&self, mut exchange: Exchange) -> Result<Answer, Failed> {
        let pairs = self.runtime.out(|out| crate::stream::fields(out.array().and_then(|parts| parts.get(1))));
        let mut fields = Fields::default();
        for (name, value) in &pairs {
            let lower = name.to_ascii_lowercase();
            match lower.strip_prefix(b"x-fallthru-set-") {
                Some(variable) => env::set(&mut exchange.request, variable, value),
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
    async fn collect(&self, exchange: &mut Exchange) -> Result<Option<bytes::Bytes>, Failure> {
        if matches!(exchange.incoming, Incoming::Empty) {
            return Ok(None);
        }
        let incoming = std::mem::replace(&mut exchange.incoming, Incoming::Empty);
        match collect(incoming, self.options.max_body, &self.options.temp_dir).await? {
            Collected::Empty => Ok(None),
            Collected::Memory(bytes) => {
                exchange.incoming = Incoming::Ready(bytes.clone());
                Ok(Some(bytes))
            }
            Collected::Spooled { len, .. } => {
                let limit = self.options.max_body;
                Err(Failure::new(
                    FailureKind::ContentTooLarge,
                    format!("a body of {len} bytes, mruby takes {limit}"),
                ))
            }
        }
    }
}

/// The status by which a handler leaves the answer to those after it.
const FALLTHROUGH: i64 = 399;

enum Answer {
    Final(Response),
    Fallthrough(Exchange, Fields),
}

type Failed = Box<(Failure, Exchange)>;

fn fail(kind: FailureKind, why: impl Into<std::borrow::Cow<'static, str>>, exchange: Exchange) -> Failed {
    Box::new((Failure::new(kind, why), exchange))
}

/// Evaluates one handler after the other; each may wait.
async fn load(script: Rc<Script>, sources: Vec<Source>) {
    for source in sources {
        let mut args = Tape::new();
        args.array(2).str(&source.code).str(source.name());
        let runtime = &script.runtime;
        let seat = runtime.seat();
        let first = seat.start(runtime.load_app, &args);
        let ended = drive(runtime, &seat, &Rc::default(), first).await;
        let app = match ended {
            Ok(()) => runtime
                .out(|out| out.int())
                .and_then(|app| u32::try_from(app).ok())
                .ok_or_else(|| format!("{}: the VM gave no handler", source.name())),
            Err(error) => Err(told(&source, &error)),
        };
        if let Err(why) = &app {
            (runtime.state.complain)(why);
        }
        script.apps.borrow_mut().push(app);
        script.loaded.send_modify(|count| *count += 1);
    }
}
