//! HTTP to the CA: hyper over rustls, for `instant-acme` and for the `ask` address.
//!
//! Contract:
//! 1. Every exchange ends within [`TIMEOUT`]. A response has at most [`MAX_BODY`] bytes.
//! 2. `https://` may lead anywhere; `http://` only to this machine, because a response of the CA must not be
//!    changed on the way. The `ask` address is the user's own and may be anywhere.
//! 3. One connection is kept for the next request. If a kept connection fails to take a request, it is sent
//!    on a new one.
//! 4. The last response is kept ([`CaClient::last`]), because `Retry-After` and bodies that are not JSON do not
//!    reach the errors of `instant-acme`.

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::http::uri::Scheme;
use hyper::{Method, Request, Response, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, HttpClient};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio_rustls::TlsConnector;

/// Time-out of an exchange, including the connect.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest response, in bytes. Chains and directories have a few KiB.
const MAX_BODY: usize = 1 << 20;
/// The longest `Retry-After` that is passed to `instant-acme`, which adds it to the current time.
const LONGEST_WAIT: Duration = Duration::from_secs(30 * 86_400);
/// How long a renewal window is valid if the CA does not specify it (`Retry-After` in seconds).
const WINDOW_AGE: HeaderValue = HeaderValue::from_static("21600");
/// Characters of a page that are quoted in a message.
const QUOTED: usize = 120;

type Body = BodyWrapper<Bytes>;
type Sender = SendRequest<Body>;

/// The last response of the CA.
#[derive(Clone, Debug, Default)]
pub struct Last {
    pub url: String,
    pub status: u16,
    /// `Retry-After`, as a duration from now.
    pub retry_after: Option<Duration>,
    /// The first characters of a body that is not JSON.
    pub page: Option<String>,
    /// The text of a problem document (RFC 9457), even where none was expected.
    pub detail: Option<String>,
}

/// Why there is no response: a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(pub String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Clones share one connection.
#[derive(Clone)]
pub struct CaClient(Arc<Inner>);

struct Inner {
    /// The TLS configuration, or the reason why there is none.
    tls: Result<Arc<ClientConfig>, String>,
    /// Whether `http://` may lead to other machines.
    plain: bool,
    idle: Mutex<Option<(String, Sender)>>,
    last: Mutex<Last>,
}

impl CaClient {
    /// Creates a client. If `tls` is an error, all requests by `https` fail with it. `plain`: `http://` may
    /// lead to other machines.
    pub fn new(tls: Result<ClientConfig, String>, plain: bool) -> CaClient {
        CaClient(Arc::new(Inner {
            tls: tls.map(Arc::new),
            plain,
            idle: Mutex::default(),
            last: Mutex::default(),
        }))
    }

    pub fn last(&self) -> Last {
        lock(&self.0.last).clone()
    }

    /// Forgets the last response, so that it does not explain later failures.
    pub fn forget_last(&self) {
        *lock(&self.0.last) = Last::default();
    }

    /// Sends a GET request. Returns status and body.
    ///
    /// # Errors
    /// There is no response, or it is too large.
    pub async fn get(&self, uri: &str) -> Result<(u16, Bytes), Error> {
        let request =
            Request::builder().uri(uri).body(Body::default()).map_err(|error| Error(error.to_string()))?;
        let response = self.exchange(request).await?;
        Ok((response.status().as_u16(), response.into_body()))
    }

    async fn exchange(&self, request: Request<Body>) -> Result<Response<Bytes>, Error> {
        let uri = request.uri().clone();
        let response = match tokio::time::timeout(TIMEOUT, self.send(request)).await {
            Ok(response) => response.map_err(|why| Error(format!("{uri}: {why}")))?,
            Err(_) => return Err(Error(format!("{uri} did not respond within {} s", TIMEOUT.as_secs()))),
        };
        *lock(&self.0.last) = Last {
            url: uri.to_string(),
            status: response.status().as_u16(),
            retry_after: response.headers().get(RETRY_AFTER).and_then(retry_after),
            page: page(&response),
            detail: detail(&response),
        };
        Ok(response)
    }

