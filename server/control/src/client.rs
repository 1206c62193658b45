//! The client of the control server, for `firebrick stats` and others. Blocking, with time-outs.

use crate::deaths;
use crate::socket::connect_to;
use crate::table;
use rustix::process::Pid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use settings::ControlAddress;
use stats::{Death, InFlight, RoutesSnapshot, ServerSnapshot, Status};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Time-out of each read or write.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// A larger response does not come from a control server. In bytes.
const MAX_RESPONSE: u64 = 16 << 20;
/// The most bytes of a document that may be large, such as a profile.
const MAX_DOCUMENT: u64 = 1 << 30;

/// The reason why there is no response.
#[derive(Debug)]
pub enum Error {
    /// No server listens on the address, or the socket does not exist.
    NotRunning(ControlAddress),
    /// The connection failed.
    Io(ControlAddress, io::Error),
    /// The response does not come from a control server.
    NotControl(ControlAddress, String),
    /// The token is wrong or missing.
    Token(ControlAddress),
    /// The server refused the request, with this status and text.
    Refused(u16, String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotRunning(address) => write!(f, "nothing listens on {address}"),
            Error::Io(address, error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    write!(f, "the server that listens on {address} does not respond")
                }
                io::ErrorKind::PermissionDenied => {
                    write!(f, "{address} may be used by its owner only: run this as the server's user")
                }
                _ => write!(f, "{address}: {error}"),
            },
            Error::NotControl(address, what) => {
                write!(f, "what listens on {address} is not Firebrick, or another version: {what}")
            }
            Error::Token(address) => write!(
                f,
                "{address} requires its token: Invalid auth token; give it with --token or FIREBRICK_CONTROL_TOKEN"
            ),
            Error::Refused(status, text) => write!(f, "the server responded with {status}: {}", text.trim()),
        }
    }
}

impl std::error::Error for Error {}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlClient {
    address: ControlAddress,
    token: Option<String>,
    /// Time-out of each read or write.
    timeout: Duration,
}

impl ControlClient {
    /// Creates a client of the server at `address`. It sends `token` if the address is a port.
    pub fn new(address: ControlAddress, token: Option<String>) -> ControlClient {
        ControlClient { address, token, timeout: STEP_TIMEOUT }
    }

    /// Sets the time-out for the connect and for each read or write.
    pub fn within(self, timeout: Duration) -> ControlClient {
        ControlClient { timeout, ..self }
    }

    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    pub fn address(&self) -> &ControlAddress {
        &self.address
    }

    /// Requests `target`, such as `/stats`. Returns the body of the response.
    ///
    /// # Errors
    /// See [`Error`]. Any status but 200 is [`Error::Refused`] or [`Error::Token`].
    pub fn get(&self, target: &str) -> Result<String, Error> {
        let response = self.exchange(target).map_err(|error| self.failed(error))?;
        match parse(&response).map_err(|what| Error::NotControl(self.address.clone(), what))? {
            (200, body) => Ok(body),
            (403, text) if text.trim() == "Invalid auth token" => Err(Error::Token(self.address.clone())),
            (status, text) => Err(Error::Refused(status, text)),
        }
    }

