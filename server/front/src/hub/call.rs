//! Calls to the app: questions of the hub and answers of the app (`worker/lib/firebrick/hub.rb`).
//!
//! Contract:
//! 1. A call is a POST to `hub.path` with the fields of the client's handshake, so the app sees its cookies, session and host. A
//!    variable that only the server can set marks it; no client can make one.
//! 2. The body is JSON. Identifiers of the connection and state of the channels travel in it, so any worker can serve it.
//! 3. An answer has the field `Firebrick-Hub`. Anything else is a response of the app's middleware, such as a redirect.
//! 4. With `hub.rpc`, calls and answers have the form of AnyCable's gem instead ([`super::rpc`]).

use super::{SharedHub, count};
use crate::app::App;
use crate::whole_body;
use cable::exclusion::{SessionId, session_text};
use handler::{
    Client, Exchange, Fields, Handler, Incoming, Peer, Request, Response, Span, StayingClient, Trace, Version,
};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt::Display;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

/// The variable that marks a call.
const MARK: &[u8] = b"firebrick.hub";
/// The most bytes of an answer.
const LONGEST_ANSWER: usize = 4 << 20;
/// The most attempts of a call that had no effect or may be repeated, and the pause between two of them.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// Fields of the handshake that are not those of a call.
const DROPPED: [&str; 12] = [
    "connection",
    "upgrade",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
    "accept-encoding",
    "content-length",
    "content-type",
    "transfer-encoding",
    "if-none-match",
    "expect",
];

/// A question to the app.
#[derive(Debug, Serialize)]
pub(super) struct HubOrder<'a> {
    /// `connect`, `subscribe`, `perform`, `periodic`, `unsubscribe` or `disconnect`.
    pub(super) command: &'static str,
    /// The client, as its welcome names it.
    #[serde(serialize_with = "as_text")]
    pub(super) session: SessionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) identifier: Option<&'a str>,
    /// The action, as the client has written it; or the place of a timer among those of its channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) data: Option<&'a str>,
    /// The state of the connection.
    pub(super) connection: &'a str,
    /// Identifier and state of each channel that is concerned.
    pub(super) channels: Vec<(&'a str, &'a str)>,
}

fn as_text<S: Serializer>(session: &SessionId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&session_text(*session))
}

/// The app's answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct HubAnswer {
    /// The new state of the connection; `None`: unchanged.
    pub(super) connection: Option<Box<str>>,
    /// The new state of the channel; `None`: unchanged.
    pub(super) channel: Option<Box<str>>,
    /// The stream on which the app ends connections with the same identifiers.
    pub(super) remote: Option<Box<str>>,
    /// Messages for the client, as JSON texts.
    pub(super) transmissions: Vec<String>,
    /// All streams of the channel have been stopped, and the named ones; then others have begun.
    pub(super) stopped_all: bool,
    pub(super) stopped: Vec<String>,
    pub(super) streams: Vec<String>,
    /// The stream to which the client may whisper from now on, and to no other; `None`: unchanged.
    pub(super) whispers_to: Option<Box<str>>,
    /// Members of streams who join or leave by this subscription, in order.
    pub(super) presence: Vec<AnsweredPresence>,
    /// The intervals of the channel's timers, in seconds; `None`: unchanged.
    pub(super) timers: Option<Vec<f64>>,
    /// Whether the subscription was rejected.
    pub(super) rejected: bool,
    /// Whether the connection ends. The transmissions say why.
    pub(super) closed: bool,
    /// Why the channel needs a WebSocket of the app's own. Nothing else of the answer counts then.
    pub(super) needs_socket: Option<String>,
    /// Why the app has rejected the subscription, for the log.
    pub(super) error: Option<String>,
    /// Not the app has answered, but the client's token.
    #[serde(skip)]
    pub(super) by_token: bool,
}

/// A change of the members that the app has made.
#[derive(Debug, Deserialize)]
pub(super) struct AnsweredPresence {
    /// `None`: the first stream of the subscription.
    pub(super) stream: Option<Box<str>>,
    /// The id with which the subscription joins, or leaves; `None`: it leaves with any id.
    pub(super) id: Option<Box<str>>,
    /// The info of a member that joins; `None`: the member leaves.
    pub(super) info: Option<serde_json::Value>,
}

/// Why there is no answer.
pub(super) enum NoAnswer {
    /// The response of something before the hub.
    Response(Box<Response>),
    /// This sentence says why.
    Failed(String),
}

impl NoAnswer {
    /// The answer cannot be read, for this reason.
    pub(super) fn unreadable<T: Display>(why: T) -> NoAnswer {
        NoAnswer::Failed(format!("the app's answer cannot be read: {why}"))
    }
}

/// Returns the request that calls are made from: the handshake without the fields of the connection.
pub(super) fn template(handshake: &Request) -> Request {
    let is_kept = |(name, _): &(&[u8], &[u8])| {
        !DROPPED.iter().any(|dropped| name.eq_ignore_ascii_case(dropped.as_bytes()))
    };
    let fields = handshake.fields.iter().filter(is_kept);
    let peer = handshake.peer.clone();
    Request {
        version: handshake.version,
        variables: handshake.variables.clone(),
        https: handshake.https,
        received: handshake.received,
        arrived: handshake.arrived,
        ..template_of(
            handshake.target(),
            handshake.path(),
            handshake.query(),
            handshake.authority(),
            fields,
            peer,
        )
    }
}

