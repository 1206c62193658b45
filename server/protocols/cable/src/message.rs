//! Messages to clients, each as a complete WebSocket frame.

use crate::command::CableProtocol;
use crate::frame;
use crate::presence_event::event_of;
use crate::streams::StreamMessage;
use bytes::Bytes;
use serde_json::json;

/// The first message on a connection.
pub fn welcome(protocol: CableProtocol, session: &str) -> Bytes {
    whole(&match protocol {
        CableProtocol::Basic => json!({ "type": "welcome" }),
        CableProtocol::Extended => json!({ "type": "welcome", "sid": session }),
    })
}

/// A sign of life. `now`: seconds since 1970.
pub fn ping(now: u64) -> Bytes {
    whole(&json!({ "type": "ping", "message": now }))
}

/// The server ends the connection. `reconnect`: whether the client should connect again.
pub fn disconnect(reason: &str, reconnect: bool) -> Bytes {
    frame::text(disconnect_text(reason, reconnect).as_bytes())
}

/// The same as a text.
pub fn disconnect_text(reason: &str, reconnect: bool) -> String {
    json!({ "type": "disconnect", "reason": reason, "reconnect": reconnect }).to_string()
}

/// A subscription is in force.
pub fn confirmation(identifier: &str) -> Bytes {
    whole(&json!({ "type": "confirm_subscription", "identifier": identifier }))
}

/// A subscription was refused.
pub fn rejection(identifier: &str) -> Bytes {
    whole(&json!({ "type": "reject_subscription", "identifier": identifier }))
}

/// All missed messages of a subscription have been sent (`complete`), or some are no longer kept.
pub fn history(identifier: &str, complete: bool) -> Bytes {
    let kind = if complete { "confirm_history" } else { "reject_history" };
    whole(&json!({ "type": kind, "identifier": identifier }))
}

/// A message of a stream. Its payload is JSON and is copied as it is; that of an event of members has a type of its own.
pub fn streamed(identifier: &str, message: &StreamMessage, protocol: CableProtocol) -> Bytes {
    let (_, payload) = message.parts();
    let mut text = String::with_capacity(identifier.len() + payload.len() + 112);
    text.push_str("{\"identifier\":");
    text.push_str(&json!(identifier).to_string());
    let event = event_of(payload);
    if event.is_some() {
        text.push_str(",\"type\":\"presence\"");
    }
    text.push_str(",\"message\":");
    text.push_str(event.unwrap_or(payload));
    if protocol == CableProtocol::Extended {
        push_place(&mut text, &message.stream, &message.epoch, message.offset);
    }
    text.push('}');
    frame::text(text.as_bytes())
}

/// A whisper, which has no place in its stream. Its message is JSON and is copied as it is.
pub fn whispered(identifier: &str, message: &str) -> Bytes {
    frame::text(format!("{{\"identifier\":{},\"message\":{message}}}", json!(identifier)).as_bytes())
}

fn push_place(text: &mut String, stream: &str, epoch: &str, offset: u64) {
    text.push_str(&format!(
        ",\"stream_id\":{},\"epoch\":{},\"offset\":{offset}",
        json!(stream),
        json!(epoch)
    ));
}

/// The members of a stream, as they are after the message at an offset.
#[derive(Debug, Clone, Copy)]
pub struct PresenceState<'a> {
    pub stream: &'a str,
    pub epoch: &'a str,
    pub offset: u64,
    pub total: usize,
}

/// The answer to a question for members, each with id and info, or only for their number.
pub fn presence<'a>(
    identifier: &str,
    state: &PresenceState<'_>,
    members: Option<impl Iterator<Item = (&'a str, &'a str)>>,
) -> Bytes {
    let identifier = json!(identifier);
    let mut text = format!(
        "{{\"identifier\":{identifier},\"type\":\"presence\",\"message\":{{\"type\":\"info\",\"total\":{}",
        state.total
    );
    if let Some(members) = members {
        text.push_str(",\"records\":[");
        for (at, (id, info)) in members.enumerate() {
            let comma = if at > 0 { "," } else { "" };
            text.push_str(&format!("{comma}{{\"id\":{},\"info\":{info}}}", json!(id)));
        }
        text.push(']');
    }
    text.push('}');
    push_place(&mut text, state.stream, state.epoch, state.offset);
    text.push('}');
    frame::text(text.as_bytes())
}

/// A command about members was refused.
pub fn presence_error(identifier: &str, reason: &str) -> Bytes {
    let message = json!({ "type": "error", "reason": reason });
    whole(&json!({ "type": "presence", "identifier": identifier, "message": message }))
}

fn whole(message: &serde_json::Value) -> Bytes {
    frame::text(message.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_extended_messages_have_a_position() {
        let message = StreamMessage {
            stream: "a \"b\"".into(),
            epoch: "e1".into(),
            offset: 3,
            at: 0,
            number: 0,
            payload: "{\"said\": \"x\"}".into(),
        };
        let read = |protocol| -> serde_json::Value {
            serde_json::from_slice(&streamed("{}", &message, protocol)[2..]).unwrap()
        };
        assert_eq!(read(CableProtocol::Basic), json!({ "identifier": "{}", "message": { "said": "x" } }));
        let expected = json!({
            "identifier": "{}", "message": { "said": "x" }, "stream_id": "a \"b\"", "epoch": "e1", "offset": 3
        });
        assert_eq!(read(CableProtocol::Extended), expected);
    }
    #[test]
    fn events_of_members_have_a_type() {
        let message = StreamMessage {
            stream: "room".into(),
            epoch: "e1".into(),
            offset: 3,
            at: 0,
            number: 0,
            payload: crate::presence_event::joined("7", "{\"name\":\"Ann\"}").into(),
        };
        let read = |frame: &[u8]| -> serde_json::Value {
            let header = if frame[1] == 126 { 4 } else { 2 };
            serde_json::from_slice(&frame[header..]).unwrap()
        };
        let event = json!({ "type": "join", "id": "7", "info": { "name": "Ann" } });
        let expected = json!({ "identifier": "{}", "type": "presence", "message": event });
        assert_eq!(read(&streamed("{}", &message, CableProtocol::Basic)), expected);
        let state = PresenceState { stream: "room", epoch: "e1", offset: 3, total: 2 };
        let members = [("7", "{}"), ("8", "\"x\"")];
        let records = json!([{ "id": "7", "info": {} }, { "id": "8", "info": "x" }]);
        let expected = json!({
            "identifier": "{}", "type": "presence", "message": { "type": "info", "total": 2, "records": records },
            "stream_id": "room", "epoch": "e1", "offset": 3
        });
        assert_eq!(read(&presence("{}", &state, Some(members.into_iter()))), expected);
        let short = read(&presence("{}", &state, None::<std::iter::Empty<_>>));
        assert_eq!(short["message"], json!({ "type": "info", "total": 2 }));
        let refused = json!({ "type": "error", "reason": "no" });
        assert_eq!(read(&presence_error("{}", "no"))["message"], refused);
    }
}
