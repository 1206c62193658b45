//! The commands by which a process of the app listens to streams, on the local socket ([`crate::publication`]):
//!
//! ```text
//! LISTEN <bytes of the JSON>\n{"stream":"room","epoch":"4b1c8a0f93d2","offset":17}
//! OK <epoch> <offset>\n          or          OK <epoch> <offset> LOST\n          or          ERROR <text>\n
//!
//! UNLISTEN <bytes of the name>\n<name>
//! OK\n
//!
//! MESSAGE <bytes of the name> <bytes of the payload> <epoch> <offset>\n<name><payload>
//! ```
//!
//! Why: a channel that changes messages in Ruby keeps its WebSocket in a worker, and the worker needs the messages.
//!
//! Contract: answers come in the order of the commands. After the answer to `LISTEN` come all messages of the stream, each once and in
//! order: with epoch and offset those behind it, else those from now on. `LOST` says that some are no longer kept; then it is from now on, too.
//! Events about members do not come: they are for clients.

use crate::command::StreamPosition;
use crate::presence_event::event_of;
use crate::publication::{LONGEST_NAME, name_of, question_line};
use crate::streams::StreamMessage;
use bytes::Bytes;
use serde::Deserialize;

const LISTEN: &str = "LISTEN";
const UNLISTEN: &str = "UNLISTEN";
/// The most bytes of the JSON: of a name all of whose characters are escaped, and of a position.
const LONGEST_JSON: usize = 6 * LONGEST_NAME + 256;

/// The first line of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenHead {
    line: usize,
    part: usize,
    begins: bool,
}

/// A command of a process that listens.
#[derive(Debug, PartialEq, Eq)]
pub enum ListenCommand {
    /// Listen to a stream, from a position or from now on.
    Listen(String, Option<StreamPosition>),
    Unlisten(String),
}

#[derive(Deserialize)]
struct WrittenListen {
    stream: String,
    epoch: Option<String>,
    offset: Option<u64>,
}

impl ListenHead {
    /// Reads the first line; `None` if it is another command, or not complete.
    ///
    /// # Errors
    /// The line has no length, or one that is too large.
    pub fn parse(bytes: &[u8]) -> Result<Option<ListenHead>, String> {
        if let Some((line, part)) = question_line(bytes, LISTEN, 1..=LONGEST_JSON)? {
            return Ok(Some(ListenHead { line, part, begins: true }));
        }
        let read = question_line(bytes, UNLISTEN, 1..=LONGEST_NAME)?;
        Ok(read.map(|(line, part)| ListenHead { line, part, begins: false }))
    }

    /// Returns the bytes of the whole command.
    pub fn length(&self) -> usize {
        self.line + self.part
    }

    /// Returns the complete command that begins with this line.
    ///
    /// # Errors
    /// The JSON is not as expected, or the name is empty, too long, or not UTF-8.
    pub fn command(&self, bytes: &[u8]) -> Result<ListenCommand, String> {
        let part = &bytes[self.line..self.length()];
        if !self.begins {
            return name_of(part).map(|stream| ListenCommand::Unlisten(stream.to_owned()));
        }
        let WrittenListen { stream, epoch, offset } = serde_json::from_slice(part)
            .map_err(|error| format!("{LISTEN}: expected an object with the name of a stream: {error}"))?;
        if stream.is_empty() || stream.len() > LONGEST_NAME {
            let found = stream.len();
            return Err(format!("a stream's name has 1 to {LONGEST_NAME} bytes; this one has {found}"));
        }
        let position = epoch.zip(offset).map(|(epoch, offset)| StreamPosition { epoch, offset });
        Ok(ListenCommand::Listen(stream, position))
    }
}

/// Returns the answer to `LISTEN`. `is_complete`: no message after the position is missing.
pub fn answer(epoch: &str, offset: u64, is_complete: bool) -> String {
    format!("OK {epoch} {offset}{}\n", if is_complete { "" } else { " LOST" })
}

/// Returns a message as the process gets it; `None` for an event about members.
pub fn message(message: &StreamMessage) -> Option<Bytes> {
    let (_, payload) = message.parts();
    if event_of(payload).is_some() {
        return None;
    }
    let StreamMessage { stream, epoch, offset, .. } = message;
    Some(format!("MESSAGE {} {} {epoch} {offset}\n{stream}{payload}", stream.len(), payload.len()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Option<ListenCommand>, String> {
        let head = ListenHead::parse(text.as_bytes())?;
        head.map(|head| head.command(text.as_bytes())).transpose()
    }

    fn listen(json: &str) -> Result<Option<ListenCommand>, String> {
        read(&format!("LISTEN {}\n{json}", json.len()))
    }

    #[test]
    fn commands_are_read() {
        let room = || "room".to_owned();
        assert_eq!(listen(r#"{"stream":"room"}"#), Ok(Some(ListenCommand::Listen(room(), None))));
        let position = StreamPosition { epoch: "e".to_owned(), offset: 17 };
        let written = r#"{"stream":"room","epoch":"e","offset":17}"#;
        assert_eq!(listen(written), Ok(Some(ListenCommand::Listen(room(), Some(position)))));
        assert_eq!(read("UNLISTEN 4\nroomPUBLISH"), Ok(Some(ListenCommand::Unlisten(room()))));
        assert_eq!((read("LISTEN 4"), read("PUBLISH 1 1\n"), read("LIST")), (Ok(None), Ok(None), Ok(None)));
    }

    #[test]
    fn mistakes_are_named() {
        for (json, expected) in [
            ("{}", "missing field `stream`"),
            ("x", "expected an object"),
            (r#"{"stream":""}"#, "1 to 4096 bytes; this one has 0"),
            (r#"{"stream":"a","offset":-1}"#, "invalid value"),
        ] {
            let error = listen(json).unwrap_err();
            assert!(error.contains(expected), "{json}: {error}");
        }
        assert!(listen(&format!(r#"{{"stream":"{}"}}"#, "x".repeat(4097))).unwrap_err().contains("has 4097"));
        for wrong in ["LISTEN 0\n", "LISTEN x\n", "UNLISTEN 4097\n", "UNLISTEN \n"] {
            assert!(
                ListenHead::parse(wrong.as_bytes()).unwrap_err().contains("and a length of 1 to"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn messages_name_their_place_and_events_of_members_do_not_come() {
        let of = |payload: &str| {
            let (stream, epoch, payload) = ("ä".into(), "e1".into(), payload.into());
            message(&StreamMessage { stream, epoch, offset: 3, at: 0, number: 0, payload })
        };
        assert_eq!(of("{\"a\":1}").unwrap(), "MESSAGE 2 7 e1 3\nä{\"a\":1}".as_bytes());
        assert_eq!(of(&crate::presence_event::left("7")), None);
        assert_eq!(
            (answer("e", 7, true), answer("e", 7, false)),
            ("OK e 7\n".into(), "OK e 7 LOST\n".into())
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let starts: [&[u8]; 4] = [b"", b"LISTEN 20\n", b"UNLISTEN 4\n", b"LISTEN "];
            for bytes in starts.map(|start| [start, &bytes].concat()) {
                if let Ok(Some(head)) = ListenHead::parse(&bytes) && bytes.len() >= head.length() {
                    let _ = head.command(&bytes);
                }
            }
        }
    }
}
