//! A proxy that passes on everything, for profiling it alone: `forward ORIGIN [ADDRESS] [MAX_IDLE]`. With `NO_FORWARDED` set, it adds no fields
//! about the client.

use handler::{Ending, Exchange, Handler, Peer, PeerAddr, Response};
use http::{Context, Limits, one};
use net::Timers;
use proxy::{Config, Origin, Proxy, Upstreams};
use std::rc::Rc;
use tokio::net::TcpListener;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

struct Forward(Proxy);

impl Handler for Forward {
    async fn handle(&self, exchange: Exchange) -> Response {
        let target = exchange.request.target().to_vec();
        self.0.forward(exchange, target).await
    }

    fn finished(&self, ending: &Ending<'_>) {
        if let Some(failure) = ending.failure {
            eprintln!("{}", failure.reason);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let origin = arguments.next().unwrap_or_else(|| String::from("http://127.0.0.1:9292"));
    let address = arguments.next().unwrap_or_else(|| String::from("127.0.0.1:9293"));
    let max_idle = arguments.next().map_or(Ok(256), |number| number.parse())?;
    let config = Config {
        max_idle,
        forwarded: std::env::var_os("NO_FORWARDED").is_none(),
        ..Config::new("forward", vec![Origin::parse(&origin)?])
    };
    let upstreams = Upstreams::new(config)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default())?;
    runtime.block_on(async {
        let timers = Timers::new();
        let handler = Forward(Proxy::new(upstreams));
        let context = Context::new(handler, Limits::default(), timers.clone());
        tokio::task::spawn_local(async move { timers.run().await });
        let listener = TcpListener::bind(&address).await?;
        let local = PeerAddr::Inet(listener.local_addr()?);
        println!("http://{}", listener.local_addr()?);
        // Accepted sockets inherit the option, which saves a call per connection.
        rustix::net::sockopt::set_tcp_nodelay(&listener, true)?;
        loop {
            let (stream, remote) = listener.accept().await?;
            let remote_text = remote.ip().to_string().into();
            let peer = Peer { remote: PeerAddr::Inet(remote), remote_text, local, tls: false, session: None };
            tokio::task::spawn_local(one::serve(stream, Rc::new(peer), context.clone()));
        }
    })
}
