//! The protocol of the local socket on which processes of the app publish:
//!
//! ```text
//! PUBLISH <bytes of the stream's name> <bytes of the payload>[ <session that does not get it>]\n<name><payload>
//! OK <epoch> <offset>\n          or          ERROR <text>\n
//! ```
//!
//! Contract: the answer comes when the message has its number, so a process that publishes twice sees its messages in order. After an
//! error in the first line the connection ends; other errors concern one message.

use crate::exclusion::{self, SessionId, excluding, session_of};
use crate::presence_event::event_of;
use std::borrow::Cow;
use std::ops::RangeInclusive;

/// The most bytes of a stream's name.
pub const LONGEST_NAME: usize = 4 << 10;
/// The most bytes of a payload.
pub const LONGEST_PAYLOAD: usize = 1 << 20;
/// The most bytes of the first line.
const LONGEST_LINE: usize = 64;

/// Returns where the first line ends; `None` while it is not complete.
///
/// # Errors
/// It is too long.
fn line_end(bytes: &[u8]) -> Result<Option<usize>, String> {
    match bytes.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') {
        None if bytes.len() >= LONGEST_LINE => Err("a line without an end".to_owned()),
        end => Ok(end),
    }
}

/// Reads the first line of a question: its word, and the length of its one part. Returns the bytes of the line and of the part; `None` if it
/// is another command, or not complete.
///
/// # Errors
/// The line has no length, or another than `lengths`, or it is too long.
pub(crate) fn question_line(
    bytes: &[u8],
    word: &str,
    lengths: RangeInclusive<usize>,
) -> Result<Option<(usize, usize)>, String> {
    let Some(rest) = bytes.strip_prefix(word.as_bytes()).and_then(|rest| rest.strip_prefix(b" ")) else {
        return Ok(None);
    };
    let Some(end) = line_end(rest)? else { return Ok(None) };
    let length = std::str::from_utf8(&rest[..end]).ok().and_then(text::digits);
    let length = length.and_then(|length| usize::try_from(length).ok());
    let part = length.filter(|length| lengths.contains(length)).ok_or_else(|| {
        let range = match (lengths.start(), lengths.end()) {
            (0, most) => format!("at most {most}"),
            (least, most) => format!("{least} to {most}"),
        };
        format!("expected {word} and a length of {range}")
    })?;
    Ok(Some((word.len() + 1 + end + 1, part)))
}

/// Reads the name of a stream, whose length is known to be right.
///
/// # Errors
/// It is not UTF-8.
pub(crate) fn name_of(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|_| "a stream's name is UTF-8".to_owned())
}

/// Checks the name of a stream and a message for it.
///
/// # Errors
/// The name is empty, or the payload is not JSON, or looks like an event about members, or one of them is too long.
pub fn check(name: &str, payload: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("a stream's name is UTF-8 and not empty".to_owned());
    }
    check_lengths(name.len(), payload.len())?;
    // Clients get the payload as a part of a JSON text.
    serde_json::from_str::<serde::de::IgnoredAny>(payload)
        .map_err(|error| format!("the message for {name:?} is not JSON: {error}"))?;
    let (key, meaning) = if event_of(payload).is_some() {
        ("$presence", "events about members")
    } else if exclusion::is_marked(payload) {
        ("$except", "messages that one client does not get")
    } else {
        return Ok(());
    };
    Err(format!("the message for {name:?} begins with {key:?}, the key of {meaning}"))
}

fn check_lengths(name: usize, payload: usize) -> Result<(), String> {
    match name > LONGEST_NAME || payload > LONGEST_PAYLOAD {
        true => Err(format!(
            "a stream's name has at most {LONGEST_NAME} bytes and a message {LONGEST_PAYLOAD}; these have {name} and {payload}"
        )),
        false => Ok(()),
    }
}

/// The first line of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicationHead {
    /// The bytes of the line itself, of the name, and of the payload.
    pub line: usize,
    pub name: usize,
    pub payload: usize,
    /// The client that does not get the message.
    pub except: Option<SessionId>,
}

