//! New connections to origins.

use crate::Upstreams;
use crate::origin::Endpoint;
use handler::Failure;
use net::{Stream, Tls, connect_tcp};
use std::io;
use tokio::net::UnixStream;

/// Connects to an origin within `connect_timeout`.
///
/// # Errors
/// 502 or 504; nothing has been sent.
pub(crate) async fn connect(upstreams: &Upstreams, origin: usize) -> Result<Stream, Failure> {
    let timeout = upstreams.config.connect_timeout;
    let (status, why) = match tokio::time::timeout(timeout, open(upstreams, origin)).await {
        Ok(Ok(stream)) => return Ok(stream),
        Ok(Err(error)) => (502, error.to_string()),
        Err(_) => (504, format!("no answer within connect_timeout ({timeout:?})")),
    };
    Err(Failure::app(status, format!("cannot connect: {why}")))
}

async fn open(upstreams: &Upstreams, origin: usize) -> io::Result<Stream> {
    let state = &upstreams.origins[origin];
    let (host, tls) = match &state.origin.endpoint {
        Endpoint::Unix(path) => return UnixStream::connect(path).await.map(Stream::Unix),
        Endpoint::Tcp { host, tls, .. } => (host, *tls),
    };
    let socket = connect_tcp(&state.addresses.get().await?).await?;
    socket.set_nodelay(true)?;
    match &upstreams.tls {
        Some(config) if tls => Ok(Stream::Tls(Box::new(Tls::connect(config.clone(), host, socket).await?))),
        _ => Ok(Stream::Tcp(socket)),
    }
}
