//! Calls to the app in AnyCable's form: RPC over HTTP, as its gem answers it (`hub.rpc`).
//!
//! Why: an app with `anycable-rails` runs its channels by the gem's code. It needs no other adapter of Action Cable, no second server and no
//! process for calls.
//!
//! Contract:
//! 1. A call is a POST to `connect`, `command` or `disconnect` below `hub.rpc`, with the message of AnyCable's `rpc.proto` as JSON, and the token of
//!    `hub.rpc_secret`. The fields of the client's handshake are in the message, so the client can show no token of its own.
//! 2. The state that the gem keeps of a connection (`identifiers`, `cstate`) and of a channel (`istate`) is that of this hub's sessions, so all that is
//!    promised of them holds.
//! 3. `ERROR` on a subscription rejects it, because the gem answers so for a channel that does not exist. Elsewhere it is a failed call.

use super::call::{self, AnsweredPresence, HubAnswer, HubOrder, NoAnswer};
use cable::broadcast::end_stream;
use cable::exclusion::session_text;
use cable::rpc_key::{TokenPurpose, derived};
use handler::Request;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use settings::Settings;
use std::collections::BTreeMap;

/// The key of a channel's state with the stream to which the client may whisper.
const WHISPERS_TO: &str = "$w";
/// The key with the stream in which the client is a member.
const MEMBER_OF: &str = "$p";
/// The part of a refusal that is logged, in bytes.
const SHOWN: usize = 200;

/// Fields of the handshake that are not those of the call itself.
const OF_CLIENT: [&str; 4] = ["authorization", "cookie", "origin", "referer"];
/// The beginning of fields with which AnyCable's server talks to its gem.
const OF_ANYCABLE: &[u8] = b"x-anycable-";

/// The field with the client's session, which is the client that `to_others` of the gem leaves out.
const SESSION: &[u8] = b"X-AnyCable-Meta-Sid";

/// The settings of calls in AnyCable's form.
pub(super) struct RpcCalls {
    /// The path of the gem's endpoint, without a slash at its end.
    path: Box<str>,
    /// The field `Authorization`.
    authorization: Option<Box<str>>,
}

/// The state of a connection.
#[derive(Default, Serialize, Deserialize)]
struct RpcConnection {
    identifiers: String,
    cstate: State,
}

/// Keys and values that the gem keeps of a connection or channel.
type State = BTreeMap<String, String>;

/// `Env` of a call.
#[derive(Serialize)]
struct RpcEnv {
    url: String,
    headers: BTreeMap<String, String>,
    cstate: State,
    istate: State,
}

/// `ConnectionRequest`, `CommandMessage` and `DisconnectRequest`.
#[derive(Serialize)]
#[serde(untagged)]
enum RpcMessage<'a> {
    Connect {
        env: RpcEnv,
    },
    Command {
        command: &'static str,
        identifier: &'a str,
        connection_identifiers: String,
        data: &'a str,
        env: RpcEnv,
    },
    Disconnect {
        identifiers: String,
        subscriptions: Vec<&'a str>,
        env: RpcEnv,
    },
}

/// The response to each of them; parts that a response has not are absent, and JSON of protobuf may leave out or set to null what is empty.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RpcResponse {
    status: Option<RpcStatus>,
    error_msg: Option<String>,
    identifiers: Option<String>,
    transmissions: Option<Vec<String>>,
    env: Option<EnvResponse>,
    disconnect: Option<bool>,
    stop_streams: Option<bool>,
    streams: Option<Vec<String>>,
    stopped_streams: Option<Vec<String>>,
    presence: Option<RpcPresence>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EnvResponse {
    cstate: Option<State>,
    istate: Option<State>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RpcPresence {
    #[serde(rename = "type")]
    kind: String,
    id: String,
    /// JSON in a text.
    info: Option<String>,
}

/// A value of protobuf's enum, by its number or by its name.
#[derive(Deserialize)]
#[serde(untagged)]
enum RpcStatus {
    Number(u32),
    Name(String),
}

/// The outcome of a call.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Outcome {
    Success,
    Failure,
    Error,
}

