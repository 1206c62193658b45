//! Measures the cost of a request from the route to the response, without a network: `cargo run --release -p
//! script --example handler_cost [FILE]`.

#[path = "../tests/it/support/mod.rs"]
mod support;

use handler::{Client, Departure, Exchange, Fields, Incoming, Lent, Response, Trace};
use script::{HandlerPlan, HandlerRoute, HandlerSource, Hops, Next, RouteLimits, Script};
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

const HELLO: &str = "
lambda do |env|
  body = 'Hello'
  [200, { 'Content-Type' => 'text/plain', 'Content-Length' => body.size }, [body]]
end";

const ROUNDS: u32 = 300_000;

struct NoNext;

impl Client for NoNext {
    fn poll_departure(&self, _: &mut Context<'_>) -> Poll<Departure> {
        Poll::Pending
    }

    fn interim(&self, _: u16, _: &Fields) {}
}

impl Next for NoNext {
    fn respond(self: Rc<Self>, _: Exchange) -> Pin<Box<dyn Future<Output = Response>>> {
        Box::pin(std::future::ready(Response::text(404, "text/plain", "404 Not Found\n")))
    }

    fn reprocess(self: Rc<Self>, exchange: Exchange, _: Hops) -> Pin<Box<dyn Future<Output = Response>>> {
        self.respond(exchange)
    }
}

fn plan() -> Result<HandlerPlan, String> {
    let source = match std::env::args().nth(1) {
        Some(file) => HandlerSource::read(file.as_ref())?,
        None => HandlerSource { file: "hello.rb".into(), code: HELLO.to_owned() },
    };
    let limits = RouteLimits {
        request_heap: 32 << 20,
        step_time: Some(Duration::from_secs(1)),
        deadline: Some(Duration::from_secs(60)),
        max_tasks: 1000,
        max_body: 1 << 20,
        reproxy: false,
    };
    Ok(HandlerPlan {
        sources: vec![source],
        routes: vec![HandlerRoute { path: String::new(), handlers: vec![0], limits: Arc::new(limits) }],
        heap: 256 << 20,
        temp_dir: std::env::temp_dir(),
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default())?;
    runtime.block_on(async {
        let script = Script::open(Arc::new(plan()?), Rc::new(|what| eprintln!("{what}")))?;
        script.ready().await?;
        let (client, trace, nobody) = (Rc::new(NoNext), Rc::new(Trace::default()), Rc::new(NoNext));
        let mut lent = Box::new(support::request("GET", "/hello", &[]));
        let (begun, mut size) = (Instant::now(), 0);
        for _ in 0..ROUNDS {
            let exchange = Exchange {
                request: Lent::new(lent, trace.clone()),
                incoming: Incoming::Empty,
                client: client.clone(),
                trace: trace.clone(),
            };
            let route = script.route(&exchange.request).ok_or("no route")?;
            let handling = script.handle(route, exchange, nobody.clone(), Hops::default());
            size = std::mem::size_of_val(&handling);
            let response = handling.await;
            assert_eq!(response.status, 200);
            lent = trace.take_request().ok_or("the request was not given back")?;
        }
        println!(
            "{} ns a request, {size} bytes while it is answered",
            begun.elapsed().as_nanos() / u128::from(ROUNDS)
        );
        Ok(())
    })
}
