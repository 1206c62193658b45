//! The rest of the server as a handler sees it: `H2O.next`, `H2O.reprocess`, `x-reproxy-url` and early hints.
//!
//! Contract:
//! 1. `next` asks those who come after the handler in its route; `reprocess` asks the whole server again. Both make a request of
//!    the env they are given: what Rack says about the connection stays what it was.
//! 2. A request goes through the server again a bounded number of times ([`Hops`]); then it is answered 502.
//! 3. Their responses are held as those of other servers are, and may be returned without passing through Ruby.

use crate::fetch::request::{Parts, Patient, exchange};
use crate::fetch::{self, Url};
use crate::ops::{Waiting, fault};
use crate::runtime::Runtime;
use crate::script::{Next, Script};
use crate::stream;
use crate::tasks::Asker;
use bytes::Bytes;
use handler::{Client, Exchange, Failure, FailureKind, Incoming, Peer, Request, Response, Trace};
use mruby::{Tape, Value};
use std::borrow::Cow;
use std::rc::Rc;

/// How often a request may still be handed on within the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hops {
    /// By `x-reproxy-url`.
    pub delegations: u8,
    /// By `H2O.reprocess`.
    pub reprocesses: u8,
}

impl Default for Hops {
    /// Five of each, as H2O allows.
    fn default() -> Hops {
        Hops { delegations: 5, reprocesses: 5 }
    }
}

impl Hops {
    /// Keys and values for the env, unless they are what every request has at first.
    pub(crate) fn told(self) -> Option<[(&'static str, String); 2]> {
        (self != Hops::default()).then(|| {
            [
                ("h2o.remaining_delegations", self.delegations.to_string()),
                ("h2o.remaining_reprocesses", self.reprocesses.to_string()),
            ]
        })
    }
}

/// Where in the chain of a route a request is.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) route: usize,
    /// Number of the handler in its route.
    pub(crate) handler: usize,
    pub(crate) next: Rc<dyn Next>,
    pub(crate) hops: Hops,
}

/// The request that a task answers.
pub(crate) struct Origin {
    script: Rc<Script>,
    place: Place,
    client: Rc<dyn Client>,
    trace: Rc<Trace>,
    peer: Rc<Peer>,
}

impl Origin {
    pub(crate) fn new(script: &Rc<Script>, place: Place, exchange: &Exchange) -> Origin {
        Origin {
            script: script.clone(),
            place,
            client: exchange.client.clone(),
            trace: exchange.trace.clone(),
            peer: exchange.request.peer.clone(),
        }
    }

    fn exchange(&self, env: &Env<'_>, body: Option<Bytes>) -> Result<Exchange, String> {
        let request = env.parts(self.peer.clone(), body.as_ref().map(Bytes::len))?.request()?;
        let client = Rc::new(Patient(Some(self.client.clone())));
        Ok(exchange(request, body, client, self.trace.clone()))
    }
}

