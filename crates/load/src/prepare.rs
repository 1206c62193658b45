//! Requests as they are sent: bytes put together once, before the run.

use std::collections::HashMap;

use crate::plan::{Origin, Plan, Protocol, Request};

/// One kind of request, ready to be sent.
#[derive(Debug)]
pub(crate) struct Kind {
    /// Such as `GET http://127.0.0.1:9292/a`.
    pub name: String,
    /// Which of [`Prepared::origins`].
    pub origin: usize,
    /// The whole HTTP/1.1 message.
    pub message: Box<[u8]>,
    /// Length of its head without the empty line: here further fields go.
    pub fields_end: usize,
    /// The answer has no body.
    pub to_head: bool,
    /// Without the query.
    pub path: String,
    /// Its own `Cookie`, which is left out of `message` and `request` when cookies are kept.
    pub cookie: Option<String>,
    /// For HTTP/2: everything but the body.
    pub request: Option<http_types::Request<()>>,
    /// For HTTP/2.
    pub body: bytes::Bytes,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub kinds: Vec<Kind>,
    /// Each once.
    pub origins: Vec<Origin>,
}

impl Prepared {
    /// # Errors
    /// A request that cannot be sent as it is.
    pub(crate) fn new(plan: &Plan) -> Result<Prepared, String> {
        let mut origins: Vec<Origin> = Vec::new();
        let mut known: HashMap<&Origin, usize> = HashMap::new();
        let mut kinds = Vec::with_capacity(plan.requests.len());
        for request in &plan.requests {
            let origin = *known.entry(&request.origin).or_insert_with(|| {
                origins.push(request.origin.clone());
                origins.len() - 1
            });
            kinds.push(kind(request, origin, plan)?);
        }
        Ok(Prepared { kinds, origins })
    }
}

fn kind(request: &Request, origin: usize, plan: &Plan) -> Result<Kind, String> {
    let name = format!("{} {}{}", request.method, url(&request.origin), request.target);
    check(request).map_err(|why| format!("{name}: {why}"))?;
    let fields = fields(request, plan);
    let cookie = plan.cookies.then(|| request.headers.iter().find(|(name, _)| is_cookie(name))).flatten();
    let http2 = matches!(plan.transport.protocol, Protocol::Http2 { .. });
    let mut message = format!("{} {} HTTP/1.1\r\n", request.method, request.target).into_bytes();
    for (name, value) in &fields {
        message.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    let fields_end = message.len();
    message.extend_from_slice(b"\r\n");
    message.extend_from_slice(&request.body);
    let over_http2 =
        http2.then(|| http2_request(request, &fields).map_err(|why| format!("{name}: {why}"))).transpose()?;
    Ok(Kind {
        name,
        cookie: cookie.map(|(_, value)| value.clone()),
        request: over_http2,
        body: request.body.clone(),
        origin,
        message: message.into_boxed_slice(),
        fields_end,
        to_head: request.method == "HEAD",
        path: request.target.split('?').next().unwrap_or_default().to_owned(),
    })
}

/// The fields of a request: those given, and those that the engine sets where none is given.
fn fields(request: &Request, plan: &Plan) -> Vec<(String, String)> {
    let given = |name: &str| request.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    let mut fields = Vec::with_capacity(request.headers.len() + 3);
    if !given("Host") {
        fields.push(("Host".to_owned(), authority(&request.origin)));
    }
    let kept = request.headers.iter().filter(|(name, _)| !(plan.cookies && is_cookie(name)));
    fields.extend(kept.cloned());
    let meant_to_have_one = matches!(request.method.as_str(), "POST" | "PUT" | "PATCH");
    if (!request.body.is_empty() || meant_to_have_one)
        && !given("Content-Length")
        && !given("Transfer-Encoding")
    {
        fields.push(("Content-Length".to_owned(), request.body.len().to_string()));
    }
    if matches!(plan.transport.protocol, Protocol::Http1 { keep_alive: false, .. }) && !given("Connection") {
        fields.push(("Connection".to_owned(), "close".to_owned()));
    }
    if plan.stages && !given("Firebrick-Timing") {
        fields.push(("Firebrick-Timing".to_owned(), "1".to_owned()));
    }
    fields
}

fn is_cookie(name: &str) -> bool {
    name.eq_ignore_ascii_case("cookie")
}

/// Fields that belong to an HTTP/1.1 connection and have no place in HTTP/2 (RFC 9113, 8.2.2).
const OF_CONNECTIONS: [&str; 6] =
    ["connection", "host", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

fn http2_request(request: &Request, fields: &[(String, String)]) -> Result<http_types::Request<()>, String> {
    let host = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("host"));
    let uri = http_types::Uri::builder()
        .scheme(if request.origin.tls { "https" } else { "http" })
        .authority(host.map_or_else(|| authority(&request.origin), |(_, value)| value.clone()))
        .path_and_query(request.target.as_str())
        .build();
    let mut built = http_types::Request::builder()
        .version(http_types::Version::HTTP_2)
        .method(request.method.as_str())
        .uri(uri.map_err(|error| format!("HTTP/2 cannot carry it: {error}"))?);
    for (name, value) in fields {
        if !OF_CONNECTIONS.iter().any(|left_out| name.eq_ignore_ascii_case(left_out)) {
            built = built.header(name.to_ascii_lowercase(), value);
        }
    }
    built.body(()).map_err(|error| format!("HTTP/2 cannot carry it: {error}"))
}

/// Host and port as `Host` has them: the scheme's own port is left out.
pub(crate) fn authority(origin: &Origin) -> String {
    let host = match origin.host.contains(':') {
        true => format!("[{}]", origin.host),
        false => origin.host.clone(),
    };
    match origin.port == if origin.tls { 443 } else { 80 } {
        true => host,
        false => format!("{host}:{}", origin.port),
    }
}

/// Such as `https://localhost:9292`.
pub(crate) fn url(origin: &Origin) -> String {
    format!("{}://{}", if origin.tls { "https" } else { "http" }, authority(origin))
}

fn check(request: &Request) -> Result<(), String> {
    if request.method.is_empty() || !request.method.bytes().all(is_token) {
        return Err(format!("{:?} is no method; one is a word such as GET", request.method));
    }
    let target = request.target.as_bytes();
    if !(target.starts_with(b"/") || target == b"*") || !target.iter().all(u8::is_ascii_graphic) {
        return Err(
            "the path must begin with / and have no space or control character in it; write a space as %20"
                .to_owned(),
        );
    }
    if request.origin.host.is_empty() || !request.origin.host.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the URL has no host that could be sent; write one as http://127.0.0.1:9292/".to_owned());
    }
    if request.weight == 0 {
        return Err("its weight is 0; it must be at least 1".to_owned());
    }
    for (name, value) in &request.headers {
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(format!("{name:?} is no name of a header; one is a word such as Accept"));
        }
        if value.bytes().any(|byte| byte < b' ' && byte != b'\t' || byte == 0x7f) {
            return Err(format!("the header {name} has a line break or control character in its value"));
        }
    }
    Ok(())
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