    /// Returns what each route of the app takes, and what should be changed.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn routes(&self) -> Result<RoutesSnapshot, Error> {
        self.json("/routes?advice")
    }

    /// Returns the server's phase. Also works during boot and shutdown.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn status(&self) -> Result<Status, Error> {
        self.json("/status")
    }

    /// Returns the server's process id.
    ///
    /// # Errors
    /// See [`Error`]. Also fails if the server runs on another machine.
    pub(crate) fn server_pid(&self) -> Result<Pid, Error> {
        match &self.address {
            ControlAddress::Unix(path) => {
                let pid = connect_to(path, self.timeout).and_then(sys::socket::peer);
                match pid.map_err(|error| self.failed(error))? {
                    Some(pid) => Ok(pid),
                    None => of_this_machine(&self.address, &self.status()?),
                }
            }
            _ => of_this_machine(&self.address, &self.status()?),
        }
    }

    /// Returns the full statistics with fine buckets, from which [`stats::Interval`] can be computed.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn stats(&self) -> Result<ServerSnapshot, Error> {
        self.json("/stats?buckets=fine")
    }

    /// Returns at most `limit` requests in progress, slowest first. `backtraces`: with their positions in the
    /// app's code, which may take a second.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn requests(&self, limit: usize, backtraces: bool) -> Result<Vec<InFlight>, Error> {
        self.json(&format!("/requests?limit={limit}{}", if backtraces { "&backtraces" } else { "" }))
    }

    /// Returns how the last `limit` workers ended, newest first.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn deaths(&self, limit: usize) -> Result<Vec<Death>, Error> {
        self.json(&format!("/deaths?limit={limit}"))
    }

    /// Sends a POST to `target` and returns the lines of the response as they arrive. The time-out applies to
    /// each line; the server sends blank lines in between.
    ///
    /// # Errors
    /// See [`ControlClient::get`].
    pub(crate) fn post(&self, target: &str) -> Result<BufReader<Box<dyn Read>>, Error> {
        self.send(target, &[])
    }

    fn send(&self, target: &str, body: &[u8]) -> Result<BufReader<Box<dyn Read>>, Error> {
        let failed = |error| self.failed(error);
        let mut stream = BufReader::new(self.send_post(target, body).map_err(failed)?);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let read = (&mut stream).take(MAX_RESPONSE - head.len() as u64).read_until(b'\n', &mut head);
            if read.map_err(failed)? == 0 {
                let what = "its response is cut off".to_owned();
                return Err(Error::NotControl(self.address.clone(), what));
            }
        }
        let (status, body) = match parse_head(&head) {
            Ok((status, _, length)) => (status, length),
            Err(what) => return Err(Error::NotControl(self.address.clone(), what)),
        };
        if status == 200 {
            return Ok(stream);
        }
        let mut text = String::new();
        let _ = stream.take(body.unwrap_or(0) as u64).read_to_string(&mut text);
        if status == 403 && text.trim() == "Invalid auth token" {
            return Err(Error::Token(self.address.clone()));
        }
        Err(Error::Refused(status, text))
    }

    /// Sends an order and returns the JSON of the response.
    ///
    /// # Errors
    /// See [`ControlClient::get`]. The text of [`Error::Refused`] is the server's reason.
    pub(crate) fn order(&self, target: &str, order: &[u8]) -> Result<String, Error> {
        let mut response = self.send(target, order)?;
        let mut text = String::new();
        let read = response.by_ref().take(MAX_RESPONSE).read_to_string(&mut text);
        read.map_err(|error| self.failed(error))?;
        Ok(text)
    }

    /// Sends an order without content. Returns the document that comes later.
    ///
    /// # Errors
    /// See [`ControlClient::get`].
    pub(crate) fn document(&self, target: &str) -> Result<String, Error> {
        let mut text = String::new();
        let read = self.send(target, &[])?.take(MAX_DOCUMENT).read_to_string(&mut text);
        read.map_err(|error| self.failed(error))?;
        Ok(text)
    }

    /// Uses HTTP/1.0, so that the body is not chunked and ends with the connection.
    fn send_post(&self, target: &str, body: &[u8]) -> io::Result<Box<dyn Read>> {
        let (mut stream, host, token): (Box<dyn Duplex>, String, Option<&str>) = match &self.address {
            ControlAddress::Unix(path) => {
                (Box::new(connect_to(path, self.timeout)?), "firebrick".to_owned(), None)
            }
            ControlAddress::Tcp { host, port } => (
                Box::new(connect_port(host, *port, self.timeout)?),
                named(host, *port),
                self.token.as_deref(),
            ),
        };
        let shown = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let length = body.len();
        let head =
            format!("POST {target} HTTP/1.0\r\nHost: {host}\r\n{shown}Content-Length: {length}\r\n\r\n");
        stream.write_all(&[head.as_bytes(), body].concat())?;
        Ok(stream)
    }

    fn failed(&self, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                Error::NotRunning(self.address.clone())
            }
            _ => Error::Io(self.address.clone(), error),
        }
    }

    fn json<T: DeserializeOwned>(&self, target: &str) -> Result<T, Error> {
        let text = self.get(target)?;
        serde_json::from_str(&text)
            .map_err(|error| Error::NotControl(self.address.clone(), error.to_string()))
    }

    fn exchange(&self, target: &str) -> io::Result<Vec<u8>> {
        match &self.address {
            ControlAddress::Unix(path) => talk(connect_to(path, self.timeout)?, target, "firebrick", None),
            ControlAddress::Tcp { host, port } => talk(
                connect_port(host, *port, self.timeout)?,
                target,
                &named(host, *port),
                self.token.as_deref(),
            ),
        }
    }
}