/// Waits of this area.
pub(crate) fn begin(runtime: &Rc<Runtime>, asker: &Rc<Asker>, op: &[u8], args: &[Value<'_>]) -> Waiting {
    let Some(origin) = &asker.origin else {
        return fault("RuntimeError", "there is no request here: this works while a request is answered");
    };
    let asked = match op {
        b"hints" => return hints(origin, args),
        b"next" => next(origin, args),
        _ => again(origin, args),
    };
    match asked {
        Ok(work) => fetch::numbered(runtime.state.fetch.table.begin(&asker.held, false, work)),
        Err(why) => fault("ArgumentError", why),
    }
}

type Work = std::pin::Pin<Box<dyn Future<Output = Result<Response, Failure>>>>;

/// `[[key, value …], body]`: those who come after this handler.
fn next(origin: &Origin, args: &[Value<'_>]) -> Result<Work, String> {
    let pairs = stream::fields(args.first());
    let env = Env(&pairs);
    let mount = origin.script.mount(origin.place.route);
    if env.get("SCRIPT_NAME").unwrap_or_default() != mount.as_bytes() {
        return Err(format!(
            "H2O.next answers below SCRIPT_NAME \"{mount}\"; use H2O.reprocess to change it"
        ));
    }
    let exchange = origin.exchange(&env, body(args))?;
    let (script, place) = (origin.script.clone(), origin.place.clone());
    let after = Place { handler: place.handler + 1, ..place };
    Ok(Box::pin(async move { Ok(script.answer_from(after, exchange).await) }))
}

/// `[[key, value …], body]`: the whole server.
fn again(origin: &Origin, args: &[Value<'_>]) -> Result<Work, String> {
    let pairs = stream::fields(args.first());
    let exchange = origin.exchange(&Env(&pairs), body(args))?;
    let Place { next, hops, .. } = origin.place.clone();
    let Some(reprocesses) = hops.reprocesses.checked_sub(1) else {
        let failure = Failure::new(FailureKind::BadResponse, "a request was reprocessed too often: a loop?");
        origin.script.tell(&failure, &exchange.request);
        return Ok(Box::pin(std::future::ready(Ok(failure.into_response()))));
    };
    Ok(Box::pin(async move { Ok(next.again(exchange, Hops { reprocesses, ..hops }).await) }))
}

fn body(args: &[Value<'_>]) -> Option<Bytes> {
    args.get(1).and_then(Value::text).map(Bytes::copy_from_slice)
}

/// `[[name, value …]]`: a 103 (RFC 8297).
fn hints(origin: &Origin, args: &[Value<'_>]) -> Waiting {
    let pairs = stream::fields(args.first());
    match crate::answer::fields(pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))) {
        Ok(fields) => {
            origin.client.interim(103, &fields);
            let mut tape = Tape::new();
            tape.nil();
            Box::pin(std::future::ready(tape))
        }
        Err(failure) => fault("ArgumentError", failure.reason.as_bytes()),
    }
}

/// Sends a request where the handler's response says: another server, or another path of this one.
pub(crate) async fn delegate(
    script: &Script,
    place: Place,
    status: u16,
    url: &[u8],
    exchange: Exchange,
) -> Response {
    let Some(delegations) = place.hops.delegations.checked_sub(1) else {
        let failure = Failure::new(FailureKind::BadResponse, "a request was delegated too often: a loop?");
        script.tell(&failure, &exchange.request);
        return failure.into_response();
    };
    let hops = Hops { delegations, ..place.hops };
    let own = own_target(url, &exchange.request);
    let inside = own.is_some();
    let url = own.as_deref().unwrap_or(url);
    let keeps = matches!(status, 307 | 308);
    let asked = match inside {
        true => Ok(None),
        false if script.reproxies(place.route) => Url::parse(url).map(Some),
        false => Err(format!(
            "\"{}\" is not a path of this server; to let handlers name other servers set reproxy = true for the route or below \
             [mruby]",
            url.escape_ascii()
        )),
    };
    let made = asked.and_then(|away| {
        let old = exchange.request.authority();
        let (target, authority) = away.as_ref().map_or((url, old), |url| (&url.target, &url.authority));
        Ok((redirected(&exchange, target, authority, keeps)?, away))
    });
    let (made, away) = match made {
        Ok(made) => made,
        Err(why) => {
            let failure = Failure::new(FailureKind::BadResponse, format!("x-reproxy-url: {why}"));
            script.tell(&failure, &exchange.request);
            return failure.into_response();
        }
    };
    match away {
        None => place.next.again(made, hops).await,
        Some(url) => match script.forward(url, made).await {
            Ok(response) => response,
            Err(failure) => {
                script.tell(&failure, &exchange.request);
                failure.into_response()
            }
        },
    }
}

/// The path and query of a URL that is one of this server: a path alone, or below the host that the client has asked.
fn own_target<'a>(url: &'a [u8], request: &Request) -> Option<Cow<'a, [u8]>> {
    if url.starts_with(b"/") && !url.starts_with(b"//") {
        return Some(Cow::Borrowed(url));
    }
    let scheme: &[u8] = if request.https { b"https://" } else { b"http://" };
    let (host, target) = url.strip_prefix(scheme)?.split_at_checked(request.authority().len())?;
    if host.is_empty() || !host.eq_ignore_ascii_case(request.authority()) {
        return None;
    }
    match target.first() {
        Some(b'/') => Some(Cow::Borrowed(target)),
        None | Some(b'?' | b'#') => Some([b"/", target].concat().into()),
        Some(_) => None,
    }
}

/// The same request for another target; a GET without a body unless it keeps its method.
fn redirected(exchange: &Exchange, target: &[u8], authority: &[u8], keeps: bool) -> Result<Exchange, String> {
    let old = &exchange.request;
    let target = target.split(|byte| *byte == b'#').next().unwrap_or_default();
    let mut halves = target.splitn(2, |byte| *byte == b'?');
    let (path, query) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
    let about_body = |name: &[u8]| {
        [&b"content-length"[..], b"content-type", b"transfer-encoding", b"expect"]
            .iter()
            .any(|field| name.eq_ignore_ascii_case(field))
    };
    let request = Parts {
        method: if keeps || old.method() == b"HEAD" { old.method() } else { b"GET" },
        path,
        query,
        authority,
        https: old.https,
        fields: old
            .fields
            .iter()
            .filter(|(name, _)| keeps || !about_body(name))
            .map(|(name, value)| (name.to_vec(), value))
            .collect(),
        variables: old.variables.clone(),
        peer: old.peer.clone(),
    };
    let body = match &exchange.incoming {
        Incoming::Ready(bytes) if keeps => Some(bytes.clone()),
        _ => None,
    };
    let client = Rc::new(Patient(Some(exchange.client.clone())));
    Ok(fetch::request::exchange(request.request()?, body, client, exchange.trace.clone()))
}

/// A Rack env: names and values.
struct Env<'a>(&'a [(Vec<u8>, Vec<u8>)]);