impl PublicationHead {
    /// Reads the first line; `None` while it is not complete.
    ///
    /// # Errors
    /// The line is not one, or the message is too large.
    pub fn parse(bytes: &[u8]) -> Result<Option<PublicationHead>, String> {
        let Some(end) = line_end(bytes)? else { return Ok(None) };
        let wrong = || {
            format!(
                "expected PUBLISH and two lengths, or POSITION, PRESENCE, BROADCAST, LISTEN or UNLISTEN and one; found {:?}",
                bytes[..end].escape_ascii().to_string()
            )
        };
        let line = std::str::from_utf8(&bytes[..end]).map_err(|_| wrong())?;
        let number = |text: Option<&str>| {
            let digits = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            digits.and_then(|digits| digits.parse::<usize>().ok()).ok_or_else(wrong)
        };
        let mut words = line.split(' ');
        if words.next() != Some("PUBLISH") {
            return Err(wrong());
        }
        let (name, payload) = (number(words.next())?, number(words.next())?);
        let except = words.next().map(|text| session_of(text).ok_or_else(wrong)).transpose()?;
        if words.next().is_some() {
            return Err(wrong());
        }
        check_lengths(name, payload)?;
        Ok(Some(PublicationHead { line: end + 1, name, payload, except }))
    }

    /// Returns the bytes of the whole publication.
    pub fn length(&self) -> usize {
        self.line + self.name + self.payload
    }

    /// Returns name and payload of a complete publication that begins with this head. The payload has the mark of the client that does not get it.
    ///
    /// # Errors
    /// The name is empty or not UTF-8, or the payload is not JSON, or begins with a mark.
    pub fn split<'a>(&self, bytes: &'a [u8]) -> Result<(&'a str, Cow<'a, str>), String> {
        let (name, payload) = bytes[self.line..self.length()].split_at(self.name);
        let name = std::str::from_utf8(name).unwrap_or_default();
        let payload =
            std::str::from_utf8(payload).map_err(|error| format!("the message for {name:?}: {error}"))?;
        check(name, payload)?;
        Ok((name, self.except.map_or(Cow::Borrowed(payload), |except| excluding(except, payload).into())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_are_read() {
        let parse = |text: &str| PublicationHead::parse(text.as_bytes());
        let head = PublicationHead { line: 12, name: 4, payload: 2, except: None };
        assert_eq!(parse("PUBLISH 4 2\nroom{}"), Ok(Some(head)));
        assert_eq!(head.split(b"PUBLISH 4 2\nroom{}"), Ok(("room", "{}".into())));
        let text = "PUBLISH 4 2 00000000000000ff\nroom{}";
        let head = parse(text).unwrap().unwrap();
        assert_eq!((head.except, head.length()), (Some(255), text.len()));
        assert_eq!(head.split(text.as_bytes()), Ok(("room", excluding(255, "{}").into())));
        assert_eq!(parse("PUBLISH 4"), Ok(None));
        for wrong in
            ["SUBSCRIBE 4 2\n", "PUBLISH 4\n", "PUBLISH 4 2 1\n", "PUBLISH +4 2\n", "PUBLISH  4 2\n", "\n"]
        {
            assert!(parse(wrong).unwrap_err().contains("PUBLISH and two lengths"), "{wrong}");
        }
        assert!(parse("PUBLISH 4 1048577\n").unwrap_err().contains("at most"));
        assert!(parse(&"x".repeat(64)).is_err());
    }

    #[test]
    fn only_json_is_published() {
        let split = |name: &str, payload: &str| {
            let text = format!("PUBLISH {} {}\n{name}{payload}", name.len(), payload.len());
            let head = PublicationHead::parse(text.as_bytes()).unwrap().unwrap();
            head.split(text.as_bytes()).map(|(name, payload)| (name.to_owned(), payload.into_owned()))
        };
        assert_eq!(split("ä", "\"ö\""), Ok(("ä".to_owned(), "\"ö\"".to_owned())));
        assert!(split("", "1").unwrap_err().contains("not empty"));
        for wrong in ["", "{", "1,2", "{}}", "nul"] {
            assert!(split("room", wrong).unwrap_err().contains("is not JSON"), "{wrong}");
        }
        assert!(split("room", "{\"$presence\":{}}").unwrap_err().contains("events about members"));
        assert!(
            split("room", "{\"$except\":\"\"}").unwrap_err().contains("\"$except\", the key of messages")
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for bytes in [bytes.clone(), [b"PUBLISH 3 4\n", &bytes[..]].concat()] {
                if let Ok(Some(head)) = PublicationHead::parse(&bytes) && bytes.len() >= head.length() {
                    let _ = head.split(&bytes);
                }
            }
        }
    }
}