/// Returns a POST, received now. Path and query are parts of the target.
pub(super) fn template_of<'a>(
    target: &[u8],
    path: &[u8],
    query: &[u8],
    authority: &[u8],
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    peer: Rc<Peer>,
) -> Request {
    let (in_path, in_query) = (Span::of(target, path), Span::of(target, query));
    let mut text = Vec::with_capacity(512);
    let mut add = |part: &[u8]| {
        let span = Span { start: text.len() as u32, len: part.len() as u32 };
        text.extend_from_slice(part);
        span
    };
    let (method, target, authority) = (add(b"POST"), add(target), add(authority));
    let within = |part: Span| Span { start: target.start + part.start, len: part.len };
    let mut all = Fields::from_parts(text, Vec::new());
    fields.for_each(|(name, value)| all.push(name, value));
    Request {
        version: Version::Http11,
        switchable: false,
        method,
        target,
        path: within(in_path),
        query: within(in_query),
        authority,
        fields: all,
        variables: Vec::new(),
        peer,
        https: false,
        received: SystemTime::now(),
        arrived: Instant::now(),
    }
}

/// The source of a client's calls. The log needs the handshake until the WebSocket ends, so usually there is one copy of it for
/// both.
pub(super) enum CallSource {
    Logged(Rc<Trace>),
    /// A handler has passed on a request of its own, which the log does not need.
    Own(Box<Request>),
}

impl CallSource {
    /// `trace` is that of the handshake, whose request has been dropped.
    pub(super) fn new(template: Request, trace: Rc<Trace>) -> CallSource {
        let is_logged = trace.request().is_some();
        if is_logged { CallSource::Logged(trace) } else { CallSource::Own(Box::new(template)) }
    }

    /// Returns the request for calls; `None` after the end of the exchange.
    pub(super) fn template(&self) -> Option<Request> {
        match self {
            CallSource::Logged(trace) => trace.request().map(|handshake| template(&handshake)),
            CallSource::Own(template) => Some(Request::clone(template)),
        }
    }
}

/// Asks the app once, when there is room for a call.
pub(super) async fn ask(
    hub: &SharedHub,
    app: &App,
    template: &Request,
    order: &HubOrder<'_>,
    client: Option<Rc<dyn Client>>,
) -> Result<HubAnswer, NoAnswer> {
    // Never closed.
    let _permit = hub.calls.acquire().await;
    count(&hub.counts.calls);
    let (mut request, body) = match &hub.rpc {
        Some(rpc) => (rpc.request(template, order), rpc.body(template, order)),
        None => {
            let mut request = template.clone();
            (request.received, request.arrived) = (SystemTime::now(), Instant::now());
            request.set_variable(MARK, b"1");
            (request, serde_json::to_vec(order))
        }
    };
    let body = body.map_err(|error| NoAnswer::Failed(format!("a call cannot be written: {error}")))?;
    request.fields.push(b"Content-Type", b"application/json");
    app.stamp.apply(&mut request);
    let exchange = Exchange {
        request: request.into(),
        incoming: Incoming::Ready(body.into()),
        client: client.unwrap_or_else(|| Rc::new(StayingClient)),
        trace: Rc::new(Trace::default()),
    };
    let response = app.rack.handle(exchange).await;
    let is_answer = match hub.rpc {
        // A refusal of the gem is for the log and not for the client.
        Some(_) => response.failure.is_none(),
        None => response.status == 200 && response.fields.get("firebrick-hub").is_some(),
    };
    if !is_answer {
        return Err(NoAnswer::Response(Box::new(response)));
    }
    let status = response.status;
    let body = whole_body::read(response.body, LONGEST_ANSWER).await;
    let body = body.ok_or_else(|| {
        NoAnswer::unreadable(format_args!("it is cut off, or longer than {LONGEST_ANSWER} bytes"))
    })?;
    match &hub.rpc {
        Some(rpc) => rpc.read(order, status, &body),
        None => serde_json::from_slice(&body).map_err(NoAnswer::unreadable),
    }
}

/// Asks the app, again if there was no answer. `repeatable`: also if the question may have had an effect.
///
/// # Errors
/// The reason why there is no answer.
pub(super) async fn ask_again(
    hub: &SharedHub,
    app: &App,
    template: &Request,
    order: &HubOrder<'_>,
    repeatable: bool,
) -> Result<HubAnswer, String> {
    let mut attempt = 1;
    loop {
        let why = match ask(hub, app, template, order, None).await {
            Ok(answer) => return Ok(answer),
            Err(NoAnswer::Failed(why)) => why,
            Err(NoAnswer::Response(response)) => {
                let failure = response.failure.as_deref();
                let again = failure.is_some_and(|failure| repeatable || failure.retry.is_some());
                if again && attempt < ATTEMPTS {
                    attempt += 1;
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                let reason = failure.map_or(String::new(), |failure| format!(": {}", failure.reason));
                format!("the app responds with status {}{reason}", response.status)
            }
        };
        count(&hub.counts.failed_calls);
        return Err(format!("hub: {}: {why}", order.command));
    }
}
