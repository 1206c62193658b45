//! Messages as Server-Sent Events (HTML Standard, section 9.2) and as parts of the JSON of long polling.
//!
//! Contract:
//! 1. The data of an event is the text of a message that is a JSON string, so Turbo Streams arrive as HTML, and the JSON of any other
//!    message. A carriage return in it arrives as a line feed, because the format ends lines by both.
//! 2. An event of members has the type `presence`, and its data is the JSON of the event.
//! 3. Nothing in a message can begin another field or event.

use crate::presence_event::event_of;
use crate::streams::StreamMessage;
use bytes::Bytes;
use serde_json::json;
use std::borrow::Cow;

/// The message with which Turbo 8 loads its page again.
pub const TURBO_REFRESH: &str = "<turbo-stream action=\"refresh\"></turbo-stream>";

/// A comment, as a sign of life.
pub const PING: &str = ":\n\n";

/// Returns the first bytes of a body: the time in milliseconds until a client connects again, and the id at which it begins.
pub fn resuming(retry: u64, id: &str) -> Bytes {
    format!("retry: {retry}\nid: {id}\n\n").into()
}

/// Returns the time in milliseconds until a client connects again, where it was: a whole body, or the beginning of one.
pub fn closing(retry: u64) -> Bytes {
    format!("retry: {retry}\n\n").into()
}

/// Returns an event. Without a type it is a `message` to the page.
pub fn event(id: &str, kind: Option<&str>, data: &str) -> Bytes {
    let mut text = String::with_capacity(data.len() + id.len() + 32);
    field(&mut text, "id", id);
    if let Some(kind) = kind {
        field(&mut text, "event", kind);
    }
    for line in lines(data) {
        field(&mut text, "data", line);
    }
    text.push('\n');
    text.into()
}

/// Returns the event that says that messages are missing, so the page should load its contents again.
pub fn reset(id: &str) -> Bytes {
    event(id, Some("reset"), "{\"reason\":\"some messages are no longer kept\"}")
}

/// Returns the data of a message.
pub fn data(payload: &str) -> Cow<'_, str> {
    if payload.trim_ascii_start().starts_with('"')
        && let Ok(text) = serde_json::from_str::<String>(payload)
    {
        return Cow::Owned(text);
    }
    Cow::Borrowed(payload)
}

/// Returns the event of a message, with the id after it.
pub fn of_message(message: &StreamMessage, id: &str) -> Bytes {
    let (_, payload) = message.parts();
    match event_of(payload) {
        Some(presence) => event(id, Some("presence"), presence),
        None => event(id, None, &data(payload)),
    }
}

/// Returns a message as an object of JSON.
pub fn object(message: &StreamMessage) -> Bytes {
    let (stream, offset) = (json!(&*message.stream), message.offset);
    let (_, payload) = message.parts();
    let (kind, data) = match event_of(payload) {
        Some(presence) => ("\"type\":\"presence\",", presence),
        None => ("", payload),
    };
    format!("{{\"stream\":{stream},\"offset\":{offset},{kind}\"data\":{data}}}").into()
}

fn field(text: &mut String, name: &str, value: &str) {
    text.push_str(name);
    text.push_str(": ");
    text.push_str(value);
    text.push('\n');
}

/// Divides a text at each end of a line that the format knows.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let whole = rest?;
        let Some(end) = whole.find(['\r', '\n']) else {
            rest = None;
            return Some(whole);
        };
        let (line, behind) = whole.split_at(end);
        rest = Some(behind.strip_prefix("\r\n").unwrap_or(&behind[1..]));
        Some(line)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An event as a browser sees it: id, type, data.
    pub(crate) type SeenEvent = (String, String, String);

    /// Reads a body by the rules of the HTML Standard, section 9.2.6.
    pub(crate) fn seen(body: &str) -> Vec<SeenEvent> {
        let (mut events, mut id, mut kind, mut data) =
            (Vec::new(), String::new(), String::new(), String::new());
        let body = body.replace("\r\n", "\n").replace('\r', "\n");
        for line in body.split('\n') {
            if line.is_empty() {
                if !data.is_empty() {
                    data.pop();
                    let kind = if kind.is_empty() { "message".to_owned() } else { kind.clone() };
                    events.push((id.clone(), kind, data.clone()));
                }
                kind.clear();
                data.clear();
                continue;
            }
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "id" => id = value.to_owned(),
                "event" => kind = value.to_owned(),
                "data" => data += &format!("{value}\n"),
                _ => {}
            }
        }
        events
    }

    fn one(data: &str) -> SeenEvent {
        let body = event("e:00000000:1", None, data);
        let mut all = seen(std::str::from_utf8(&body).unwrap());
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    #[test]
    fn data_arrives_as_it_was_sent() {
        for text in
            ["", "x", " x", "a\nb", "\n", "a\n\nid: 7\n\n", "data: y", ":", "<turbo-stream>\n</turbo-stream>"]
        {
            assert_eq!(
                one(text),
                ("e:00000000:1".to_owned(), "message".to_owned(), text.to_owned()),
                "{text:?}"
            );
        }
        assert_eq!(one("a\r\nb\rc").2, "a\nb\nc");
    }

    #[test]
    fn a_string_is_sent_as_its_text() {
        assert_eq!(data("\"<p>\\u00e4</p>\""), "<p>\u{e4}</p>");
        assert_eq!(data(" \"x\""), "x");
        for json in ["{\"a\":1}", "[\"x\"]", "1", "null"] {
            assert_eq!(data(json), json);
        }
    }

    #[test]
    fn a_body_begins_with_its_place_and_no_event() {
        let body = resuming(2_000, "e:00000000:1");
        assert_eq!(&body[..], b"retry: 2000\nid: e:00000000:1\n\n");
        assert_eq!(&closing(2_000)[..], b"retry: 2000\n\n");
        assert_eq!(seen(PING), []);
        let reset = seen(std::str::from_utf8(&reset("i")).unwrap());
        assert_eq!((&*reset[0].0, &*reset[0].1), ("i", "reset"));
        assert!(serde_json::from_str::<serde_json::Value>(&reset[0].2).is_ok());
    }

    #[test]
    fn objects_are_json() {
        let message = StreamMessage {
            stream: "a \"b\"".into(),
            offset: 3,
            at: 0,
            number: 0,
            epoch: "e".into(),
            payload: "{\"said\": 1}".into(),
        };
        let read: serde_json::Value = serde_json::from_slice(&object(&message)).unwrap();
        assert_eq!(read, json!({ "stream": "a \"b\"", "offset": 3, "data": { "said": 1 } }));
    }

    #[test]
    fn events_of_members_have_a_type() {
        let message = StreamMessage {
            stream: "room".into(),
            offset: 3,
            at: 0,
            number: 0,
            epoch: "e".into(),
            payload: crate::presence_event::left("7").into(),
        };
        let event = json!({ "type": "leave", "id": "7" });
        let read: serde_json::Value = serde_json::from_slice(&object(&message)).unwrap();
        assert_eq!(read, json!({ "stream": "room", "offset": 3, "type": "presence", "data": event }));
        let events = seen(std::str::from_utf8(&of_message(&message, "e:1")).unwrap());
        assert_eq!(
            events,
            [("e:1".to_owned(), "presence".to_owned(), "{\"type\":\"leave\",\"id\":\"7\"}".to_owned())]
        );
    }

    proptest! {
        #[test]
        fn no_text_begins_an_event(text in "[a-d:\r\n ]{0,40}") {
            prop_assert_eq!(one(&text).2, text.replace("\r\n", "\n").replace('\r', "\n"));
        }
    }
}
