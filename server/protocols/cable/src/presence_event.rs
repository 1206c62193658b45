//! The events of members as messages of their stream: `{"$presence":{"type":"join","id":"7","info":{}}}`.
//!
//! Why: as messages they have offsets, are kept and resumed, and reach each kind of listener in order. The key marks them, so that clients
//! get them in a form of their own; publishers of the app cannot use it ([`crate::publication`]).

use serde_json::json;

/// The beginning of the payload.
const OPENING: &str = "{\"$presence\":";

/// Returns the payload of the event that a member has come. `info` is JSON.
pub(crate) fn joined(id: &str, info: &str) -> String {
    format!("{OPENING}{{\"type\":\"join\",\"id\":{},\"info\":{info}}}}}", json!(id))
}

/// Returns the payload of the event that a member has gone.
pub(crate) fn left(id: &str) -> String {
    format!("{OPENING}{{\"type\":\"leave\",\"id\":{}}}}}", json!(id))
}

/// Returns the JSON of the event; `None` for all other messages.
pub fn event_of(payload: &str) -> Option<&str> {
    payload.strip_prefix(OPENING)?.strip_suffix('}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_marked_and_nothing_else_is() {
        let join = event_of(&joined("a \"b\"", "{\"name\":\"Ann\"}")).map(str::to_owned);
        let join: serde_json::Value = serde_json::from_str(&join.unwrap()).unwrap();
        assert_eq!(join, json!({ "type": "join", "id": "a \"b\"", "info": { "name": "Ann" } }));
        assert_eq!(event_of(&left("7")), Some("{\"type\":\"leave\",\"id\":\"7\"}"));
        for other in ["{}", "{\"presence\":{}}", "\"$presence\"", "1", ""] {
            assert_eq!(event_of(other), None, "{other}");
        }
    }
}
