//! A connected byte stream to Redis: TCP, a Unix socket, TLS; greeted and ready for commands.

use super::command;
use super::config::{Config, Place};
use super::line::Fault;
use super::resp::Parser;
use mruby::Tape;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// Pause before a queue that was full is tried again.
const FULL: Duration = Duration::from_millis(5);

/// What is read and written.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

/// Connects, and says who we are and which database is meant, within `connect_timeout`.
///
/// # Errors
/// `Redis::CannotConnectError`; the server's own words when it refuses user, password or database.
pub(crate) async fn open(config: &Config) -> Result<(Box<dyn Duplex>, Parser), Fault> {
    let cannot = |why: String| {
        Fault::new("Redis::CannotConnectError", format!("cannot connect to Redis on {}: {why}", config.place))
    };
    let opened = tokio::time::timeout(config.connect_timeout, async {
        let mut wire = connect(config).await.map_err(cannot)?;
        let mut parser = Parser::default();
        greet(config, &mut wire, &mut parser).await?;
        Ok((wire, parser))
    });
    match opened.await {
        Ok(opened) => opened,
        Err(_) => {
            let why = format!(
                "cannot connect to Redis on {}: no answer within connect_timeout ({} s)",
                config.place,
                config.connect_timeout.as_secs_f64()
            );
            Err(Fault::new("Redis::ConnectTimeoutError", why))
        }
    }
}

async fn connect(config: &Config) -> Result<Box<dyn Duplex>, String> {
    let told = |error: std::io::Error| error.to_string();
    match &config.place {
        Place::Unix(path) => Ok(Box::new(local(path).await.map_err(told)?)),
        Place::Tcp(host, port) => {
            let socket = TcpStream::connect((host.as_str(), *port)).await.map_err(told)?;
            socket.set_nodelay(true).map_err(told)?;
            keep_alive(&socket).map_err(|error| told(error.into()))?;
            match &config.tls {
                None => Ok(Box::new(socket)),
                Some(tls) => {
                    let name = ServerName::try_from(host.clone())
                        .map_err(|_| "its name cannot be in a certificate".to_owned())?;
                    let connector = TlsConnector::from(tls.client()?);
                    Ok(Box::new(connector.connect(name, socket).await.map_err(|error| tls.told(&error))?))
                }
            }
        }
    }
}

/// A Unix socket whose queue is full says so at once; on TCP the kernel would try again.
async fn local(path: &Path) -> std::io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == ErrorKind::WouldBlock => tokio::time::sleep(FULL).await,
            connected => return connected,
        }
    }
}

/// Who waits for messages sends nothing: only this shows that the other machine is gone.
fn keep_alive(socket: &TcpStream) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(20))?;
    sockopt::set_tcp_keepcnt(socket, 3)
}

/// AUTH and SELECT come before any command: one that ran as another user or in another database would do harm.
async fn greet(config: &Config, wire: &mut Box<dyn Duplex>, parser: &mut Parser) -> Result<(), Fault> {
    let mut out = Vec::new();
    let mut replies = 0;
    let mut say = |words: &[&[u8]]| {
        command::write_words(&mut out, words);
        replies += 1;
    };
    match (&config.username, &config.password) {
        (Some(user), Some(password)) => say(&[b"AUTH", user, password]),
        // Redis knows users without a password (nopass).
        (Some(user), None) => say(&[b"AUTH", user, b""]),
        (None, Some(password)) => say(&[b"AUTH", password]),
        (None, None) => {}
    }
    if config.resp3 {
        say(&[b"HELLO", b"3"]);
    }
    if config.db > 0 {
        say(&[b"SELECT", config.db.to_string().as_bytes()]);
    }
    let lost = |why: String| {
        Fault::new("Redis::CannotConnectError", format!("cannot connect to Redis on {}: {why}", config.place))
    };
    if replies == 0 {
        return Ok(());
    }
    wire.write_all(&out).await.map_err(|error| lost(error.to_string()))?;
    wire.flush().await.map_err(|error| lost(error.to_string()))?;
    for _ in 0..replies {
        let mut tape = Tape::new();
        while !parser.next(&mut tape).map_err(|malformed| lost(format!("it sent {}", malformed.0)))? {
            match wire.read(parser.room()).await {
                Ok(0) => return Err(lost("it closed the connection".to_owned())),
                Ok(count) => parser.filled(count),
                Err(error) => return Err(lost(error.to_string())),
            }
        }
        if let Some(fault) = Fault::on(&tape) {
            return Err(fault);
        }
    }
    Ok(())
}
