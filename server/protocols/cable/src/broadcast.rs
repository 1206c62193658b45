//! The messages that publishers send in AnyCable's form: as JSON, over HTTP or the local socket ([`crate::publication`]):
//!
//! ```text
//! {"stream": "room", "data": "{\"said\":\"a\"}"}          or an array of them
//! {"command": "disconnect", "payload": {"identifier": "…", "reconnect": true}}
//!
//! BROADCAST <bytes of the JSON>\n<JSON>
//! OK <number of messages>\n          or          ERROR <text>\n
//! ```
//!
//! Contract:
//! 1. All is read before the first message is published: JSON that is wrong in one place has no effect.
//! 2. `data` is a text. If that is JSON, clients get it as it is; otherwise as a JSON string. Other values than texts are taken as JSON.
//! 3. A message with `meta.exclude_socket` has the mark of this client ([`crate::exclusion`]). A name that is no client's of this server excludes none.
//! 4. `disconnect` becomes a message on the stream of the connections with these identifiers ([`end_stream`]).

use crate::exclusion::{excluding, session_of};
use crate::publication::{LONGEST_PAYLOAD, check, question_line};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The word that the line on the local socket begins with.
const WORD: &str = "BROADCAST";
/// The most bytes of the JSON: several messages fit, and a text in JSON can be longer than the text.
pub const LONGEST: usize = 8 * LONGEST_PAYLOAD;
/// The most messages.
const MOST: usize = 10_000;

/// A message to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broadcast {
    pub stream: String,
    /// JSON, with the mark of a client that does not get it.
    pub payload: String,
}

/// One of the publisher's objects.
#[derive(Deserialize)]
struct BroadcastEntry<'a> {
    stream: Option<String>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    meta: Option<Meta>,
    command: Option<String>,
    payload: Option<RemoteEnd>,
}

#[derive(Deserialize)]
struct Meta {
    exclude_socket: Option<Value>,
}

/// The connections that are to end.
#[derive(Deserialize)]
struct RemoteEnd {
    identifier: String,
    #[serde(default = "yes")]
    reconnect: bool,
}

fn yes() -> bool {
    true
}

/// Returns the name of the stream on which connections with these identifiers are ended.
pub fn end_stream(identifiers: &str) -> String {
    format!("anycable/connections/{identifiers}")
}

/// Reads the publisher's JSON.
///
/// # Errors
/// It is not JSON, or not in this form, or too long. The text is for the publisher.
pub fn parse(json: &[u8]) -> Result<Vec<Broadcast>, String> {
    let expected =
        "expected an object with stream and data, or with command and payload, or an array of such objects";
    if json.len() > LONGEST {
        return Err(format!("a broadcast has at most {LONGEST} bytes"));
    }
    let is_array = json.trim_ascii_start().first() == Some(&b'[');
    let given: Vec<BroadcastEntry<'_>> = match is_array {
        true => serde_json::from_slice(json),
        false => serde_json::from_slice(json).map(|one| vec![one]),
    }
    .map_err(|error| format!("{expected}; found {error}"))?;
    if given.len() > MOST {
        return Err(format!("a broadcast has at most {MOST} messages; this has {}", given.len()));
    }
    given.into_iter().map(|one| one.read().and_then(|one| one.ok_or_else(|| expected.to_owned()))).collect()
}

impl BroadcastEntry<'_> {
    /// Returns the message; `None` if parts are missing.
    fn read(self) -> Result<Option<Broadcast>, String> {
        let broadcast = match (self.command.as_deref(), self.payload, self.stream, self.data) {
            (Some("disconnect"), Some(end), ..) => {
                let reconnect = end.reconnect;
                let payload = format!("{{\"type\":\"disconnect\",\"reconnect\":{reconnect}}}");
                Broadcast { stream: end_stream(&end.identifier), payload }
            }
            (Some("disconnect") | None, None, None, _) | (None, None, _, None) => return Ok(None),
            (Some(command), ..) => {
                return Err(format!("the command {command:?} is none; expected disconnect"));
            }
            (None, _, Some(stream), Some(data)) => {
                let payload = payload_of(data);
                check(&stream, &payload)?;
                let excluded = self.meta.and_then(|meta| session_of(meta.exclude_socket?.as_str()?));
                return Ok(Some(match excluded {
                    Some(session) => Broadcast { stream, payload: excluding(session, &payload) },
                    None => Broadcast { stream, payload },
                }));
            }
            (None, Some(_), ..) => return Ok(None),
        };
        check(&broadcast.stream, &broadcast.payload)?;
        Ok(Some(broadcast))
    }
}

/// Returns what clients get.
fn payload_of(data: &RawValue) -> String {
    let Ok(text) = serde_json::from_str::<String>(data.get()) else { return data.get().to_owned() };
    match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
        Ok(_) => text,
        Err(_) => data.get().to_owned(),
    }
}

/// The first line of a broadcast on the local socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BroadcastHead {
    line: usize,
    json: usize,
}

impl BroadcastHead {
    /// Reads the first line; `None` if it is another command, or not complete.
    ///
    /// # Errors
    /// The line has no length, or one that is too large.
    pub fn parse(bytes: &[u8]) -> Result<Option<BroadcastHead>, String> {
        let read = question_line(bytes, WORD, 1..=LONGEST)?;
        Ok(read.map(|(line, json)| BroadcastHead { line, json }))
    }

