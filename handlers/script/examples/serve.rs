//! Serves one handler file, for profiling without the rest of the program: `serve FILE [ADDRESS]`.

use handler::{Exchange, Handler, Peer, PeerAddr, Response};
use http::{Context, one};
use net::Timers;
use script::{Hops, Limits, Next, Plan, Route, Script, Source};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

struct Serve(Rc<Script>);

struct NoNext;

impl Next for NoNext {
    fn respond(self: Rc<Self>, _: Exchange) -> Pin<Box<dyn Future<Output = Response>>> {
        Box::pin(std::future::ready(Response::text(404, "text/plain", "404 Not Found\n")))
    }

    fn reprocess(self: Rc<Self>, exchange: Exchange, _: Hops) -> Pin<Box<dyn Future<Output = Response>>> {
        self.respond(exchange)
    }
}

impl Handler for Serve {
    async fn handle(&self, exchange: Exchange) -> Response {
        match self.0.route(&exchange.request) {
            Some(route) => self.0.handle(route, exchange, Rc::new(NoNext), Hops::default()).await,
            None => Rc::new(NoNext).respond(exchange).await,
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("usage: serve FILE [ADDRESS]")?;
    let address = args.next().unwrap_or_else(|| String::from("127.0.0.1:9292"));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default())?;
    runtime.block_on(async {
        let limits = Limits {
            request_heap: 64 << 20,
            step_time: None,
            deadline: Some(Duration::from_secs(60)),
            max_tasks: 200_000,
            max_body: 1 << 20,
            reproxy: false,
        };
        let plan = Plan {
            sources: vec![Source::read(file.as_ref())?],
            routes: vec![Route { path: String::new(), handlers: vec![0], limits: Arc::new(limits) }],
            heap: 1 << 30,
            temp_dir: std::env::temp_dir(),
        };
        let script = Script::open(Arc::new(plan), Rc::new(|what| eprintln!("{what}")))?;
        script.ready().await?;
        let timers = Timers::new();
        let context = Context::new(Serve(script), http::Limits::default(), timers.clone());
        tokio::task::spawn_local(async move { timers.run().await });
        let listener = TcpListener::bind(&address).await?;
        let local = PeerAddr::Inet(listener.local_addr()?);
        println!("http://{}", listener.local_addr()?);
        rustix::net::sockopt::set_tcp_nodelay(&listener, true)?;
        loop {
            let (stream, remote) = listener.accept().await?;
            let remote_text = remote.ip().to_string().into();
            let peer = Peer { remote: PeerAddr::Inet(remote), remote_text, local, tls: false, session: None };
            tokio::task::spawn_local(one::serve(stream, Rc::new(peer), context.clone()));
        }
    })
}