    async fn send(&self, mut request: Request<Body>) -> Result<Response<Bytes>, String> {
        let origin = Origin::of(request.uri(), self.0.plain)?;
        let host = HeaderValue::from_str(&origin.authority).map_err(|error| error.to_string())?;
        request.headers_mut().insert(HOST, host);
        // Origin form (RFC 9112 section 3.2.1).
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let path = path.parse::<Uri>().map_err(|error| error.to_string())?;
        *request.uri_mut() = path;
        let idle =
            lock(&self.0.idle).take().filter(|(known, _)| *known == origin.key()).map(|(_, sender)| sender);
        if let Some(mut sender) = idle
            && sender.ready().await.is_ok()
        {
            match sender.try_send_request(request).await {
                Ok(response) => return self.receive(&origin, sender, response).await,
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(sentence(&error.into_error())),
                },
            }
        }
        let mut sender = self.connect(&origin).await?;
        let response = sender.send_request(request).await.map_err(|error| sentence(&error))?;
        self.receive(&origin, sender, response).await
    }

    /// Reads the body, and keeps the connection.
    async fn receive(
        &self,
        origin: &Origin,
        sender: Sender,
        response: Response<hyper::body::Incoming>,
    ) -> Result<Response<Bytes>, String> {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await;
        let body = body.map_err(|error| format!("the response cannot be read: {error}"))?.to_bytes();
        *lock(&self.0.idle) = Some((origin.key(), sender));
        Ok(Response::from_parts(head, body))
    }

    async fn connect(&self, origin: &Origin) -> Result<Sender, String> {
        let stream = net::dial(&origin.host, origin.port).await;
        let stream = stream.map_err(|error| format!("cannot connect: {error}"))?;
        // A small request must not wait for the acknowledgement of the one before.
        let _ = stream.set_nodelay(true);
        if !origin.tls {
            return spoken(handshake(TokioIo::new(stream)).await);
        }
        let name = ServerName::try_from(origin.host.clone()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(self.0.tls.clone()?).connect(name, stream).await;
        let stream = stream.map_err(|error| match trust::certificate_error(&error) {
            Some(why) => format!(
                "its certificate is not trusted ({why}); if it is signed by an authority of your own, name that one with --acme-ca"
            ),
            None => format!("TLS failed: {error}"),
        })?;
        spoken(handshake(TokioIo::new(stream)).await)
    }
}

impl HttpClient for CaClient {
    fn request(
        &self,
        request: Request<Body>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            let get = request.method() == Method::GET;
            match client.exchange(request).await {
                Ok(response) => {
                    let (mut parts, body) = response.into_parts();
                    bound(&mut parts.headers, get);
                    Ok(BytesResponse { parts, body: Box::new(body) })
                }
                Err(error) => Err(instant_acme::Error::Other(Box::new(error))),
            }
        })
    }
}

/// Replaces `Retry-After` by a time within the limits. GET requests fetch only directories and renewal
/// windows, and `instant-acme` needs the field for a window.
fn bound(headers: &mut HeaderMap, get: bool) {
    match headers.get(RETRY_AFTER).map(retry_after) {
        Some(Some(wait)) if wait > LONGEST_WAIT => {
            headers.insert(RETRY_AFTER, HeaderValue::from(LONGEST_WAIT.as_secs()));
        }
        Some(Some(_)) => {}
        // A moment in the past, or an invalid value.
        Some(None) | None if get => {
            headers.insert(RETRY_AFTER, WINDOW_AGE);
        }
        Some(None) | None => {
            headers.remove(RETRY_AFTER);
        }
    }
}

/// Starts the task of a connection.
fn spoken<I>(
    opened: hyper::Result<(Sender, hyper::client::conn::http1::Connection<I, Body>)>,
) -> Result<Sender, String>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (sender, connection) = opened.map_err(|error| sentence(&error))?;
    // The connection's requests report errors.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// The server that a request goes to.
struct Origin {
    tls: bool,
    host: String,
    port: u16,
    authority: String,
}