    /// Returns the bytes of the whole broadcast.
    pub fn length(&self) -> usize {
        self.line + self.json
    }

    /// Returns the JSON of a complete broadcast that begins with this line.
    pub fn json<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.line..self.length()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(stream: &str, payload: &str) -> Broadcast {
        Broadcast { stream: stream.to_owned(), payload: payload.to_owned() }
    }

    #[test]
    fn messages_are_read() {
        let one = |json: &str| parse(json.as_bytes()).map(|mut all| all.remove(0));
        assert_eq!(one(r#"{"stream":"room","data":"{\"a\":1}"}"#), Ok(message("room", "{\"a\":1}")));
        assert_eq!(one(r#"{"stream":"room","data":"hello \"x\""}"#), Ok(message("room", r#""hello \"x\"""#)));
        assert_eq!(one(r#"{"stream":"room","data":{"a": 1}}"#), Ok(message("room", "{\"a\": 1}")));
        assert_eq!(one(r#"{"stream":"room","data":"\"text\"","meta":{}}"#), Ok(message("room", "\"text\"")));
        let to_others = one(r#"{"stream":"room","data":"1","meta":{"exclude_socket":"00000000000000ff"}}"#);
        assert_eq!(to_others, Ok(message("room", &excluding(255, "1"))));
        for nobody in ["null", "\"\"", "\"abc\"", "7"] {
            let json = format!(r#"{{"stream":"room","data":"1","meta":{{"exclude_socket":{nobody}}}}}"#);
            assert_eq!(one(&json), Ok(message("room", "1")), "{nobody}");
        }
        let all = parse(br#" [{"stream":"a","data":"1"},{"stream":"b","data":"2"}]"#).unwrap();
        assert_eq!(all, [message("a", "1"), message("b", "2")]);
        assert_eq!(parse(b"[]"), Ok(Vec::new()));
        let end =
            one(r#"{"command":"disconnect","payload":{"identifier":"{\"user\":1}","reconnect":false}}"#);
        let payload = r#"{"type":"disconnect","reconnect":false}"#;
        assert_eq!(end, Ok(message("anycable/connections/{\"user\":1}", payload)));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (json, expected) in [
            ("", "expected an object"),
            ("1", "expected an object"),
            ("{}", "expected an object"),
            (r#"{"stream":"a"}"#, "expected an object"),
            (r#"{"data":"a"}"#, "expected an object"),
            (r#"{"command":"disconnect"}"#, "expected an object"),
            (r#"{"payload":{"identifier":"1"}}"#, "expected an object"),
            (r#"{"command":"drop","payload":{"identifier":"1"}}"#, "\"drop\" is none"),
            (r#"{"command":"disconnect","payload":{}}"#, "identifier"),
            (r#"{"stream":"","data":"1"}"#, "not empty"),
            (r#"{"stream":"a","data":"{\"$presence\":{}}"}"#, "events about members"),
            (r#"[{"stream":"a","data":"1"},{"stream":"b"}]"#, "expected an object"),
        ] {
            let error = parse(json.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{json}: {error}");
        }
        let long = format!(r#"{{"stream":"a","data":"{}"}}"#, "x".repeat(LONGEST_PAYLOAD));
        assert!(parse(long.as_bytes()).unwrap_err().contains("at most 4096 bytes and a message 1048576"));
        assert!(parse(&vec![b' '; LONGEST + 1]).unwrap_err().contains("at most"));
        let many = format!("[{}]", vec![r#"{"stream":"a","data":"1"}"#; MOST + 1].join(","));
        assert!(parse(many.as_bytes()).unwrap_err().contains("10000 messages"));
    }

    #[test]
    fn lines_are_read() {
        let head = BroadcastHead::parse(b"BROADCAST 2\n[]PUBLISH").unwrap().unwrap();
        assert_eq!((head.length(), head.json(b"BROADCAST 2\n[]PUBLISH")), (14, &b"[]"[..]));
        assert_eq!(
            (BroadcastHead::parse(b"PUBLISH 1 2\n"), BroadcastHead::parse(b"BROADCAST 2")),
            (Ok(None), Ok(None))
        );
        assert!(BroadcastHead::parse(b"BROADCAST 0\n").unwrap_err().contains("1 to"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            if let Ok(Some(head)) = BroadcastHead::parse(&bytes) && bytes.len() >= head.length() {
                let _ = head.json(&bytes);
            }
        }

        #[test]
        fn each_text_arrives(stream in "[^\u{0}]{1,20}", data in any::<String>()) {
            let json = serde_json::json!({ "stream": stream, "data": data }).to_string();
            let Ok(all) = parse(json.as_bytes()) else { return Ok(()) };
            let is_json = serde_json::from_str::<Value>(&data).is_ok();
            let expected = if is_json { data } else { serde_json::json!(data).to_string() };
            prop_assert_eq!(&all[0].stream, &stream);
            let value = |json: &str| serde_json::from_str::<Value>(json).unwrap();
            prop_assert_eq!(value(&all[0].payload), value(&expected));
        }
    }
}