/// Requests `target`, such as `/stats`, from the server that listens on the socket `path`, and returns the body.
///
/// # Errors
/// See [`ControlClient::get`].
pub fn get(path: &Path, target: &str) -> Result<String, Error> {
    ControlClient::new(ControlAddress::Unix(path.to_owned()), None).get(target)
}

/// Runs `firebrick stats` for the app in `dir`: prints the server's JSON, or a table.
pub fn stats_command(dir: &Path, client: &ControlClient, json: bool) -> ExitCode {
    show(report(dir, client, json))
}

/// Runs `firebrick deaths` for the app in `dir`: prints the server's JSON, or a table; with `minute`, what the workers did in their last one.
pub fn deaths_command(dir: &Path, client: &ControlClient, json: bool, minute: bool) -> ExitCode {
    show(ask(dir, client, "/deaths", json, |deaths: Vec<Death>| deaths::table(&deaths, minute)))
}

pub(crate) fn show(report: Result<String, String>) -> ExitCode {
    match report {
        Ok(text) => {
            output::print(text);
            ExitCode::SUCCESS
        }
        Err(message) => {
            output::complain(format_args!("firebrick: {message}"));
            ExitCode::FAILURE
        }
    }
}

fn report(dir: &Path, client: &ControlClient, json: bool) -> Result<String, String> {
    ask(dir, client, "/stats", json, |server: ServerSnapshot| table::stats(&server))
}

/// Returns the response to `target`: unchanged as JSON, or formatted by `table`.
pub(crate) fn ask<T: DeserializeOwned>(
    dir: &Path,
    client: &ControlClient,
    target: &str,
    json: bool,
    table: impl FnOnce(T) -> String,
) -> Result<String, String> {
    let text = client.get(target).map_err(|error| explain(&error, dir))?;
    if json {
        return Ok(text);
    }
    Ok(table(read(client, &text)?))
}

/// Returns the value that the response to `target` contains.
pub(crate) fn value<T: DeserializeOwned>(
    dir: &Path,
    client: &ControlClient,
    target: &str,
) -> Result<T, String> {
    read(client, &client.get(target).map_err(|error| reason(&error, dir))?)
}

fn read<T: DeserializeOwned>(client: &ControlClient, text: &str) -> Result<T, String> {
    let read = serde_json::from_str(text);
    read.map_err(|error| Error::NotControl(client.address.clone(), error.to_string()).to_string())
}

/// Sends an order; one without content, `()`, has an empty body. Returns the response.
pub(crate) fn order<T: DeserializeOwned>(
    dir: &Path,
    client: &ControlClient,
    target: &str,
    order: &impl Serialize,
) -> Result<T, String> {
    let written = serde_json::to_string(order).unwrap_or_default();
    let body = if written == "null" { "" } else { written.as_str() };
    read(client, &client.order(target, body.as_bytes()).map_err(|error| reason(&error, dir))?)
}

/// Returns the server's own reason, if it has refused the order.
pub fn reason(error: &Error, dir: &Path) -> String {
    let Error::Refused(status, text) = error else { return explain(error, dir) };
    if matches!(status, 404 | 405) {
        return "the server does not know this order: it runs another version".to_owned();
    }
    let told = serde_json::from_str::<serde_json::Value>(text).ok();
    let told = told.and_then(|told| told.get("error")?.as_str().map(str::to_owned));
    told.unwrap_or_else(|| explain(error, dir))
}

/// Describes an error, with a remedy if no server runs for the app in `dir`.
pub fn explain(error: &Error, dir: &Path) -> String {
    match error {
        Error::NotRunning(ControlAddress::Unix(_)) => {
            let dir = dir.display();
            format!("no Firebrick is running for {dir}: {error}; start one with `firebrick serve {dir}`")
        }
        Error::NotRunning(address) => {
            format!("{error}; start the server with `--control {address}`, or ask where it is")
        }
        _ => error.to_string(),
    }
}