impl RpcCalls {
    /// Returns the form of calls; `None` if they have the hub's own.
    pub(super) fn new(settings: &Settings) -> Option<RpcCalls> {
        let hub = &settings.hub;
        let path = hub.rpc.as_deref()?.trim_end_matches('/').into();
        let token = hub.rpc_secret.clone();
        let token = token.or_else(|| hub.secret.as_ref().map(|secret| derived(secret, TokenPurpose::Call)));
        Some(RpcCalls { path, authorization: token.map(|token| format!("Bearer {token}").into()) })
    }

    /// Returns the state of a connection with these identifiers that the gem has not been asked about, and the stream on which it ends such ones.
    pub(super) fn connection(identifiers: String) -> (String, Option<String>) {
        let stream = end_stream(&identifiers);
        let connection = RpcConnection { identifiers, cstate: State::default() };
        // Texts can always be written.
        (serde_json::to_string(&connection).unwrap_or_default(), Some(stream))
    }

    /// Returns the request of a call without its body.
    pub(super) fn request(&self, template: &Request, order: &HubOrder<'_>) -> Request {
        let target = format!("{}/{}", self.path, method_of(order.command));
        let is_kept = |(name, _): &(&[u8], &[u8])| {
            let is_anycables =
                name.get(..OF_ANYCABLE.len()).is_some_and(|name| name.eq_ignore_ascii_case(OF_ANYCABLE));
            !is_anycables && !OF_CLIENT.iter().any(|one| name.eq_ignore_ascii_case(one.as_bytes()))
        };
        let fields = template.fields.iter().filter(is_kept);
        let (path, query) = (target.as_bytes(), &target.as_bytes()[target.len()..]);
        let peer = template.peer.clone();
        let mut request = call::template_of(path, path, query, template.authority(), fields, peer);
        (request.https, request.variables) = (template.https, template.variables.clone());
        request.fields.push(SESSION, session_text(order.session).as_bytes());
        if let Some(authorization) = &self.authorization {
            request.fields.push(b"Authorization", authorization.as_bytes());
        }
        request
    }

    /// Returns the body of a call.
    pub(super) fn body(&self, template: &Request, order: &HubOrder<'_>) -> serde_json::Result<Vec<u8>> {
        let connection = connection_of(order)?;
        let mut env = env_of(template);
        env.cstate = connection.cstate;
        let message = match method_of(order.command) {
            "connect" => RpcMessage::Connect { env },
            "disconnect" => {
                // Here each state is JSON in a text.
                let states = order.channels.iter().filter(|(_, state)| !state.is_empty());
                env.istate = states.map(|(name, state)| ((*name).to_owned(), (*state).to_owned())).collect();
                let subscriptions = order.channels.iter().map(|(identifier, _)| *identifier).collect();
                RpcMessage::Disconnect { identifiers: connection.identifiers, subscriptions, env }
            }
            _ => {
                env.istate = channel_of(order)?;
                RpcMessage::Command {
                    command: if order.command == "perform" { "message" } else { order.command },
                    identifier: order.identifier.unwrap_or_default(),
                    connection_identifiers: connection.identifiers,
                    data: order.data.unwrap_or_default(),
                    env,
                }
            }
        };
        serde_json::to_vec(&message)
    }

    /// Returns why a response is none of the gem's; `None` if it may be one.
    fn complaint(&self, status: u16, text: &[u8]) -> Option<String> {
        let shown = String::from_utf8_lossy(&text[..text.len().min(SHOWN)]);
        Some(match status {
            200 => return None,
            401 => "the app refuses the token: hub.rpc_secret has to be http_rpc_secret of AnyCable's gem, or hub.secret its secret".to_owned(),
            404 => format!(
                "the app has no RPC at {}: set http_rpc: true or http_rpc_mount_path in its config/anycable.yml, or correct hub.rpc",
                self.path
            ),
            status => format!("the app responds to the call with status {status}: {}", shown.trim()),
        })
    }

