//! `http_request` and the classes built on it: requests to other servers and their responses.
//!
//! Contract:
//! 1. A request is sent as soon as it is made, and joined later, so many run at the same time.
//! 2. A body is read at Ruby's pace, and the upstream is read no faster.
//! 3. A failure is reported with its Ruby class (`Net::OpenTimeout`, …); the prelude decides whether it is raised.

pub(crate) mod request;
mod url;

pub(crate) use url::Url;

use crate::context::TaskContext;
use crate::failure;
use crate::held::{HeldResponse, Number, Source, Table};
use crate::ops::Area;
use crate::stream;
use crate::waiting::{OperationFuture, fault, ready, tape};
use bytes::Bytes;
use handler::{Body, Exchange, Failure, Fields, Peer, Response, Trace};
use mruby::{Tape, TapeValue};
use proxy::{HostPolicy, ProxyClient, ProxyConfig, Via};
use request::{NoDeparture, RequestParts, exchange, own_peer};
use std::rc::Rc;
use std::time::Duration;

/// How often requests of handlers may lead to further requests to this server's handlers: as often as a
/// request may be passed on within the server ([`crate::Hops`]). More passes count as a loop.
const PASSES: usize = 4;

pub(crate) struct FetchState {
    responses: Rc<Table>,
    client: Rc<ProxyClient>,
    peer: Rc<Peer>,
    max_joined: usize,
}

impl FetchState {
    /// Creates an empty state; `max_joined` is the largest body that `join` reads, in bytes.
    pub(crate) fn new(responses: Rc<Table>, max_joined: usize) -> FetchState {
        let config = ProxyConfig {
            forwarded: false,
            websocket: false,
            via: Via::Requests,
            passes: PASSES,
            host: HostPolicy::Client,
            ..ProxyConfig::new("http_request", Vec::new())
        };
        FetchState { responses, client: Rc::new(ProxyClient::new(config)), peer: own_peer(), max_joined }
    }

    /// Sends a request to another server.
    pub(crate) async fn forward(&self, url: Url, exchange: Exchange) -> Result<Response, Failure> {
        self.client.ask(url.origin, exchange, url.target).await
    }

    /// Takes an unread body, together with the fields of its response.
    pub(crate) fn unread(&self, number: Number) -> Option<(Body, Fields)> {
        let held = self.responses.get(number)?;
        let body = held.take_body()?.unread()?;
        Some((body, held.fields()?))
    }

