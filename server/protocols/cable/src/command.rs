//! Commands of clients, in JSON: `actioncable-v1-json` of Rails, and `actioncable-v1-ext-json`, which adds requests for history and
//! presence.
//!
//! Contract: a command that cannot be read is an error that names the field. The size of a command is bounded by the frame that
//! carries it; a request for history names at most [`MOST_POSITIONS`] streams.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// The most streams in a request for history.
pub const MOST_POSITIONS: usize = 64;

/// The protocol that a client has chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CableProtocol {
    /// `actioncable-v1-json`.
    Basic,
    /// `actioncable-v1-ext-json`: messages have positions, and clients ask for history.
    Extended,
}

impl CableProtocol {
    /// Returns the name in `Sec-WebSocket-Protocol`.
    pub fn name(self) -> &'static str {
        match self {
            CableProtocol::Basic => "actioncable-v1-json",
            CableProtocol::Extended => "actioncable-v1-ext-json",
        }
    }

    /// Chooses the first known protocol of a client's list; `None` if there is none.
    pub fn choose(offered: &[u8]) -> Option<CableProtocol> {
        offered.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).find_map(|name| {
            let named = |protocol: &CableProtocol| protocol.name().as_bytes() == name;
            [CableProtocol::Basic, CableProtocol::Extended].into_iter().find(named)
        })
    }
}

/// The position in a stream up to which a client has everything.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StreamPosition {
    pub epoch: String,
    pub offset: u64,
}

/// A request for the messages that a client has missed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct HistoryRequest {
    /// Seconds since 1970: of streams without a position, the messages from then on.
    pub since: Option<u64>,
    /// Positions by the name of the stream.
    #[serde(default)]
    pub streams: BTreeMap<String, StreamPosition>,
}

/// The member that a client joins as.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct PresenceRequest {
    pub id: String,
    /// JSON, or a text that is a token of the app ([`crate::presence_token`]).
    #[serde(default)]
    pub info: Value,
}

/// A command of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CableCommand {
    Subscribe {
        identifier: String,
        history: Option<HistoryRequest>,
        presence: Option<PresenceRequest>,
    },
    Unsubscribe {
        identifier: String,
    },
    /// An action of the channel; `data` is JSON with its name.
    Perform {
        identifier: String,
        data: String,
    },
    History {
        identifier: String,
        history: HistoryRequest,
    },
    Join {
        identifier: String,
        presence: PresenceRequest,
    },
    /// A message to the other clients of the subscription's stream; `message` is JSON ([`crate::whisper`]).
    Whisper {
        identifier: String,
        message: String,
    },
    /// The client leaves the members of the subscription.
    Leave {
        identifier: String,
    },
    /// The question for the members; without `records` only for their number.
    Presence {
        identifier: String,
        records: bool,
    },
    /// The answer to a ping, which some clients send.
    Pong,
}

#[derive(Deserialize)]
struct WrittenCommand<'a> {
    command: String,
    identifier: Option<String>,
    /// A text, an object of a question for members, or any JSON of a whisper.
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    history: Option<HistoryRequest>,
    /// It may lack the id in a command that needs none.
    presence: Option<Value>,
}

impl WrittenCommand<'_> {
    /// Returns the member, if the command names one.
    fn member(&mut self) -> Result<Option<PresenceRequest>, String> {
        let Some(presence) = self.presence.take() else { return Ok(None) };
        let member = serde_json::from_value(presence);
        member.map(Some).map_err(|error| format!("\"presence\" of the command {:?}: {error}", self.command))
    }
}