/// Keys that say what a request has elsewhere.
const OURS: [&[u8]; 14] = [
    b"REQUEST_METHOD",
    b"SCRIPT_NAME",
    b"PATH_INFO",
    b"QUERY_STRING",
    b"REQUEST_URI",
    b"SERVER_NAME",
    b"SERVER_PORT",
    b"SERVER_PROTOCOL",
    b"SERVER_ADDR",
    b"SERVER_SOFTWARE",
    b"REMOTE_ADDR",
    b"REMOTE_PORT",
    b"HTTP_VERSION",
    b"CONTENT_LENGTH",
];

impl<'a> Env<'a> {
    fn get(&self, key: &str) -> Option<&'a [u8]> {
        self.0.iter().find(|(name, _)| name == key.as_bytes()).map(|(_, value)| value.as_slice())
    }

    fn needed(&self, key: &str) -> Result<&'a [u8], String> {
        self.get(key).ok_or_else(|| format!("the env has no {key}"))
    }

    /// The host: `HTTP_HOST`, else name and port of the server.
    fn authority(&self) -> Result<Vec<u8>, String> {
        if let Some(host) = self.get("HTTP_HOST") {
            return Ok(host.to_vec());
        }
        let name = self.get("SERVER_NAME").ok_or("the env has neither HTTP_HOST nor SERVER_NAME")?;
        Ok([name, b":", self.needed("SERVER_PORT")?].concat())
    }

    fn parts(&self, peer: Rc<Peer>, length: Option<usize>) -> Result<OwnedParts<'a>, String> {
        let rest = self.needed("PATH_INFO")?;
        if !matches!(rest.first(), None | Some(b'/' | b'%')) {
            return Err(format!("PATH_INFO is \"{}\": it begins with / or is empty", rest.escape_ascii()));
        }
        let path = [self.needed("SCRIPT_NAME")?, rest].concat();
        let scheme = self.needed("rack.url_scheme")?;
        if !matches!(scheme, b"http" | b"https") {
            return Err(format!("rack.url_scheme is \"{}\": expected http or https", scheme.escape_ascii()));
        }
        let mut fields = Vec::new();
        let mut variables = Vec::new();
        for (key, value) in self.0 {
            match key.strip_prefix(b"HTTP_") {
                _ if OURS.contains(&key.as_slice()) || key == b"HTTP_HOST" => {}
                Some(name) => fields.push((field_name(name), value.as_slice())),
                None if key == b"CONTENT_TYPE" => fields.push((b"content-type".to_vec(), value.as_slice())),
                // `rack.input` and others of its kind are for Ruby only.
                None if !http::h1::is_token(key) || key.contains(&b'.') => {}
                None => variables.push((key.as_slice().into(), value.as_slice().into())),
            }
        }
        Ok(OwnedParts {
            method: self.needed("REQUEST_METHOD")?,
            path: if path.is_empty() { b"/".to_vec() } else { path },
            query: self.needed("QUERY_STRING")?,
            authority: self.authority()?,
            https: scheme == b"https",
            length: length.filter(|length| *length > 0).map(|length| length.to_string()),
            fields,
            variables,
            peer,
        })
    }
}