    /// Reads the gem's answer.
    pub(super) fn read(&self, order: &HubOrder<'_>, status: u16, body: &[u8]) -> Result<HubAnswer, NoAnswer> {
        if let Some(complaint) = self.complaint(status, body) {
            return Err(NoAnswer::Failed(complaint));
        }
        let unreadable = NoAnswer::unreadable::<serde_json::Error>;
        let response: RpcResponse = serde_json::from_slice(body).map_err(unreadable)?;
        let outcome = response.outcome();
        let (is_connecting, is_subscribing) = (order.command == "connect", order.command == "subscribe");
        if outcome == Outcome::Error && !is_subscribing {
            return Err(NoAnswer::Failed(format!("the app reports an error: {}", response.error())));
        }
        let error = (outcome == Outcome::Error).then(|| response.error().to_owned());
        let env = response.env.unwrap_or_default();
        let mut connection = connection_of(order).map_err(unreadable)?;
        if let Some(identifiers) = response.identifiers.filter(|_| is_connecting) {
            connection.identifiers = identifiers;
        }
        let is_changed = is_connecting || env.cstate.as_ref().is_some_and(|state| !state.is_empty());
        connection.cstate.extend(env.cstate.into_iter().flatten());
        let mut answer = HubAnswer {
            transmissions: response.transmissions.unwrap_or_default(),
            stopped_all: response.stop_streams.unwrap_or_default(),
            stopped: response.stopped_streams.unwrap_or_default(),
            streams: response.streams.unwrap_or_default(),
            rejected: is_subscribing && outcome != Outcome::Success,
            closed: response.disconnect.unwrap_or_default() || is_connecting && outcome != Outcome::Success,
            error,
            ..HubAnswer::default()
        };
        if is_connecting && outcome == Outcome::Success {
            // The hub has its own, with the number of the session.
            answer.transmissions.retain(|text| !is_welcome(text));
        }
        if answer.rejected && answer.transmissions.is_empty() {
            answer.transmissions.push(rejection(order.identifier.unwrap_or_default()));
        }
        if is_changed {
            answer.connection = Some(serde_json::to_string(&connection).map_err(unreadable)?.into());
        }
        if is_connecting && !connection.identifiers.is_empty() {
            answer.remote = Some(end_stream(&connection.identifiers).into());
        }
        let istate = env.istate.unwrap_or_default();
        answer.whispers_to = istate.get(WHISPERS_TO).map(|stream| stream.as_str().into());
        if let Some(presence) = response.presence {
            let known = channel_of(order).map_err(unreadable)?;
            let stream = istate.get(MEMBER_OF).or(known.get(MEMBER_OF)).map(|stream| stream.as_str().into());
            answer.presence.extend(presence.change(stream));
        }
        if let Some(state) = changed_channel(order, istate).map_err(unreadable)? {
            answer.channel = Some(state);
        }
        Ok(answer)
    }
}

impl RpcResponse {
    fn outcome(&self) -> Outcome {
        match &self.status {
            Some(RpcStatus::Number(1)) => Outcome::Success,
            Some(RpcStatus::Number(2)) => Outcome::Failure,
            Some(RpcStatus::Name(name)) if name == "SUCCESS" => Outcome::Success,
            Some(RpcStatus::Name(name)) if name == "FAILURE" => Outcome::Failure,
            // JSON of protobuf may leave out a field with the value 0, which is ERROR.
            _ => Outcome::Error,
        }
    }

    fn error(&self) -> &str {
        self.error_msg.as_deref().filter(|text| !text.is_empty()).unwrap_or("without a text")
    }
}

