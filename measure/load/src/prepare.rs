//! Serializes the requests once, before the run.

use std::collections::HashMap;

use crate::scenario::{Origin, Protocol, Request, Scenario};

/// One kind of request, ready to send.
#[derive(Debug)]
pub(crate) struct PreparedRequest {
    /// A name such as `GET http://127.0.0.1:9292/a`.
    pub name: String,
    /// The index into [`Prepared::origins`].
    pub origin: usize,
    /// The whole HTTP/1.1 message.
    pub message: Box<[u8]>,
    /// The length of the head without the empty line; further fields are inserted there.
    pub fields_end: usize,
    /// Whether the request is HEAD, so that the response has no body.
    pub to_head: bool,
    /// The path without the query.
    pub path: String,
    /// The request's own `Cookie` field, which is left out of `message` and `request` if cookies are kept.
    pub cookie: Option<String>,
    /// For journeys: the fields that each request of the step has, unless the step gives another value.
    pub common: Vec<(String, String)>,
    /// For HTTP/2 and HTTP/3: the request without its body.
    pub request: Option<http_types::Request<()>>,
    /// For HTTP/2 and HTTP/3: the body.
    pub body: bytes::Bytes,
}

/// All requests of a scenario.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub kinds: Vec<PreparedRequest>,
    pub origins: Vec<Origin>,
}

impl Prepared {
    /// # Errors
    /// A request that cannot be sent.
    pub(crate) fn new(scenario: &Scenario) -> Result<Prepared, String> {
        let mut origins: Vec<Origin> = Vec::new();
        let mut known: HashMap<&Origin, usize> = HashMap::new();
        let mut kinds = Vec::with_capacity(scenario.requests.len());
        for request in &scenario.requests {
            let origin = *known.entry(&request.origin).or_insert_with(|| {
                origins.push(request.origin.clone());
                origins.len() - 1
            });
            let mut kind = kind(request, origin, scenario)?;
            if let Some(step) = scenario.journey.as_ref().and_then(|journey| journey.steps.get(kinds.len())) {
                kind.name.clone_from(&step.name);
            }
            kinds.push(kind);
        }
        Ok(Prepared { kinds, origins })
    }
}