/// [`Parts`] of which some had to be put together.
struct OwnedParts<'a> {
    method: &'a [u8],
    path: Vec<u8>,
    query: &'a [u8],
    authority: Vec<u8>,
    https: bool,
    length: Option<String>,
    fields: Vec<(Vec<u8>, &'a [u8])>,
    variables: Vec<handler::Variable>,
    peer: Rc<Peer>,
}

impl OwnedParts<'_> {
    fn request(self) -> Result<handler::Request, String> {
        let mut fields: Vec<(Vec<u8>, &[u8])> = vec![(b"host".to_vec(), &self.authority)];
        fields.extend(self.fields);
        if let Some(length) = &self.length {
            fields.push((b"content-length".to_vec(), length.as_bytes()));
        }
        let parts = Parts {
            method: self.method,
            path: &self.path,
            query: self.query,
            authority: &self.authority,
            https: self.https,
            fields,
            variables: self.variables,
            peer: self.peer,
        };
        parts.request()
    }
}

/// `ACCEPT_LANGUAGE` to `accept-language`.
fn field_name(name: &[u8]) -> Vec<u8> {
    name.iter().map(|byte| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENV: [(&str, &str); 12] = [
        ("REQUEST_METHOD", "POST"),
        ("SCRIPT_NAME", "/api"),
        ("PATH_INFO", "/a%20b"),
        ("QUERY_STRING", "q=1"),
        ("SERVER_NAME", "name"),
        ("SERVER_PORT", "81"),
        ("HTTP_HOST", "host:82"),
        ("rack.url_scheme", "https"),
        ("HTTP_ACCEPT_LANGUAGE", "de, en"),
        ("CONTENT_TYPE", "text/plain"),
        ("CONTENT_LENGTH", "99"),
        ("REMOTE_USER", "anna"),
    ];

    fn request(without: &str) -> Result<handler::Request, String> {
        let pairs: Vec<_> = ENV
            .iter()
            .filter(|(key, _)| *key != without)
            .map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect();
        Env(&pairs).parts(fetch::request::ourselves(), Some(3))?.request()
    }

    #[test]
    fn an_env_becomes_a_request() {
        let request = request("").unwrap();
        assert_eq!((request.method(), request.target()), (&b"POST"[..], &b"/api/a%20b?q=1"[..]));
        assert_eq!((request.path(), request.query()), (&b"/api/a%20b"[..], &b"q=1"[..]));
        assert!(request.https);
        assert_eq!(request.server(), (&b"host"[..], &b"82"[..]));
        let fields: Vec<_> = request
            .fields
            .iter()
            .map(|(name, value)| format!("{}: {}", name.escape_ascii(), value.escape_ascii()))
            .collect();
        let expected =
            ["host: host:82", "accept-language: de, en", "content-type: text/plain", "content-length: 3"];
        assert_eq!(fields, expected);
        assert_eq!(request.variable("REMOTE_USER"), Some(&b"anna"[..]));
    }

    #[test]
    fn a_url_of_the_host_that_was_asked_is_a_path() {
        let request = request("").unwrap();
        for (url, target) in [
            ("/a?b", Some("/a?b")),
            ("https://host:82/a?b", Some("/a?b")),
            ("https://HOST:82", Some("/")),
            ("https://host:82?b", Some("/?b")),
            ("https://host:82#c", Some("/#c")),
            ("https://host:820/a", None),
            ("https://host:82.example/a", None),
            ("https://host:82@example/a", None),
            ("https://host/a", None),
            ("http://host:82/a", None),
            ("//host:82/a", None),
            ("a", None),
        ] {
            let found = own_target(url.as_bytes(), &request);
            assert_eq!(found.as_deref(), target.map(str::as_bytes), "{url}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for key in ["REQUEST_METHOD", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "rack.url_scheme"] {
            assert!(request(key).unwrap_err().contains(key));
        }
        assert_eq!(request("HTTP_HOST").unwrap().authority(), b"name:81");
    }
}
