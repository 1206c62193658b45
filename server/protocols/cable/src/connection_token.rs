//! The token by which a client of Action Cable says for whom it connects, as AnyCable's clients show it: in a parameter of the address, in a field, or as
//! a protocol of the WebSocket, for browsers that can set no field and should not have it in addresses.

use crate::event_query::pairs;
use serde_json::{Map, Value};
use text::percent;

/// The beginning of the protocol that is a token.
const PROTOCOL: &[u8] = b"anycable-token.";

/// Returns the first value of a parameter of a query; `None` if it is empty or not percent-encoded UTF-8, too.
pub fn in_query(query: &[u8], name: &[u8]) -> Option<String> {
    let (_, value) = pairs(query).find(|(known, _)| *known == name)?;
    let decoded = percent::decode_strict(value)?;
    String::from_utf8(decoded.into_owned()).ok().filter(|token| !token.is_empty())
}

/// Returns the token among the protocols of a handshake.
pub fn in_protocols(offered: &[u8]) -> Option<String> {
    let token = offered
        .split(|byte| *byte == b',')
        .find_map(|protocol| protocol.trim_ascii().strip_prefix(PROTOCOL))?;
    String::from_utf8(token.to_vec()).ok().filter(|token| !token.is_empty())
}

/// Returns the stream on which Rails ends the connections with these identifiers, a JSON object; `None` if there are none, or one that is no text and no
/// integer, whose name only Ruby knows.
pub fn end_stream(identifiers: &str) -> Option<String> {
    let identifiers: Map<String, Value> = serde_json::from_str(identifiers).ok()?;
    let known = identifiers.into_iter().filter(|(_, value)| !value.is_null());
    let names = known.map(|(_, value)| match value {
        Value::String(text) => Some(text),
        Value::Number(number) if !number.is_f64() => Some(number.to_string()),
        _ => None,
    });
    let mut names: Vec<String> = names.collect::<Option<_>>()?;
    names.sort();
    (!names.is_empty()).then(|| format!("action_cable/{}", names.join(":")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tokens_are_found() {
        for (query, expected) in [
            ("a=1&jid=x.y.z&jid=second", Some("x.y.z")),
            ("jid=x%2Ey", Some("x.y")),
            ("jid=", None),
            ("jid", None),
            ("jid=%f", None),
            ("jid=%ff", None),
            ("xjid=a&JID=b", None),
            ("", None),
        ] {
            assert_eq!(in_query(query.as_bytes(), b"jid").as_deref(), expected, "{query}");
        }
        for (offered, expected) in [
            ("actioncable-v1-json, anycable-token.x.y.z", Some("x.y.z")),
            ("anycable-token.x,actioncable-v1-json", Some("x")),
            ("anycable-token.", None),
            ("actioncable-v1-json", None),
        ] {
            assert_eq!(in_protocols(offered.as_bytes()).as_deref(), expected, "{offered}");
        }
    }

    #[test]
    fn connections_end_on_the_stream_of_rails() {
        for (identifiers, expected) in [
            (r#"{"user":"Z2lk","account":"7","at":3}"#, Some("action_cable/3:7:Z2lk")),
            (r#"{"user":null,"name":"ann"}"#, Some("action_cable/ann")),
            (r#"{"user":null}"#, None),
            ("{}", None),
            (r#"{"user":{"a":1}}"#, None),
            (r#"{"user":1.5}"#, None),
            ("[]", None),
        ] {
            assert_eq!(end_stream(identifiers).as_deref(), expected, "{identifiers}");
        }
    }

    proptest! {
        #[test]
        fn any_handshake_is_safe(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = in_query(&[b"jid=", &*bytes].concat(), b"jid");
            let _ = in_protocols(&[PROTOCOL, &*bytes].concat());
        }
    }
}
