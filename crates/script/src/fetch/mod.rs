//! `http_request` and what is built on it: asking other servers, and reading what they and the rest of this one answer.
//!
//! Contract:
//! 1. A request is sent as soon as it is made; waiting for its answer is another matter, so many go on side by side.
//! 2. A body is read at Ruby's pace, and an upstream is not read faster than that.
//! 3. What went wrong is told with the class by which Ruby people know it; whether it is raised is the prelude's business.

mod body;
mod held;
pub(crate) mod request;
mod url;

pub(crate) use held::{Number, Owned, Table};
pub(crate) use url::Url;

use crate::ops::{Call, Waiting, fault};
use crate::runtime::{Complain, Runtime};
use crate::stream;
use crate::tasks::Asker;
use body::Source;
use bytes::Bytes;
use handler::{Body, Exchange, Failure, FailureKind, Fields, Peer, Response, Trace};
use mruby::{Tape, Value};
use proxy::{Client, Config, HostPolicy};
use request::{Parts, Patient, exchange, ourselves};
use std::rc::Rc;
use std::time::Duration;

/// What calls and waits of this area work on.
pub(crate) struct State {
    pub(crate) table: Rc<Table>,
    client: Rc<Client>,
    peer: Rc<Peer>,
}

impl State {
    pub(crate) fn new(complain: Complain) -> State {
        let config = Config {
            forwarded: false,
            websocket: false,
            host: HostPolicy::Client,
            ..Config::new("http_request", Vec::new())
        };
        let failed = move |failure: &Failure, _: &handler::Request| complain(&failure.reason);
        State {
            table: Rc::default(),
            client: Rc::new(Client::new(config, Rc::new(failed))),
            peer: ourselves(),
        }
    }

    /// Hands a request on to another server.
    pub(crate) async fn forward(&self, url: Url, exchange: Exchange) -> Result<Response, Failure> {
        self.client.ask(url.origin, exchange, url.target).await
    }

    /// A body that nobody has read, and the fields that it came with.
    pub(crate) fn untouched(&self, number: Number) -> Option<(Body, Fields)> {
        let held = self.table.get(number)?;
        let body = held.take_body()?.untouched()?;
        Some((body, held.fields()?))
    }
}

/// Calls of this area.
pub(crate) const CALLS: &[(&str, Call)] = &[
    ("HELD_CLOSE", |state, args, tape| {
        if let Some(number) = args.first().and_then(Value::int) {
            state.fetch.table.forget(number, false);
        }
        tape.nil();
    }),
    ("REASON", |_, args, tape| {
        let status = args.first().and_then(Value::int).and_then(|status| u16::try_from(status).ok());
        tape.str(handler::reason_phrase(status.unwrap_or_default()));
    }),
];

