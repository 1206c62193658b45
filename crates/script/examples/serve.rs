//! Serves one handler file, for profiling without the rest of the program: `serve FILE [ADDRESS]`.

use handler::{Exchange, Handler, Peer, PeerAddr, Response};
use http::{Context, Limits, Timers, h1};
use script::{Next, Options, Script, Source};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use tokio::net::TcpListener;

struct Serve(Rc<Script>);

struct Nobody;

impl Next for Nobody {
    fn answer(&self, _: Exchange) -> Pin<Box<dyn Future<Output = Response> + '_>> {
        Box::pin(std::future::ready(Response::text(404, "text/plain", "404 Not Found\n")))
    }
}

impl Handler for Serve {
    async fn handle(&self, exchange: Exchange) -> Response {
        self.0.handle(0, b"", exchange, &Nobody).await
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("usage: serve FILE [ADDRESS]")?;
    let address = args.next().unwrap_or_else(|| String::from("127.0.0.1:9292"));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default())?;
    runtime.block_on(async {
        let options = Options {
            heap: 256 << 20,
            step_heap: 64 << 20,
            deadline: std::time::Duration::from_secs(30),
            max_body: 1 << 20,
            temp_dir: std::env::temp_dir(),
        };
        let source = Source::read(file.as_ref())?;
        script::check(&source)?;
        let failed = |failure: &handler::Failure, _: &handler::Request| eprintln!("{}", failure.reason);
        let script =
            Script::open(vec![source], options, Rc::new(|what: &str| eprintln!("{what}")), Box::new(failed))?;
        script.ready().await?;
        let timers = Timers::new();
        let context = Context::new(Serve(script), Limits::default(), timers.clone());
        tokio::task::spawn_local(async move { timers.run().await });
        let listener = TcpListener::bind(&address).await?;
        let local = PeerAddr::Inet(listener.local_addr()?);
        println!("http://{}", listener.local_addr()?);
        rustix::net::sockopt::set_tcp_nodelay(&listener, true)?;
        loop {
            let (stream, remote) = listener.accept().await?;
            let remote_text = remote.ip().to_string();
            let peer = Peer { remote: PeerAddr::Inet(remote), remote_text, local, tls: false };
            tokio::task::spawn_local(h1::serve(stream, Rc::new(peer), context.clone()));
        }
    })
}
