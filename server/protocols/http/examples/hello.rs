//! A server with one fixed response, for profiling the engine alone: `hello [ADDRESS]`.

use handler::{Exchange, Handler, Peer, PeerAddr, Response};
use http::{Context, Limits, one};
use net::Timers;
use std::rc::Rc;
use tokio::net::TcpListener;

struct Hello;

impl Handler for Hello {
    async fn handle(&self, _: Exchange) -> Response {
        Response::text(200, "text/plain", &b"hello, world"[..])
    }
}

fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| String::from("127.0.0.1:9292"));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default())?;
    runtime.block_on(async {
        let timers = Timers::new();
        let context = Context::new(Hello, Limits::default(), timers.clone());
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
