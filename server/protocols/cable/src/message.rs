//! Messages to clients, each as a complete WebSocket frame.

use crate::command::CableProtocol;
use crate::frame;
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
    whole(&json!({ "type": "disconnect", "reason": reason, "reconnect": reconnect }))
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

/// A message of a stream. Its payload is JSON and is copied as it is.
pub fn streamed(identifier: &str, message: &StreamMessage, protocol: CableProtocol) -> Bytes {
    let mut text = String::with_capacity(identifier.len() + message.payload.len() + 96);
    text.push_str("{\"identifier\":");
    text.push_str(&json!(identifier).to_string());
    text.push_str(",\"message\":");
    text.push_str(&message.payload);
    if protocol == CableProtocol::Extended {
        text.push_str(",\"stream_id\":");
        text.push_str(&json!(&*message.stream).to_string());
        text.push_str(&format!(",\"epoch\":{},\"offset\":{}", json!(&*message.epoch), message.offset));
    }
    text.push('}');
    frame::text(text.as_bytes())
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
}