impl CableCommand {
    /// Reads a command.
    ///
    /// # Errors
    /// The text is not JSON, a field is missing, or the command is unknown.
    pub fn parse(text: &str) -> Result<CableCommand, String> {
        let mut written: WrittenCommand<'_> =
            serde_json::from_str(text).map_err(|error| format!("a command that cannot be read: {error}"))?;
        let member = match written.command.as_str() {
            "subscribe" | "join" => written.member()?,
            _ => None,
        };
        let lacks = |field: &str| format!("the command {:?} lacks {field:?}", written.command);
        if written.history.as_ref().is_some_and(|history| history.streams.len() > MOST_POSITIONS) {
            return Err(format!("a request for history names more than {MOST_POSITIONS} streams"));
        }
        let identifier = || written.identifier.clone().ok_or_else(|| lacks("identifier"));
        match written.command.as_str() {
            "subscribe" => {
                let identifier = identifier()?;
                Ok(CableCommand::Subscribe { identifier, history: written.history, presence: member })
            }
            "unsubscribe" => Ok(CableCommand::Unsubscribe { identifier: identifier()? }),
            "message" => {
                let identifier = identifier()?;
                let data = written.data.ok_or_else(|| lacks("data"))?;
                let data = serde_json::from_str(data.get());
                let data =
                    data.map_err(|_| "\"data\" of the command \"message\" is not a text".to_owned())?;
                Ok(CableCommand::Perform { identifier, data })
            }
            "whisper" => {
                let identifier = identifier()?;
                let message = written.data.ok_or_else(|| lacks("data"))?.get().to_owned();
                Ok(CableCommand::Whisper { identifier, message })
            }
            "history" => {
                let identifier = identifier()?;
                let history = written.history.ok_or_else(|| lacks("history"))?;
                Ok(CableCommand::History { identifier, history })
            }
            "join" => {
                let identifier = identifier()?;
                let presence = member.ok_or_else(|| lacks("presence"))?;
                Ok(CableCommand::Join { identifier, presence })
            }
            "leave" => Ok(CableCommand::Leave { identifier: identifier()? }),
            "presence" => {
                let question = written.data.and_then(|data| serde_json::from_str::<Value>(data.get()).ok());
                let records = question.as_ref().and_then(|question| question.get("return_records"));
                let records = records != Some(&Value::Bool(false));
                Ok(CableCommand::Presence { identifier: identifier()?, records })
            }
            "pong" => Ok(CableCommand::Pong),
            other => Err(format!("an unknown command: {other:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn commands_are_read() {
        let read = |text: &str| CableCommand::parse(text).unwrap();
        let identifier = r#"{"channel":"RoomChannel"}"#.to_owned();
        let quoted = serde_json::to_string(&identifier).unwrap();
        assert_eq!(
            read(&format!(r#"{{"command":"subscribe","identifier":{quoted}}}"#)),
            CableCommand::Subscribe { identifier: identifier.clone(), history: None, presence: None }
        );
        assert_eq!(
            read(&format!(r#"{{"command":"message","identifier":{quoted},"data":"{{}}"}}"#)),
            CableCommand::Perform { identifier: identifier.clone(), data: "{}".to_owned() }
        );
        let position = StreamPosition { epoch: "e".to_owned(), offset: 7 };
        let history =
            HistoryRequest { since: Some(5), streams: [("room".to_owned(), position)].into_iter().collect() };
        let written = r#"{"since":5,"streams":{"room":{"epoch":"e","offset":7}}}"#;
        assert_eq!(
            read(&format!(r#"{{"command":"history","identifier":{quoted},"history":{written}}}"#)),
            CableCommand::History { identifier: identifier.clone(), history }
        );
        assert_eq!(read(r#"{"command":"pong"}"#), CableCommand::Pong);
        for message in [r#"{"typing": 1.50}"#, r#""text""#, "7", "[]"] {
            let whisper =
                CableCommand::Whisper { identifier: identifier.clone(), message: message.to_owned() };
            let text = format!(r#"{{"command":"whisper","identifier":{quoted},"data":{message}}}"#);
            assert_eq!(read(&text), whisper, "a whisper is passed on as it is written");
        }
    }

    #[test]
    fn commands_about_members_are_read() {
        let read = |text: &str| CableCommand::parse(text).unwrap();
        let identifier = || "i".to_owned();
        let ann = PresenceRequest { id: "ann".to_owned(), info: json!({ "name": "Ann" }) };
        assert_eq!(
            read(r#"{"command":"join","identifier":"i","presence":{"id":"ann","info":{"name":"Ann"}}}"#),
            CableCommand::Join { identifier: identifier(), presence: ann.clone() }
        );
        assert_eq!(
            read(r#"{"command":"subscribe","identifier":"i","presence":{"id":"ann","info":{"name":"Ann"}}}"#),
            CableCommand::Subscribe { identifier: identifier(), history: None, presence: Some(ann) }
        );
        let bob = PresenceRequest { id: "bob".to_owned(), info: Value::Null };
        assert_eq!(
            read(r#"{"command":"join","identifier":"i","presence":{"id":"bob"}}"#),
            CableCommand::Join { identifier: identifier(), presence: bob }
        );
        for text in [
            r#"{"command":"leave","identifier":"i"}"#,
            r#"{"command":"leave","identifier":"i","presence":{"id":"ann"}}"#,
            r#"{"command":"leave","identifier":"i","presence":{}}"#,
        ] {
            assert_eq!(read(text), CableCommand::Leave { identifier: identifier() });
        }
        for (data, records) in
            [("{}", true), ("null", true), (r#"{"return_records":false}"#, false), ("\"x\"", true)]
        {
            let text = format!(r#"{{"command":"presence","identifier":"i","data":{data}}}"#);
            assert_eq!(read(&text), CableCommand::Presence { identifier: identifier(), records }, "{data}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let many = (0..65).map(|at| format!(r#""{at}":{{"epoch":"e","offset":1}}"#)).collect::<Vec<_>>();
        let many = format!(
            r#"{{"command":"history","identifier":"i","history":{{"streams":{{{}}}}}}}"#,
            many.join(",")
        );
        for (text, expected) in [
            ("x", "cannot be read"),
            ("{}", "command"),
            (r#"{"command":"subscribe"}"#, "lacks \"identifier\""),
            (r#"{"command":"message","identifier":"i"}"#, "lacks \"data\""),
            (r#"{"command":"history","identifier":"i"}"#, "lacks \"history\""),
            (r#"{"command":"message","identifier":"i","data":{}}"#, "not a text"),
            (r#"{"command":"join","identifier":"i"}"#, "lacks \"presence\""),
            (r#"{"command":"join","identifier":"i","presence":{"info":1}}"#, "missing field `id`"),
            (
                r#"{"command":"join","identifier":"i","presence":{"id":7}}"#,
                "\"presence\" of the command \"join\"",
            ),
            (r#"{"command":"join","presence":{"id":"7"}}"#, "lacks \"identifier\""),
            (r#"{"command":"leave"}"#, "lacks \"identifier\""),
            (r#"{"command":"presence"}"#, "lacks \"identifier\""),
            (r#"{"command":"whisper","identifier":"i"}"#, "lacks \"data\""),
            (r#"{"command":"whisper","data":{}}"#, "lacks \"identifier\""),
            (r#"{"command":"fly","identifier":"i"}"#, "unknown command: \"fly\""),
            (many.as_str(), "more than 64 streams"),
        ] {
            let error = CableCommand::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn the_first_known_protocol_is_chosen() {
        let choose = |offered: &str| CableProtocol::choose(offered.as_bytes()).map(CableProtocol::name);
        assert_eq!(choose("actioncable-v1-json, actioncable-unsupported"), Some("actioncable-v1-json"));
        assert_eq!(choose("x,actioncable-v1-ext-json"), Some("actioncable-v1-ext-json"));
        assert_eq!(choose("actioncable-unsupported"), None);
    }
}