impl Origin {
    fn of(uri: &Uri, plain: bool) -> Result<Origin, String> {
        let host =
            uri.host().ok_or("the address names no host")?.trim_start_matches('[').trim_end_matches(']');
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP && (plain || is_here(host)) => false,
            Some(scheme) if *scheme == Scheme::HTTP => {
                return Err("plain http:// is used on this machine only".to_owned());
            }
            _ => return Err("the address does not begin with https://".to_owned()),
        };
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        let authority = authority.rsplit('@').next().unwrap_or_default().to_owned();
        Ok(Origin { tls, host: host.to_owned(), port, authority })
    }

    fn key(&self) -> String {
        format!("{} {}:{}", self.tls, self.host, self.port)
    }
}

/// Whether a host is this machine.
fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Parses seconds or an HTTP date (RFC 9110 section 10.2.3) to a duration from now.
fn retry_after(value: &HeaderValue) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()?;
    SystemTime::from(date).duration_since(SystemTime::now()).ok()
}

/// Returns the beginning of a body that is not JSON, on one line.
fn page(response: &Response<Bytes>) -> Option<String> {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if kind.contains("json") || kind.contains("pem") {
        return None;
    }
    let text =
        String::from_utf8_lossy(&response.body()[..response.body().len().min(4 * QUOTED)]).into_owned();
    Some(text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(QUOTED).collect())
}

/// Returns the text of a problem document.
fn detail(response: &Response<Bytes>) -> Option<String> {
    if response.status().is_success() {
        return None;
    }
    let problem: serde_json::Value = serde_json::from_slice(response.body()).ok()?;
    Some(problem.get("detail")?.as_str()?.chars().take(4 * QUOTED).collect())
}

/// Formats an error of hyper with its cause.
fn sentence(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins() {
        let origin = |uri: &str| Origin::of(&uri.parse().unwrap(), false);
        let one = origin("https://ca.test/dir").unwrap();
        assert_eq!((one.tls, one.port, one.authority.as_str()), (true, 443, "ca.test"));
        let here = origin("http://[::1]:14000/dir").unwrap();
        assert_eq!((here.tls, here.host.as_str(), here.port), (false, "::1", 14_000));
        assert!(origin("http://ca.test/dir").is_err());
        assert!(origin("/dir").is_err());
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let read = |text: &'static str| retry_after(&HeaderValue::from_static(text));
        assert_eq!(read("120"), Some(Duration::from_secs(120)));
        assert!(read("Thu, 31 Dec 2099 23:59:59 GMT").unwrap() > Duration::from_secs(86_400 * 365));
        assert_eq!(read("Fri, 31 Dec 1999 23:59:59 GMT"), None, "in the past");
        assert_eq!(read("soon"), None);
    }

    #[test]
    fn waits_are_bounded() {
        let bounded = |value: Option<&'static str>, get| {
            let mut headers = HeaderMap::new();
            value.map(|value| headers.insert(RETRY_AFTER, HeaderValue::from_static(value)));
            bound(&mut headers, get);
            headers.get(RETRY_AFTER).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(bounded(Some("120"), true).as_deref(), Some("120"));
        assert_eq!(bounded(Some("18446744073709551615"), false).as_deref(), Some("2592000"));
        assert_eq!(bounded(Some("Thu, 31 Dec 2099 23:59:59 GMT"), false).as_deref(), Some("2592000"));
        assert_eq!(bounded(Some("99999999999999999999999"), false), None);
        assert_eq!(bounded(None, true).as_deref(), Some("21600"));
        assert_eq!(bounded(None, false), None);
    }

    #[test]
    fn pages_are_quoted_and_json_is_not() {
        let response = |kind: &'static str, body: &'static str| {
            Response::builder().header(CONTENT_TYPE, kind).body(Bytes::from_static(body.as_bytes())).unwrap()
        };
        assert_eq!(page(&response("application/problem+json", "{}")), None);
        assert_eq!(page(&response("text/html", "<h1>\n Bad  gateway")), Some("<h1> Bad gateway".to_owned()));
    }
}
