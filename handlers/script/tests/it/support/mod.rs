//! Handlers on a real VM without a network, with requests as the HTTP engine builds them and clients that stay or disconnect.
#![allow(dead_code, reason = "each user takes a part")]

use handler::{
    Body, Client, Departure, Exchange, Fields, Incoming, Peer, PeerAddr, Request, Response, Trace,
};
use script::{HandlerPlan, HandlerRoute, HandlerSource, Hops, Next, Observed, RouteLimits, Script};
use stats::{HandlerFigures, HandlersSnapshot};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// One handler for every path, and its log.
pub struct Server {
    pub script: Rc<Script>,
    pub observed: Observed,
    pub log: Rc<RefCell<Vec<String>>>,
}

impl Server {
    pub async fn open(source: HandlerSource, limits: RouteLimits) -> Server {
        let route = HandlerRoute { path: String::new(), handlers: vec![0], limits: Arc::new(limits) };
        let plan = HandlerPlan {
            sources: vec![source],
            routes: vec![route],
            heap: 256 << 20,
            temp_dir: std::env::temp_dir(),
        };
        let log: Rc<RefCell<Vec<String>>> = Rc::default();
        let log_lines = log.clone();
        let observed = Observed::default();
        let script = Script::open_observed(
            Arc::new(plan),
            Rc::new(move |line: &str| log_lines.borrow_mut().push(line.to_owned())),
            observed.clone(),
        );
        let script = script.expect("a VM with its preludes");
        script.ready().await.expect("a handler that loads");
        Server { script, observed, log }
    }

    pub fn get(&self, path: &str, client: &Rc<Visitor>) -> impl Future<Output = Response> + use<> {
        self.ask(path, Incoming::Empty, client)
    }

    pub fn ask(
        &self,
        path: &str,
        incoming: Incoming,
        client: &Rc<Visitor>,
    ) -> impl Future<Output = Response> + use<> {
        let exchange = Exchange {
            request: request("GET", path, &[]).into(),
            incoming,
            client: client.clone(),
            trace: Rc::new(Trace::default()),
        };
        let route = self.script.route(&exchange.request).expect("a route");
        let script = self.script.clone();
        let log = self.log.clone();
        async move {
            let response = script.handle(route, exchange, Rc::new(NoNext), Hops::default()).await;
            let failure = response.failure.iter().map(|failure| failure.reason.to_string());
            log.borrow_mut().extend(failure);
            response
        }
    }

    pub fn counted(&self) -> HandlerFigures {
        HandlersSnapshot::of(std::slice::from_ref(&self.observed.counts)).expect("one thread").all
    }

    /// Returns the log as one text.
    pub fn log_text(&self) -> String {
        self.log.borrow().join("\n")
    }
}

/// Returns the text of a response in memory.
pub fn text(response: Response) -> String {
    match response.body {
        Body::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        _ => panic!("a body that is not in memory"),
    }
}

/// A client that stays until the test disconnects it.
#[derive(Default)]
pub struct Visitor {
    left: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Visitor {
    pub fn leave(&self) {
        self.left.set(true);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Client for Visitor {
    fn poll_departure(&self, cx: &mut Context<'_>) -> Poll<Departure> {
        if self.left.get() {
            return Poll::Ready(Departure::Gone);
        }
        self.waker.replace(Some(cx.waker().clone()));
        Poll::Pending
    }

    fn interim(&self, _: u16, _: &Fields) {}
}

/// The link after the handlers; never responds.
struct NoNext;

impl Next for NoNext {
    fn respond(self: Rc<Self>, _: Exchange) -> Pin<Box<dyn Future<Output = Response>>> {
        Box::pin(std::future::pending())
    }

    fn reprocess(self: Rc<Self>, exchange: Exchange, _: Hops) -> Pin<Box<dyn Future<Output = Response>>> {
        self.respond(exchange)
    }
}

/// Returns a request of a client on this machine; adds `Host`.
pub fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> Request {
    const HOST: &str = "here.test";
    let fields = [fields, &[("Host", HOST)]].concat();
    let remote_text = "127.0.0.1".into();
    let peer = Peer { remote: inet(40_000), remote_text, local: inet(9292), ..handler::testing::peer() };
    let request =
        handler::testing::request_to(HOST.as_bytes(), method.as_bytes(), target.as_bytes(), &fields);
    Request { peer: Rc::new(peer), ..request }
}

fn inet(port: u16) -> PeerAddr {
    PeerAddr::Inet((std::net::Ipv4Addr::LOCALHOST, port).into())
}

/// Runs a test on an event loop like that of a front thread; does nothing without mruby.
pub fn on_event_loop(test: impl Future<Output = ()>) {
    if script::version().is_some() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
        runtime.expect("a runtime").block_on(test);
    }
}
