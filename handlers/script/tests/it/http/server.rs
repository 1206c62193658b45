//! Handlers on a real VM, followed by an app that responds with the request that it received.

use crate::support::request;
use handler::{Body, Chunk, Client, Departure, Exchange, Fields, Incoming, Response, Trace};
use script::{HandlerPlan, HandlerRoute, HandlerSource, Hops, Next, RouteLimits, Script};
use std::cell::{OnceCell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;

/// A response with its complete body.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) status: u16,
    pub(crate) fields: String,
    pub(crate) body: String,
    /// Whether the body was incomplete.
    pub(crate) broken: bool,
    /// Whether the body arrived as a stream rather than in memory.
    pub(crate) streamed: bool,
}

pub(crate) struct Server {
    script: Rc<Script>,
    behind: Rc<App>,
    pub(crate) hints: Rc<RefCell<Vec<String>>>,
    pub(crate) log: Rc<RefCell<Vec<String>>>,
}

/// The link after the handlers.
struct App {
    script: OnceCell<Rc<Script>>,
    /// The number of requests that wait for each other.
    together: watch::Sender<usize>,
}

impl Next for App {
    fn respond(self: Rc<Self>, mut exchange: Exchange) -> Pin<Box<dyn Future<Output = Response>>> {
        Box::pin(async move {
            let mut body = Vec::new();
            while let Some(Ok(bytes)) = exchange.incoming.data().await {
                body.extend_from_slice(&bytes);
            }
            let request = &exchange.request;
            if request.path().ends_with(b"/5-together") {
                self.together.send_modify(|came| *came += 1);
                let _ = self.together.subscribe().wait_for(|came| *came == 5).await;
            }
            let fields: Vec<_> = request
                .fields
                .iter()
                .map(|(n, v)| format!("{}={}", n.escape_ascii(), v.escape_ascii()))
                .collect();
            let text = format!(
                "behind {} {} [{}] user={} {}",
                request.method().escape_ascii(),
                request.target().escape_ascii(),
                fields.join(" "),
                request.variable("REMOTE_USER").unwrap_or_default().escape_ascii(),
                body.escape_ascii(),
            );
            let mut response = Response::text(200, "text/plain", text.clone());
            response.fields.push(b"content-length", text.len().to_string().as_bytes());
            response
        })
    }

    fn reprocess(self: Rc<Self>, exchange: Exchange, hops: Hops) -> Pin<Box<dyn Future<Output = Response>>> {
        Box::pin(async move {
            let script = self.script.get().expect("it is set").clone();
            match script.route(&exchange.request) {
                Some(route) => script.handle(route, exchange, self, hops).await,
                None => self.respond(exchange).await,
            }
        })
    }
}

struct Listening(Rc<RefCell<Vec<String>>>);

impl Client for Listening {
    fn poll_departure(&self, _: &mut Context<'_>) -> Poll<Departure> {
        Poll::Pending
    }

    fn interim(&self, status: u16, fields: &Fields) {
        let link = fields.get("link").unwrap_or_default().escape_ascii().to_string();
        self.0.borrow_mut().push(format!("{status} {link}"));
    }
}

impl Server {
    /// Opens a server with handlers for the root and, after them, for `/api`.
    pub(crate) async fn open(handlers: &[&str]) -> Server {
        let sources: Vec<_> = handlers
            .iter()
            .enumerate()
            .map(|(n, code)| HandlerSource { file: format!("{n}.rb").into(), code: (*code).to_owned() })
            .collect();
        let limits = Arc::new(RouteLimits {
            request_heap: 2 << 20,
            step_time: None,
            deadline: Some(Duration::from_secs(20)),
            max_tasks: 1000,
            max_body: 1 << 20,
            reproxy: true,
        });
        let route = |path: &str| HandlerRoute {
            path: path.to_owned(),
            handlers: (0..sources.len()).collect(),
            limits: limits.clone(),
        };
        let routes = vec![route("/api"), route("")];
        let plan = HandlerPlan { sources, routes, heap: 64 << 20, temp_dir: std::env::temp_dir() };
        let log = Rc::new(RefCell::new(Vec::new()));
        let log_lines = log.clone();
        let script = Script::open(
            Arc::new(plan),
            Rc::new(move |line: &str| log_lines.borrow_mut().push(line.to_owned())),
        );
        let script = script.expect("a VM with its preludes");
        script.ready().await.expect("handlers that load");
        let behind = Rc::new(App { script: OnceCell::new(), together: watch::Sender::new(0) });
        assert!(behind.script.set(script.clone()).is_ok());
        Server { script, behind, hints: Rc::default(), log }
    }

    pub(crate) async fn get(&self, target: &str) -> Received {
        self.ask("GET", target, &[], "").await
    }

    pub(crate) async fn ask(
        &self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> Received {
        let incoming = match body {
            "" => Incoming::Empty,
            body => Incoming::Ready(body.to_owned().into()),
        };
        let trace = Rc::new(Trace::default());
        let exchange = Exchange {
            request: request(method, target, fields).into(),
            incoming,
            client: Rc::new(Listening(self.hints.clone())),
            trace: trace.clone(),
        };
        let route = self.script.route(&exchange.request).expect("a route");
        let response = self.script.handle(route, exchange, self.behind.clone(), Hops::default()).await;
        let failures = trace.take_failures();
        let reasons =
            failures.iter().chain(response.failure.as_deref()).map(|failure| failure.reason.to_string());
        self.log.borrow_mut().extend(reasons);
        received(response).await
    }
}

async fn received(response: Response) -> Received {
    let fields: Vec<_> = response
        .fields
        .iter()
        .map(|(name, value)| format!("{}: {}\n", name.escape_ascii(), value.escape_ascii()))
        .collect();
    let (mut body, mut broken, mut streamed) = (Vec::new(), false, false);
    match response.body {
        Body::Bytes(bytes) => body.extend_from_slice(&bytes),
        Body::Stream(mut stream) => {
            streamed = true;
            while let Some(piece) = poll_fn(|cx| stream.poll_chunk(cx)).await {
                match piece {
                    Ok(Chunk::Bytes(bytes)) => body.extend_from_slice(&bytes),
                    Ok(_) => panic!("a piece that is not in memory"),
                    Err(_) => {
                        broken = true;
                        break;
                    }
                }
            }
        }
        _ => {}
    }
    let body = String::from_utf8_lossy(&body).into_owned();
    Received { status: response.status, fields: fields.concat(), body, broken, streamed }
}