impl RpcPresence {
    /// Returns the change of the members of a stream; `None` for one that is not known.
    fn change(self, stream: Option<Box<str>>) -> Option<AnsweredPresence> {
        let info = match &*self.kind {
            "join" => Some(match self.info.filter(|info| !info.is_empty()) {
                None => Value::Object(serde_json::Map::new()),
                Some(info) => serde_json::from_str(&info).unwrap_or(Value::String(info)),
            }),
            "leave" => None,
            _ => return None,
        };
        Some(AnsweredPresence { stream, id: Some(self.id.into()), info })
    }
}

fn is_welcome(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|message| message["type"] == "welcome")
}

/// Returns Action Cable's message about a rejected subscription, which the gem sends only if the channel has rejected it.
fn rejection(identifier: &str) -> String {
    serde_json::json!({ "identifier": identifier, "type": "reject_subscription" }).to_string()
}

/// Returns the gem's method for a command.
fn method_of(command: &str) -> &str {
    match command {
        "connect" | "disconnect" => command,
        _ => "command",
    }
}

fn connection_of(order: &HubOrder<'_>) -> serde_json::Result<RpcConnection> {
    if order.connection.is_empty() {
        Ok(RpcConnection::default())
    } else {
        serde_json::from_str(order.connection)
    }
}

/// Returns the state of the channel that is concerned.
fn channel_of(order: &HubOrder<'_>) -> serde_json::Result<State> {
    let state = order.channels.first().map_or("", |(_, state)| *state);
    if state.is_empty() { Ok(State::default()) } else { serde_json::from_str(state) }
}

/// Returns the new state of the channel; `None` if it is as before. Each subscription gets one, by which it is known to be the app's.
fn changed_channel(order: &HubOrder<'_>, changes: State) -> serde_json::Result<Option<Box<str>>> {
    if changes.is_empty() && order.command != "subscribe" {
        return Ok(None);
    }
    let mut state = channel_of(order)?;
    state.extend(changes);
    serde_json::to_string(&state).map(|state| Some(state.into()))
}

