//! Opens a byte stream to the server (TCP, Unix socket or TLS), authenticated and ready for commands.

use crate::command;
use crate::config::{Address, RedisConfig};
use crate::error::{Error, ErrorKind};
use crate::resp::Parser;
use crate::value::{Value, ValueSink};
use std::io::ErrorKind as IoErrorKind;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// The pause before connecting again to a Unix socket whose backlog is full.
const BACKLOG_PAUSE: Duration = Duration::from_millis(5);

/// A stream that can be read and written.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

/// Connects, authenticates and selects the database, within `connect_timeout`. The parser may already hold bytes.
///
/// # Errors
/// [`ErrorKind::CannotConnect`], [`ErrorKind::ConnectTimeout`], or the server's error if it rejects user,
/// password or database.
pub(crate) async fn open(config: &RedisConfig) -> Result<(Box<dyn Duplex>, Parser), Error> {
    let opened = tokio::time::timeout(config.connect_timeout, async {
        let mut stream = connect(config).await.map_err(|why| cannot_connect(config, &why))?;
        let mut parser = Parser::new(config.max_reply);
        greet(config, &mut stream, &mut parser).await?;
        Ok((stream, parser))
    });
    opened.await.unwrap_or_else(|_| {
        let why = format!(
            "cannot connect to Redis on {}: no response within connect_timeout ({} s)",
            config.address,
            config.connect_timeout.as_secs_f64()
        );
        Err(Error::new(ErrorKind::ConnectTimeout, why))
    })
}

fn cannot_connect(config: &RedisConfig, why: &str) -> Error {
    let message = format!("cannot connect to Redis on {}: {why}", config.address);
    Error::new(ErrorKind::CannotConnect, message)
}

async fn connect(config: &RedisConfig) -> Result<Box<dyn Duplex>, String> {
    let message = |error: std::io::Error| error.to_string();
    match &config.address {
        Address::Unix(path) => Ok(Box::new(connect_unix(path).await.map_err(message)?)),
        Address::Tcp(host, port) => {
            let socket = net::dial(host, *port).await.map_err(message)?;
            socket.set_nodelay(true).map_err(message)?;
            set_keepalive(&socket).map_err(|error| message(error.into()))?;
            match &config.tls {
                None => Ok(Box::new(socket)),
                Some(tls) => {
                    let name = ServerName::try_from(host.clone())
                        .map_err(|_| "its name cannot be in a certificate".to_owned())?;
                    let connector = TlsConnector::from(tls.client()?);
                    let stream = connector.connect(name, socket).await;
                    Ok(Box::new(stream.map_err(|error| tls.handshake_error(&error))?))
                }
            }
        }
    }
}

/// Retries while the backlog of the Unix socket is full, because connecting then fails at once. For TCP the
/// kernel retries.
async fn connect_unix(path: &Path) -> std::io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == IoErrorKind::WouldBlock => tokio::time::sleep(BACKLOG_PAUSE).await,
            connected => return connected,
        }
    }
}

/// Enables keep-alive: a subscription sends nothing, so only keep-alive probes detect that the other machine is gone.
fn set_keepalive(socket: &TcpStream) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(20))?;
    sockopt::set_tcp_keepcnt(socket, 3)
}

/// Sends AUTH, HELLO and SELECT, which must succeed before any command is sent: a command that ran as another
/// user or in another database would do harm.
async fn greet(config: &RedisConfig, stream: &mut Box<dyn Duplex>, parser: &mut Parser) -> Result<(), Error> {
    let mut out = Vec::new();
    let mut replies = 0;
    let mut send = |words: &[&[u8]]| {
        command::words(&mut out, words);
        replies += 1;
    };
    match (&config.username, &config.password) {
        (Some(user), Some(password)) => send(&[b"AUTH", user, password]),
        // Redis has users without a password (nopass).
        (Some(user), None) => send(&[b"AUTH", user, b""]),
        (None, Some(password)) => send(&[b"AUTH", password]),
        (None, None) => {}
    }
    if config.resp3 {
        send(&[b"HELLO", b"3"]);
    }
    if config.db > 0 {
        send(&[b"SELECT", config.db.to_string().as_bytes()]);
    }
    if replies == 0 {
        return Ok(());
    }
    let failed = |why: &str| cannot_connect(config, why);
    stream.write_all(&out).await.map_err(|error| failed(&error.to_string()))?;
    stream.flush().await.map_err(|error| failed(&error.to_string()))?;
    for _ in 0..replies {
        let mut reply = ValueSink::default();
        while !parser.next(&mut reply).map_err(|malformed| failed(&format!("it sent {}", malformed.0)))? {
            match stream.read(parser.room()).await {
                Ok(0) => return Err(failed("it closed the connection")),
                Ok(count) => parser.filled(count),
                Err(error) => return Err(failed(&error.to_string())),
            }
        }
        if let Some(Value::Error(error)) = reply.into_value() {
            return Err(error);
        }
    }
    Ok(())
}