/// Waits of this area.
pub(crate) fn begin(runtime: &Rc<Runtime>, asker: &Rc<Asker>, op: &[u8], args: &[Value<'_>]) -> Waiting {
    match op {
        b"fetch" => start(runtime, asker, args),
        b"held_head" => head(runtime, args),
        b"held_read" => read(runtime, args),
        _ => join(runtime, args),
    }
}

/// Gives Ruby the number of a response.
pub(crate) fn numbered(number: Number) -> Waiting {
    let mut tape = Tape::new();
    tape.int(number);
    Box::pin(std::future::ready(tape))
}

/// `[url, method, [name, value …], body, seconds, host]`: the number of the response. Without a host that of the URL is asked for;
/// what the fields say of it does not count, as in H2O.
fn start(runtime: &Rc<Runtime>, asker: &Rc<Asker>, args: &[Value<'_>]) -> Waiting {
    match asked(runtime, args) {
        Ok((url, exchange, patience)) => {
            let client = runtime.state.fetch.client.clone();
            let work = async move {
                let answer = client.ask(url.origin, exchange, url.target);
                let Some(patience) = patience else { return answer.await };
                tokio::time::timeout(patience, answer).await.unwrap_or_else(|_| {
                    let why = format!("http_request: no response within {} s", patience.as_secs_f64());
                    Err(Failure::new(FailureKind::UpstreamTimeout, why))
                })
            };
            numbered(runtime.state.fetch.table.begin(&asker.held, true, work))
        }
        Err(why) => fault("ArgumentError", why),
    }
}

fn asked(runtime: &Rc<Runtime>, args: &[Value<'_>]) -> Result<(Url, Exchange, Option<Duration>), String> {
    let [url, method, fields, body, patience, host] = args else {
        return Err("a request has a URL, a method, fields, a body, a time and a host".to_owned());
    };
    let url = Url::parse(url.text().unwrap_or_default())?;
    let patience = match patience {
        Value::Nil => None,
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
    let request = Parts {
        method: method.text().unwrap_or_default(),
        path,
        query,
        authority: host.text().unwrap_or(&url.authority),
        https: false,
        fields: pairs
            .iter()
            .filter(|(name, _)| !ours(name))
            .flat_map(|(name, values)| values.split(|b| *b == b'\n').map(move |v| (name.clone(), v)))
            .collect(),
        variables: Vec::new(),
        peer: runtime.state.fetch.peer.clone(),
    };
    let request = request.request()?;
    let body = body.text().map(Bytes::copy_from_slice);
    let exchange = exchange(request, body, Rc::new(Patient(None)), Rc::new(Trace::default()));
    Ok((url, exchange, patience))
}

/// `[number]`: `[status, [name, value …], whether there is a body]`, or `[class, reason]` of what went wrong.
fn head(runtime: &Rc<Runtime>, args: &[Value<'_>]) -> Waiting {
    let Some(held) = found(runtime, args) else { return gone() };
    Box::pin(async move {
        let mut tape = Tape::new();
        match held.head().await {
            Ok(head) => {
                // Where a body is still to come it is framed anew; without one the length is what a GET would have given.
                let keeps = !held.is_outward() && !head.has_body;
                let kept = head.fields.iter().filter(|(name, _)| keeps || !is_framing(name));
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

/// `[number]`: the next bytes of the body, nil at its end.
fn read(runtime: &Rc<Runtime>, args: &[Value<'_>]) -> Waiting {
    let Some(held) = found(runtime, args) else { return gone() };
    let Some(source) = held.take_body() else { return consumed() };
    Box::pin(async move {
        let mut tape = Tape::new();
        match source.pieces() {
            Ok(mut pieces) => match pieces.next().await {
                Ok(Some(bytes)) => {
                    held.put_body(Source::Begun(pieces));
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

/// `[number]`: all of the body that has not been read.
fn join(runtime: &Rc<Runtime>, args: &[Value<'_>]) -> Waiting {
    let Some(held) = found(runtime, args) else { return gone() };
    let Some(source) = held.take_body() else { return consumed() };
    let limit = runtime.loosest.request_heap;
    Box::pin(async move {
        let mut tape = Tape::new();
        let joined = match source.pieces() {
            Ok(pieces) => pieces.join(limit).await,
            Err(why) => Err(why),
        };
        match joined {
            Ok(bytes) => tape.str(bytes),
            Err(why) => tape.fault("H2O::HttpError", why),
        };
        tape
    })
}

fn found(runtime: &Rc<Runtime>, args: &[Value<'_>]) -> Option<Rc<held::Held>> {
    runtime.state.fetch.table.get(args.first().and_then(Value::int)?)
}

fn gone() -> Waiting {
    fault("RuntimeError", "the response belongs to a request that is over, or has been closed")
}

fn consumed() -> Waiting {
    fault("RuntimeError", "http response body is already consumed")
}

/// Fields by which a body is framed: that is done anew.
fn is_framing(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"transfer-encoding")
}

/// What Ruby people call it.
fn class(failure: &Failure) -> &'static str {
    let says = |what: &str| failure.reason.contains(what);
    match failure.kind {
        FailureKind::UpstreamTimeout if says("cannot connect") => "Net::OpenTimeout",
        FailureKind::UpstreamTimeout => "Net::ReadTimeout",
        FailureKind::UpstreamUnreachable if says("refused") => "Errno::ECONNREFUSED",
        FailureKind::UpstreamUnreachable if says("lookup address") || says("no address") => "SocketError",
        FailureKind::UpstreamUnreachable if says("certificate") || says("TLS") => "OpenSSL::SSL::SSLError",
        FailureKind::UpstreamUnreachable => "Errno::EHOSTUNREACH",
        FailureKind::BadUpstream if says("closed") => "EOFError",
        FailureKind::BadUpstream if says("broke off") => "Errno::ECONNRESET",
        _ => "Net::HTTPBadResponse",
    }
}

/// Whether a response says so about itself: then it goes elsewhere.
pub(crate) fn delegated(fields: &Fields) -> Option<Vec<u8>> {
    fields.get("x-reproxy-url").map(<[u8]>::to_vec)
}