fn kind(request: &Request, origin: usize, scenario: &Scenario) -> Result<PreparedRequest, String> {
    let name = format!("{} {}{}", request.method, url(&request.origin), request.target);
    check(request).map_err(|why| format!("{name}: {why}"))?;
    let fields = fields(request, scenario);
    let cookie = scenario.cookies.then(|| request.headers.iter().find(|(name, _)| is_cookie(name))).flatten();
    let streams = scenario.transport.protocol.streams().is_some();
    let mut message = format!("{} {} HTTP/1.1\r\n", request.method, request.target).into_bytes();
    for (name, value) in &fields {
        message.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    let fields_end = message.len();
    message.extend_from_slice(b"\r\n");
    message.extend_from_slice(&request.body);
    let on_streams =
        streams.then(|| on_stream(request, &fields).map_err(|why| format!("{name}: {why}"))).transpose()?;
    Ok(PreparedRequest {
        name,
        cookie: cookie.map(|(_, value)| value.clone()),
        request: on_streams,
        body: request.body.clone(),
        common: if scenario.journey.is_some() { common(fields) } else { Vec::new() },
        origin,
        message: message.into_boxed_slice(),
        fields_end,
        to_head: request.method == "HEAD",
        path: request.target.split('?').next().unwrap_or_default().to_owned(),
    })
}

/// Returns the fields of a request: the given ones, and those that the engine adds if they are missing.
fn fields(request: &Request, scenario: &Scenario) -> Vec<(String, String)> {
    let given = |name: &str| request.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    let mut fields = Vec::with_capacity(request.headers.len() + 3);
    if !given("Host") {
        fields.push(("Host".to_owned(), authority(&request.origin)));
    }
    let kept = request.headers.iter().filter(|(name, _)| !(scenario.cookies && is_cookie(name)));
    fields.extend(kept.cloned());
    let meant_to_have_one = matches!(request.method.as_str(), "POST" | "PUT" | "PATCH");
    if (!request.body.is_empty() || meant_to_have_one)
        && !given("Content-Length")
        && !given("Transfer-Encoding")
    {
        fields.push(("Content-Length".to_owned(), request.body.len().to_string()));
    }
    if matches!(scenario.transport.protocol, Protocol::Http1 { keep_alive: false, .. })
        && !given("Connection")
    {
        fields.push(("Connection".to_owned(), "close".to_owned()));
    }
    if scenario.stages && !given("Firebrick-Timing") {
        fields.push(("Firebrick-Timing".to_owned(), "1".to_owned()));
    }
    fields
}

/// Returns the fields that do not depend on the request's body and origin.
fn common(fields: Vec<(String, String)>) -> Vec<(String, String)> {
    let own = |name: &str| ["host", "content-length"].iter().any(|own| name.eq_ignore_ascii_case(own));
    fields.into_iter().filter(|(name, _)| !own(name)).collect()
}

fn is_cookie(name: &str) -> bool {
    name.eq_ignore_ascii_case("cookie")
}

/// Connection-specific fields, which are not allowed in HTTP/2 and HTTP/3 (RFC 9113, 8.2.2; RFC 9114, 4.2),
/// and `Host`, which becomes `:authority`.
const OF_CONNECTIONS: [&str; 6] =
    ["connection", "host", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

fn on_stream(request: &Request, fields: &[(String, String)]) -> Result<http_types::Request<()>, String> {
    let host = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let uri = http_types::Uri::builder()
        .scheme(if request.origin.tls { "https" } else { "http" })
        .authority(host.map_or_else(|| authority(&request.origin), |(_, value)| value.clone()))
        .path_and_query(request.target.as_str())
        .build();
    let mut built = http_types::Request::builder()
        .version(http_types::Version::HTTP_2)
        .method(request.method.as_str())
        .uri(uri.map_err(|error| format!("it cannot be sent over HTTP/2 or HTTP/3: {error}"))?);
    for (name, value) in fields {
        if !OF_CONNECTIONS.iter().any(|skipped| name.eq_ignore_ascii_case(skipped)) {
            built = built.header(name.to_ascii_lowercase(), value);
        }
    }
    built.body(()).map_err(|error| format!("it cannot be sent over HTTP/2 or HTTP/3: {error}"))
}

/// Returns host and port as in the `Host` field, without the scheme's default port.
pub(crate) fn authority(origin: &Origin) -> String {
    // A zone has a meaning on this machine only (RFC 6874, 1).
    let host = match origin.host.contains(':') {
        true => format!("[{}]", origin.host_without_zone()),
        false => origin.host.clone(),
    };
    with_port(host, origin)
}

fn with_port(host: String, origin: &Origin) -> String {
    match origin.port == if origin.tls { 443 } else { 80 } {
        true => host,
        false => format!("{host}:{}", origin.port),
    }
}

/// Returns a URL such as `https://localhost:9292`.
pub(crate) fn url(origin: &Origin) -> String {
    let host = match origin.host.contains(':') {
        true => format!("[{}]", origin.host.replace('%', "%25")),
        false => origin.host.clone(),
    };
    format!("{}://{}", if origin.tls { "https" } else { "http" }, with_port(host, origin))
}

fn check(request: &Request) -> Result<(), String> {
    if !text::is_token(request.method.as_bytes()) {
        return Err(format!("{:?} is not a method; expected one such as GET", request.method));
    }
    let target = request.target.as_bytes();
    if !(target.starts_with(b"/") || target == b"*") || !target.iter().all(u8::is_ascii_graphic) {
        return Err(
            "the path must begin with / and contain no blank or control character; write a blank as %20"
                .to_owned(),
        );
    }
    if request.origin.host.is_empty() || !request.origin.host.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the URL has no valid host; expected one such as http://127.0.0.1:9292/".to_owned());
    }
    if request.weight == 0 {
        return Err("its weight is 0; it must be at least 1".to_owned());
    }
    for (name, value) in &request.headers {
        if !text::is_token(name.as_bytes()) {
            return Err(format!("{name:?} is not a header name; expected one such as Accept"));
        }
        if value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f) {
            return Err(format!("the header {name} contains a line break or control character"));
        }
    }
    Ok(())
}