fn named(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// A connection to a socket or to a port.
trait Duplex: Read + Write {}
impl<T: Read + Write> Duplex for T {}

fn connect_port(host: &str, port: u16, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::AddrNotAvailable, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => {
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn talk(mut stream: impl Read + Write, target: &str, host: &str, token: Option<&str>) -> io::Result<Vec<u8>> {
    let shown = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    stream.write_all(
        format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{shown}Connection: close\r\n\r\n").as_bytes(),
    )?;
    let mut response = Vec::new();
    stream.take(MAX_RESPONSE).read_to_end(&mut response)?;
    Ok(response)
}

/// Returns status and body of a response with a `Content-Length`, which the server always sends.
fn parse(response: &[u8]) -> Result<(u16, String), String> {
    let (status, length, announced) = parse_head(response)?;
    let body = &response[length..];
    if announced != Some(body.len()) {
        return Err("its response is not complete".to_owned());
    }
    let body = String::from_utf8(body.to_vec()).map_err(|_| "its response is not UTF-8".to_owned())?;
    Ok((status, body))
}

/// Returns the status, the length of the head and the announced length of the body.
fn parse_head(response: &[u8]) -> Result<(u16, usize, Option<usize>), String> {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut fields);
    let length = match head.parse(response) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Err("its response is cut off".to_owned()),
        Err(error) => return Err(format!("its response is not HTTP ({error})")),
    };
    let announced = head.headers.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"));
    let announced = announced.and_then(|field| std::str::from_utf8(field.value).ok()?.parse::<usize>().ok());
    Ok((head.code.unwrap_or_default(), length, announced))
}

/// Returns the process id that a server has reported. Fails if its address is not of this machine.
fn of_this_machine(address: &ControlAddress, status: &Status) -> Result<Pid, Error> {
    let named = i32::try_from(status.pid).ok().and_then(Pid::from_raw);
    match named {
        Some(pid) if address.is_local() => Ok(pid),
        _ => Err(Error::Io(
            address.clone(),
            io::Error::other("a server of another machine can only be stopped there"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    fn unix(path: &Path) -> ControlClient {
        ControlClient::new(ControlAddress::Unix(path.to_owned()), None)
    }

    #[test]
    fn no_server_names_folder_socket_and_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        for stale in [false, true] {
            if stale {
                drop(UnixListener::bind(&path).unwrap());
            }
            let message = report(Path::new("/srv/app"), &unix(&path), true).unwrap_err();
            let wanted = format!(
                "no Firebrick is running for /srv/app: nothing listens on {}; start one with `firebrick serve /srv/app`",
                path.display()
            );
            assert_eq!(message, wanted);
        }
    }

    #[test]
    fn the_servers_reason_is_told() {
        let refused =
            |status, text: &str| reason(&Error::Refused(status, text.to_owned()), Path::new("/srv"));
        assert_eq!(refused(409, r#"{ "error": "the app is not paused" }"#), "the app is not paused");
        assert_eq!(refused(500, "oops"), "the server responded with 500: oops");
        assert!(refused(404, r#"{ "error": "no such endpoint" }"#).contains("another version"));
    }

    #[test]
    fn no_server_at_a_port_names_the_port() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp://{}", listener.local_addr().unwrap());
        drop(listener);
        let client = ControlClient::new(address.parse().unwrap(), None);
        let message = report(Path::new("/srv/app"), &client, true).unwrap_err();
        assert!(
            message.starts_with(&format!("nothing listens on {address}; start the server with")),
            "{message}"
        );
    }

    #[test]
    fn responses_are_complete_or_refused() {
        let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}\n";
        assert_eq!(parse(whole), Ok((200, "{}\n".to_owned())));
        for cut in 0..whole.len() {
            assert!(parse(&whole[..cut]).is_err(), "cut at {cut}");
        }
        assert!(parse(b"SSH-2.0-OpenSSH\r\n").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n\xff").is_err());
    }

    #[test]
    fn a_stranger_on_the_socket_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("other.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let stranger = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(b"hello\r\n").unwrap();
        });
        let error = unix(&path).get("/stats").unwrap_err();
        assert!(matches!(error, Error::NotControl(..)), "{error}");
        stranger.join().unwrap();
    }
}