/// Returns the client's handshake as the gem expects it.
fn env_of(template: &Request) -> RpcEnv {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let scheme = if template.https { "https" } else { "http" };
    let (authority, path, query) =
        (text(template.authority()), text(template.path()), text(template.query()));
    let mark = if query.is_empty() { "" } else { "?" };
    let mut headers = BTreeMap::new();
    for (name, value) in template.fields.iter() {
        let name = text(name).to_ascii_lowercase();
        if name.as_bytes().starts_with(OF_ANYCABLE) {
            continue;
        }
        // RFC 9110, section 5.3, and RFC 9113, section 8.2.3.
        let between = if name == "cookie" { "; " } else { ", " };
        let all: &mut String = headers.entry(name).or_default();
        if !all.is_empty() {
            all.push_str(between);
        }
        all.push_str(&text(value));
    }
    headers.entry("host".to_owned()).or_insert_with(|| authority.clone());
    // The gem's name for it. No field of a client has capitals here.
    headers.insert("REMOTE_ADDR".to_owned(), template.peer.remote_text.to_string());
    let url = format!("{scheme}://{authority}{path}{mark}{query}");
    RpcEnv { url, headers, cstate: State::default(), istate: State::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler::Variable;

    fn calls() -> RpcCalls {
        RpcCalls { path: "/_anycable".into(), authorization: Some("Bearer abc".into()) }
    }

    fn order<'a>(command: &'static str, connection: &'a str, channel: &'a str) -> HubOrder<'a> {
        let (identifier, channels) = match method_of(command) {
            "command" => (Some("{\"channel\":\"A\"}"), vec![("{\"channel\":\"A\"}", channel)]),
            _ => (None, Vec::new()),
        };
        let data = (command == "perform").then_some("{\"action\":\"say\"}");
        HubOrder { command, session: 255, identifier, data, connection, channels }
    }

    fn template() -> Request {
        let fields: [(&[u8], &[u8]); 7] = [
            (b"Host", b"shop.example"),
            (b"Cookie", b"a=1"),
            (b"Cookie", b"b=2"),
            (b"Authorization", b"Bearer forged"),
            (b"X-AnyCable-Meta-Sid", b"forged"),
            (b"Remote_Addr", b"forged"),
            (b"X-Forwarded-Proto", b"https"),
        ];
        let peer = std::rc::Rc::new(handler::testing::peer());
        let target = b"/cable?token=1";
        call::template_of(target, &target[..6], &target[7..], b"shop.example", fields.into_iter(), peer)
    }

    fn value(bytes: &[u8]) -> Value {
        serde_json::from_slice(bytes).unwrap()
    }

    #[test]
    fn calls_have_the_form_of_the_protocol() {
        let (calls, template) = (calls(), template());
        let connect = order("connect", "", "");
        let request = calls.request(&template, &connect);
        assert_eq!(
            (request.method(), request.path(), request.query()),
            (&b"POST"[..], &b"/_anycable/connect"[..], &b""[..])
        );
        let names: Vec<_> =
            request.fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        let expected: [(&[u8], &[u8]); 5] = [
            (b"Host", b"shop.example"),
            (b"Remote_Addr", b"forged"),
            (b"X-Forwarded-Proto", b"https"),
            (SESSION, b"00000000000000ff"),
            (b"Authorization", b"Bearer abc"),
        ];
        assert_eq!(names, expected.map(|(name, value)| (name.to_vec(), value.to_vec())));
        assert_eq!(request.variables, Vec::<Variable>::new());
        let body = value(&calls.body(&template, &connect).unwrap());
        assert_eq!(body["env"]["url"], "http://shop.example/cable?token=1");
        assert_eq!(body["env"]["headers"]["cookie"], "a=1; b=2");
        assert_eq!(body["env"]["headers"]["authorization"], "Bearer forged");
        assert_eq!(body["env"]["headers"]["REMOTE_ADDR"], "192.0.2.1");
        assert_eq!(body["env"]["headers"].get("x-anycable-meta-sid"), None);
        let kept = r#"{"identifiers":"{\"user\":1}","cstate":{"_s_":"x"}}"#;
        let perform = order("perform", kept, r#"{"room":"7"}"#);
        assert_eq!(calls.request(&template, &perform).path(), b"/_anycable/command");
        let body = value(&calls.body(&template, &perform).unwrap());
        assert_eq!((&body["command"], &body["data"]), (&"message".into(), &r#"{"action":"say"}"#.into()));
        assert_eq!(body["connection_identifiers"], r#"{"user":1}"#);
        assert_eq!(
            (&body["env"]["cstate"]["_s_"], &body["env"]["istate"]["room"]),
            (&"x".into(), &"7".into())
        );
        let mut end = order("disconnect", kept, "");
        end.channels = vec![("one", r#"{"room":"7"}"#), ("two", "")];
        let body = value(&calls.body(&template, &end).unwrap());
        assert_eq!(body["subscriptions"], serde_json::json!(["one", "two"]));
        assert_eq!(body["env"]["istate"], serde_json::json!({ "one": r#"{"room":"7"}"# }));
        assert_eq!(body["identifiers"], r#"{"user":1}"#);
    }

    fn read(order: &HubOrder<'_>, body: Value) -> Result<HubAnswer, String> {
        calls().read(order, 200, body.to_string().as_bytes()).map_err(|why| match why {
            NoAnswer::Failed(why) => why,
            NoAnswer::Response(_) => "a response".to_owned(),
        })
    }

    #[test]
    fn connections_are_read() {
        let connect = order("connect", "", "");
        let body = serde_json::json!({ "status": 1, "identifiers": "{\"user\":1}", "transmissions": ["{\"type\":\"welcome\"}", "{\"n\":1}"], "error_msg": "",
            "env": { "cstate": { "a": "1" }, "istate": {} } });
        let answer = read(&connect, body).unwrap();
        assert_eq!(
            value(answer.connection.unwrap().as_bytes()),
            serde_json::json!({ "identifiers": "{\"user\":1}", "cstate": { "a": "1" } })
        );
        assert_eq!(answer.remote.as_deref(), Some("anycable/connections/{\"user\":1}"));
        assert_eq!((answer.transmissions, answer.closed), (vec!["{\"n\":1}".to_owned()], false));
        let refused =
            read(&connect, serde_json::json!({ "status": "FAILURE", "transmissions": ["x"], "env": null }))
                .unwrap();
        assert!(refused.closed && refused.remote.is_none());
        let error = read(&connect, serde_json::json!({ "error_msg": "no database" })).unwrap_err();
        assert!(error.contains("no database"), "{error}");
    }

    #[test]
    fn commands_are_read() {
        let kept = r#"{"identifiers":"i","cstate":{"a":"1"}}"#;
        let subscribe = order("subscribe", kept, "");
        let body = serde_json::json!({ "status": 1, "streams": ["room"], "env": { "istate": { "x": "1" } },
            "presence": { "type": "join", "id": "7", "info": "{\"name\":\"Ann\"}" } });
        let answer = read(&subscribe, body).unwrap();
        assert!(!answer.rejected && answer.connection.is_none() && answer.remote.is_none());
        assert_eq!(
            (answer.channel.as_deref(), answer.streams),
            (Some(r#"{"x":"1"}"#), vec!["room".to_owned()])
        );
        assert_eq!(answer.presence[0].info, Some(serde_json::json!({ "name": "Ann" })));
        let plain = read(&subscribe, serde_json::json!({ "status": 1 })).unwrap();
        assert_eq!(plain.channel.as_deref(), Some("{}"));
        assert!(read(&subscribe, serde_json::json!({ "status": 2 })).unwrap().rejected);
        let unknown =
            read(&subscribe, serde_json::json!({ "status": 0, "error_msg": "Channel not found: B" }))
                .unwrap();
        assert_eq!(value(unknown.transmissions[0].as_bytes())["type"], "reject_subscription");
        assert!(unknown.rejected && unknown.error.as_deref() == Some("Channel not found: B"));
        let perform = order("perform", kept, r#"{"x":"1","y":"2"}"#);
        let body = serde_json::json!({ "status": 1, "stop_streams": true, "streams": ["b"], "stopped_streams": ["a"], "disconnect": true,
            "env": { "cstate": { "b": "2" }, "istate": { "x": "3", "$w": "b" } }, "presence": { "type": "leave", "id": "7" } });
        let answer = read(&perform, body).unwrap();
        assert!(answer.stopped_all && answer.closed);
        assert_eq!(answer.channel.as_deref(), Some(r#"{"$w":"b","x":"3","y":"2"}"#));
        assert_eq!(answer.whispers_to.as_deref(), Some("b"));
        assert_eq!(
            value(answer.connection.unwrap().as_bytes())["cstate"],
            serde_json::json!({ "a": "1", "b": "2" })
        );
        assert_eq!((answer.presence[0].id.as_deref(), &answer.presence[0].info), (Some("7"), &None));
        let quiet = read(&perform, serde_json::json!({ "status": 2 })).unwrap();
        assert!(!quiet.rejected && quiet.channel.is_none() && quiet.connection.is_none());
        assert!(
            read(&perform, serde_json::json!({ "status": 0, "error_msg": "boom" }))
                .unwrap_err()
                .contains("boom")
        );
        for (status, expected) in
            [(401, "hub.rpc_secret"), (404, "http_rpc_mount_path"), (422, "status 422: no")]
        {
            let Err(NoAnswer::Failed(why)) = calls().read(&perform, status, b"no") else {
                panic!("{status}")
            };
            assert!(why.contains(expected), "{why}");
        }
    }
}
