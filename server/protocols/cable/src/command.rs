//! Commands of clients, in JSON: `actioncable-v1-json` of Rails, and `actioncable-v1-ext-json`, which adds requests for history.
//!
//! Contract: a command that cannot be read is an error that names the field. The size of a command is bounded by the frame that
//! carries it; a request for history names at most [`MOST_POSITIONS`] streams.

use serde::Deserialize;
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

/// A command of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CableCommand {
    Subscribe {
        identifier: String,
        history: Option<HistoryRequest>,
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
    /// The answer to a ping, which some clients send.
    Pong,
}

#[derive(Deserialize)]
struct WrittenCommand {
    command: String,
    identifier: Option<String>,
    data: Option<String>,
    history: Option<HistoryRequest>,
}

impl CableCommand {
    /// Reads a command.
    ///
    /// # Errors
    /// The text is not JSON, a field is missing, or the command is unknown.
    pub fn parse(text: &str) -> Result<CableCommand, String> {
        let written: WrittenCommand =
            serde_json::from_str(text).map_err(|error| format!("a command that cannot be read: {error}"))?;
        let lacks = |field: &str| format!("the command {:?} lacks {field:?}", written.command);
        if written.history.as_ref().is_some_and(|history| history.streams.len() > MOST_POSITIONS) {
            return Err(format!("a request for history names more than {MOST_POSITIONS} streams"));
        }
        let identifier = || written.identifier.clone().ok_or_else(|| lacks("identifier"));
        match written.command.as_str() {
            "subscribe" => {
                Ok(CableCommand::Subscribe { identifier: identifier()?, history: written.history })
            }
            "unsubscribe" => Ok(CableCommand::Unsubscribe { identifier: identifier()? }),
            "message" => {
                let identifier = identifier()?;
                let data = written.data.ok_or_else(|| lacks("data"))?;
                Ok(CableCommand::Perform { identifier, data })
            }
            "history" => {
                let identifier = identifier()?;
                let history = written.history.ok_or_else(|| lacks("history"))?;
                Ok(CableCommand::History { identifier, history })
            }
            "pong" => Ok(CableCommand::Pong),
            other => Err(format!("an unknown command: {other:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read() {
        let read = |text: &str| CableCommand::parse(text).unwrap();
        let identifier = r#"{"channel":"RoomChannel"}"#.to_owned();
        let quoted = serde_json::to_string(&identifier).unwrap();
        assert_eq!(
            read(&format!(r#"{{"command":"subscribe","identifier":{quoted}}}"#)),
            CableCommand::Subscribe { identifier: identifier.clone(), history: None }
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
            CableCommand::History { identifier, history }
        );
        assert_eq!(read(r#"{"command":"pong"}"#), CableCommand::Pong);
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