    fn held(&self, args: &[TapeValue<'_>]) -> Option<Rc<HeldResponse>> {
        self.responses.get(args.first().and_then(TapeValue::int)?)
    }
}

pub(crate) const AREA: Area<FetchState> = Area {
    calls: &[
        ("HELD_CLOSE", |state, args, tape| {
            if let Some(number) = args.first().and_then(TapeValue::int) {
                state.responses.forget(number, false);
            }
            tape.nil();
        }),
        ("REASON", |_, args, tape| {
            let status = args.first().and_then(TapeValue::int).and_then(|status| u16::try_from(status).ok());
            tape.str(handler::reason_phrase(status.unwrap_or_default()));
        }),
    ],
    waits: &[("FETCH", start), ("HELD_HEAD", head), ("HELD_READ", read), ("HELD_JOIN", join)],
    preludes: &[
        ("http.rb", include_str!("../ruby/http.rb")),
        ("net_http.rb", include_str!("../ruby/net_http.rb")),
    ],
};

/// `[url, method, [name, value …], body, seconds, host]`: returns the number of the response. The Host field
/// is `host` or the URL's host; a Host among the fields is ignored, as in H2O.
fn start(state: &Rc<FetchState>, task: &TaskContext, args: &[TapeValue<'_>]) -> OperationFuture {
    let via = task.origin.as_ref().and_then(|origin| origin.via.as_deref());
    match parse(state, args, via) {
        Ok((url, exchange, timeout)) => {
            let client = state.client.clone();
            let work = async move {
                let response = client.ask(url.origin, exchange, url.target);
                let Some(timeout) = timeout else { return response.await };
                let in_time = tokio::time::timeout(timeout, response).await;
                in_time.unwrap_or_else(|_| Err(failure::request_timeout(timeout)))
            };
            let number = state.responses.begin(&task.held, true, work);
            ready(|tape| tape.int(number).done())
        }
        Err(why) => fault("ArgumentError", why),
    }
}

/// Reads the arguments of `start`. `via` is the `Via` of the request that the handler serves.
fn parse(
    state: &FetchState,
    args: &[TapeValue<'_>],
    via: Option<&[u8]>,
) -> Result<(Url, Exchange, Option<Duration>), String> {
    let [url, method, fields, body, timeout, host] = args else {
        return Err("a request has a URL, a method, fields, a body, a timeout and a host".to_owned());
    };
    let url = Url::parse(url.text().unwrap_or_default())?;
    let timeout = match timeout {
        TapeValue::Nil => None,
        seconds => Some(
            seconds
                .float()
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
                .ok_or("timeout takes seconds, 0 or more")?,
        ),
    };
    let mut path = url.target.as_slice();
    let mut query: &[u8] = b"";
    if let Some(at) = path.iter().position(|byte| *byte == b'?') {
        (path, query) = (&path[..at], &path[at + 1..]);
    }
    let pairs = stream::fields(Some(fields));
    let ours = |name: &[u8]| [&b"host"[..], b"content-length"].iter().any(|n| name.eq_ignore_ascii_case(n));
    let given = pairs.iter().any(|(name, _)| name.eq_ignore_ascii_case(b"via"));
    let inherited = via.filter(|_| !given).map(|via| (b"via".to_vec(), via));
    let request = RequestParts {
        method: method.text().unwrap_or_default(),
        path,
        query,
        authority: host.text().unwrap_or(&url.authority),
        https: false,
        fields: pairs
            .iter()
            .filter(|(name, _)| !ours(name))
            .flat_map(|(name, values)| values.split(|b| *b == b'\n').map(move |v| (name.clone(), v)))
            .chain(inherited)
            .collect(),
        variables: Vec::new(),
        peer: state.peer.clone(),
    };
    let request = request.request()?;
    let body = body.text().map(Bytes::copy_from_slice);
    let exchange = exchange(request, body, Rc::new(NoDeparture(None)), Rc::new(Trace::default()));
    Ok((url, exchange, timeout))
}

/// `[number]`: returns `[status, [name, value …], whether there is a body]`, or `[class, reason]` of a failure.
fn head(state: &Rc<FetchState>, _: &TaskContext, args: &[TapeValue<'_>]) -> OperationFuture {
    let Some(held) = state.held(args) else { return dropped() };
    Box::pin(async move {
        let mut tape = Tape::new();
        match held.head().await {
            Ok(head) => {
                // A body is framed again when it is sent. Without a body (HEAD) the length is that of the
                // response to a GET.
                let keep_framing = !held.is_outbound() && !head.has_body;
                let kept = head.fields.iter().filter(|(name, _)| keep_framing || !is_framing(name));
                let fields: Vec<_> = kept.collect();
                tape.array(3).int(head.status.into()).array(2 * fields.len() as u32);
                for (name, value) in fields {
                    tape.str(name.to_ascii_lowercase()).str(value);
                }
                tape.bool(head.has_body)
            }
            Err(failure) => tape.array(2).str(class(&failure)).str(failure.reason.as_bytes()),
        };
        tape
    })
}

/// `[number]`: returns the next bytes of the body, nil at its end.
fn read(state: &Rc<FetchState>, _: &TaskContext, args: &[TapeValue<'_>]) -> OperationFuture {
    let Some(held) = state.held(args) else { return dropped() };
    let Some(source) = held.take_body() else { return consumed() };
    Box::pin(async move {
        let mut tape = Tape::new();
        match source.parts() {
            Ok(mut parts) => match parts.next().await {
                Ok(Some(bytes)) => {
                    held.put_body(Source::Started(parts));
                    tape.str(bytes)
                }
                Ok(None) => tape.nil(),
                Err(why) => tape.fault("H2O::HttpError", why),
            },
            Err(why) => tape.fault("H2O::HttpError", why),
        };
        tape
    })
}

/// `[number]`: returns the rest of the body.
fn join(state: &Rc<FetchState>, _: &TaskContext, args: &[TapeValue<'_>]) -> OperationFuture {
    let Some(held) = state.held(args) else { return dropped() };
    let Some(source) = held.take_body() else { return consumed() };
    let limit = state.max_joined;
    Box::pin(async move {
        let joined = match source.parts() {
            Ok(parts) => parts.join(limit).await,
            Err(why) => Err(why),
        };
        tape(|tape| match joined {
            Ok(bytes) => tape.str(bytes).done(),
            Err(why) => tape.fault("H2O::HttpError", why).done(),
        })
    })
}

fn dropped() -> OperationFuture {
    fault("RuntimeError", "the response belongs to a request that has ended, or has been closed")
}

fn consumed() -> OperationFuture {
    fault("RuntimeError", "http response body is already consumed")
}

/// Returns whether a field frames the body.
fn is_framing(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"transfer-encoding")
}

/// Returns the Ruby class for a failure.
fn class(failure: &Failure) -> &'static str {
    let says = |what: &str| failure.reason.contains(what);
    let unconnected = says("cannot connect") || says("no certificates") || says("tls_ca");
    match failure.status {
        504 if unconnected => "Net::OpenTimeout",
        504 => "Net::ReadTimeout",
        508 => "H2O::LoopDetected",
        502 if unconnected && says("refused") => "Errno::ECONNREFUSED",
        502 if unconnected && (says("lookup address") || says("no address")) => "SocketError",
        502 if unconnected && (says("certificate") || says("TLS")) => "OpenSSL::SSL::SSLError",
        502 if unconnected => "Errno::EHOSTUNREACH",
        502 if says("closed") => "EOFError",
        502 if says("broke off") => "Errno::ECONNRESET",
        _ => "Net::HTTPBadResponse",
    }
}

/// Returns the `x-reproxy-url` of a response.
pub(crate) fn reproxy_url(fields: &Fields) -> Option<Vec<u8>> {
    fields.get("x-reproxy-url").map(<[u8]>::to_vec)
}
