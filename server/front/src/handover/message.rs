//! Encodes and decodes the messages between the old program and the new one. Pure.
//!
//! Contract:
//! 1. A message is one packet: a verb and its arguments, separated by NUL. Descriptors travel with it.
//! 2. The two programs may have different versions. An unknown verb, a wrong number of arguments or an
//!    invalid address is an error that quotes the message; the decoder never guesses.
//! 3. Decoding reverses encoding, except that texts for people lose NULs and are cut to [`LONGEST_TEXT`] bytes.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The version of the protocol. If the other program has another one, the upgrade fails and the server has to
/// be restarted.
pub(super) const VERSION: u32 = 1;
/// The longest accepted message, in bytes.
pub(super) const LONGEST: usize = 32 << 10;
/// The largest number of descriptors in a message.
pub(super) const MOST_FDS: usize = 64;
/// The longest text for people (for example an exception with its backtrace), in bytes.
const LONGEST_TEXT: usize = 16 << 10;

/// The address and purpose of a socket that is handed over.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum SocketKind {
    /// Requests over TCP.
    Tcp {
        address: SocketAddr,
        /// Whether the settings said port 0.
        chosen: bool,
        /// Whether systemd opened the socket.
        activated: bool,
        /// Whether systemd opened the socket and its connections use TLS.
        encrypted: bool,
    },
    /// Requests over a Unix socket.
    Unix {
        path: PathBuf,
        /// Whether systemd opened the socket and owns its file.
        activated: bool,
    },
    /// HTTP/3.
    Udp { address: SocketAddr },
    /// The Unix socket of the control server.
    ControlUnix {
        path: PathBuf,
        /// Whether systemd opened the socket and owns its file.
        activated: bool,
    },
    /// The TCP port of the control server.
    ControlTcp {
        address: SocketAddr,
        /// Whether the settings said port 0.
        chosen: bool,
        /// Whether systemd opened the socket.
        activated: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Message {
    /// The first message, from the old program. Carries its standard input, and a file with recent requests if
    /// there are any, which programs that do not know it ignore.
    Hello {
        version: u32,
        /// The version of the program, for texts.
        program: String,
        /// Failed and successful upgrades of this program and those before it. Programs that do not know this
        /// field leave it out or ignore it.
        upgrades: (u64, u64),
    },
    /// Sockets of a place. More messages for the same place may follow.
    Sockets(SocketKind),
    /// The token that the control server generated.
    Token(String),
    /// The end of the list of sockets.
    End,
    /// New program: expects to be ready within this time.
    Within(Duration),
    /// New program: its progress, for people.
    Step(String),
    /// New program: ready to serve.
    Ready,
    /// New program: cannot take over, with the reason.
    Failed(String),
    /// Old program, before `go`: the interruptions of service in force, in a file that travels with the
    /// message. Left out if there are none, for programs that do not know the message.
    Interruptions,
    /// Old program: asks the new one to serve.
    Go,
    /// New program: serves now, and owns these files.
    Serving(Vec<PathBuf>),
    /// Old program: the service manager knows the new program.
    Yours,
    /// New program, while requests of the old one wait for the end of a pause: the pause continues for this
    /// time, or ends if it is zero.
    Paused(Duration),
    /// Old program: an unsafe request has invalidated what is kept for this key; an empty one stands for all keys.
    Invalidated(Vec<u8>),
    /// Old program, when its requests have ended: the kept responses, in a file that travels with it.
    Kept,
    /// Old program, if the hub of live pages is on: the streams, in a file that travels with it; without one if they are shared through Redis.
    /// This and the next two are left out if the hub is off, for programs that do not know them.
    HubStreams,
    /// Old program: WebSockets of the hub. A file with a record of each travels with it, then their descriptors in the same order.
    HubSockets,
    /// Old program: no more WebSockets of the hub follow.
    HubEnd,
}

/// Encodes a message as a packet.
pub(super) fn encode(message: &Message) -> Vec<u8> {
    let flag = |on: bool| if on { b"1".to_vec() } else { b"0".to_vec() };
    let file = |path: &Path| path.as_os_str().as_bytes().to_vec();
    let text = |text: &str| text.as_bytes().to_vec();
    // Later additions to the protocol. They are left out when false, for programs that do not know them.
    let with = |mut parts: Vec<Vec<u8>>, on: bool| {
        parts.extend(on.then(|| flag(true)));
        parts
    };
    let parts: Vec<Vec<u8>> = match message {
        Message::Hello { version, program, upgrades: (failed, done) } => {
            let numbers = [failed, done].map(|number| text(&number.to_string()));
            [text("hello"), text(&version.to_string()), text(program)].into_iter().chain(numbers).collect()
        }
        Message::Sockets(place) => match place {
            SocketKind::Tcp { address, chosen, activated, encrypted } => {
                let parts = vec![text("tcp"), text(&address.to_string()), flag(*chosen), flag(*activated)];
                with(parts, *encrypted)
            }
            SocketKind::Unix { path, activated } => vec![text("unix"), file(path), flag(*activated)],
            SocketKind::Udp { address } => vec![text("udp"), text(&address.to_string())],
            SocketKind::ControlUnix { path, activated } => {
                with(vec![text("control-unix"), file(path)], *activated)
            }
            SocketKind::ControlTcp { address, chosen, activated } => {
                with(vec![text("control-tcp"), text(&address.to_string()), flag(*chosen)], *activated)
            }
        },
        Message::Token(token) => vec![text("token"), text(token)],
        Message::End => vec![text("end")],
        Message::Within(time) => vec![text("within"), text(&time.as_millis().to_string())],
        Message::Step(what) => vec![text("step"), for_people(what)],
        Message::Ready => vec![text("ready")],
        Message::Failed(why) => vec![text("failed"), for_people(why)],
        Message::Interruptions => vec![text("interruptions")],
        Message::Go => vec![text("go")],
        Message::Serving(files) => {
            std::iter::once(text("serving")).chain(files.iter().map(|path| file(path))).collect()
        }
        Message::Yours => vec![text("yours")],
        // Keys are texts of requests, which have no NUL.
        Message::Invalidated(key) if key.len() <= LONGEST_TEXT => vec![text("invalidated"), key.clone()],
        Message::Invalidated(_) => vec![text("invalidated"), Vec::new()],
        Message::Kept => vec![text("kept")],
        Message::HubStreams => vec![text("hub-streams")],
        Message::HubSockets => vec![text("hub-sockets")],
        Message::HubEnd => vec![text("hub-end")],
        Message::Paused(time) => vec![text("paused"), text(&time.as_millis().to_string())],
    };
    parts.join(&0)
}

/// Returns as much of the text as fits.
fn for_people(text: &str) -> Vec<u8> {
    let mut end = text.len().min(LONGEST_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].replace('\0', " ").into_bytes()
}

/// # Errors
/// The packet is not a valid message. The text quotes it.
pub(super) fn decode(packet: &[u8]) -> Result<Message, String> {
    let parts: Vec<&[u8]> = packet.split(|&byte| byte == 0).collect();
    let unknown = || {
        let beginning = &packet[..packet.len().min(80)];
        format!("unknown message: {:?}", String::from_utf8_lossy(beginning))
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let file = |bytes: &[u8]| (!bytes.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(bytes)));
    let flag = |bytes: &[u8]| match bytes {
        b"0" => Some(false),
        b"1" => Some(true),
        _ => None,
    };
    let later = |rest: &[&[u8]]| match *rest {
        [] => Some(false),
        [b"1"] => Some(true),
        _ => None,
    };
    let message = match *parts.as_slice() {
        [b"hello", version, program, ref more @ ..] => number(version)
            .and_then(|version| u32::try_from(version).ok())
            .map(|version| Message::Hello { version, program: text(program), upgrades: counted(more) }),
        [b"tcp", address, chosen, activated, ref rest @ ..] => (|| {
            let (address, chosen, activated) = (socket_address(address)?, flag(chosen)?, flag(activated)?);
            Some(Message::Sockets(SocketKind::Tcp { address, chosen, activated, encrypted: later(rest)? }))
        })(),
        [b"unix", path, activated] => (|| {
            let (path, activated) = (file(path)?, flag(activated)?);
            Some(Message::Sockets(SocketKind::Unix { path, activated }))
        })(),
        [b"udp", address] => {
            socket_address(address).map(|address| Message::Sockets(SocketKind::Udp { address }))
        }
        [b"control-unix", path, ref rest @ ..] => (|| {
            let (path, activated) = (file(path)?, later(rest)?);
            Some(Message::Sockets(SocketKind::ControlUnix { path, activated }))
        })(),
        [b"control-tcp", address, chosen, ref rest @ ..] => (|| {
            let (address, chosen, activated) = (socket_address(address)?, flag(chosen)?, later(rest)?);
            Some(Message::Sockets(SocketKind::ControlTcp { address, chosen, activated }))
        })(),
        [b"token", token] => Some(Message::Token(text(token))),
        [b"end"] => Some(Message::End),
        [b"within", time] => number(time).map(|ms| Message::Within(Duration::from_millis(ms))),
        [b"step", what] => Some(Message::Step(text(what))),
        [b"ready"] => Some(Message::Ready),
        [b"failed", why] => Some(Message::Failed(text(why))),
        [b"interruptions"] => Some(Message::Interruptions),
        [b"go"] => Some(Message::Go),
        [b"serving", ref files @ ..] => {
            files.iter().map(|path| file(path)).collect::<Option<Vec<_>>>().map(Message::Serving)
        }
        [b"yours"] => Some(Message::Yours),
        [b"invalidated", key] => Some(Message::Invalidated(key.to_vec())),
        [b"kept"] => Some(Message::Kept),
        [b"hub-streams"] => Some(Message::HubStreams),
        [b"hub-sockets"] => Some(Message::HubSockets),
        [b"hub-end"] => Some(Message::HubEnd),
        [b"paused", time] => number(time).map(|ms| Message::Paused(Duration::from_millis(ms))),
        _ => None,
    };
    message.ok_or_else(unknown)
}

/// Returns the upgrade counts of a hello, if present. A later version may use these arguments for something else.
fn counted(more: &[&[u8]]) -> (u64, u64) {
    let counted = more.first_chunk().and_then(|[failed, done]| Some((number(failed)?, number(done)?)));
    counted.unwrap_or_default()
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn socket_address(bytes: &[u8]) -> Option<SocketAddr> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// Parses the variable that announces a handover: the old program's process id.
pub(super) fn announced(value: std::ffi::OsString) -> Option<i32> {
    let pid = number(&value.into_vec())?;
    i32::try_from(pid).ok().filter(|pid| *pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address() -> impl Strategy<Value = SocketAddr> {
        prop_oneof![
            (any::<[u8; 4]>(), any::<u16>()).prop_map(SocketAddr::from),
            (any::<[u8; 16]>(), any::<u16>()).prop_map(SocketAddr::from),
        ]
    }

    fn path() -> impl Strategy<Value = PathBuf> {
        prop::collection::vec(1..=255_u8, 1..100).prop_map(|bytes| std::ffi::OsString::from_vec(bytes).into())
    }

    fn place() -> impl Strategy<Value = SocketKind> {
        prop_oneof![
            (address(), any::<[bool; 3]>()).prop_map(|(address, [chosen, activated, encrypted])| {
                SocketKind::Tcp { address, chosen, activated, encrypted }
            }),
            (path(), any::<bool>()).prop_map(|(path, activated)| SocketKind::Unix { path, activated }),
            address().prop_map(|address| SocketKind::Udp { address }),
            (path(), any::<bool>()).prop_map(|(path, activated)| SocketKind::ControlUnix { path, activated }),
            (address(), any::<[bool; 2]>()).prop_map(|(address, [chosen, activated])| {
                SocketKind::ControlTcp { address, chosen, activated }
            }),
        ]
    }

    fn message() -> impl Strategy<Value = Message> {
        let text = "[^\0]{0,200}";
        prop_oneof![
            (any::<u32>(), text, any::<(u64, u64)>())
                .prop_map(|(version, program, upgrades)| Message::Hello { version, program, upgrades }),
            place().prop_map(Message::Sockets),
            text.prop_map(Message::Token),
            Just(Message::End),
            any::<u32>().prop_map(|ms| Message::Within(Duration::from_millis(ms.into()))),
            text.prop_map(Message::Step),
            Just(Message::Ready),
            text.prop_map(Message::Failed),
            Just(Message::Interruptions),
            Just(Message::Go),
            prop::collection::vec(path(), 0..8).prop_map(Message::Serving),
            Just(Message::Yours),
            Just(Message::Kept),
            Just(Message::HubStreams),
            Just(Message::HubSockets),
            Just(Message::HubEnd),
            prop::collection::vec(1u8.., 0..200).prop_map(Message::Invalidated),
            any::<u32>().prop_map(|ms| Message::Paused(Duration::from_millis(ms.into()))),
        ]
    }

    proptest! {
        #[test]
        fn messages_survive(message in message()) {
            let packet = encode(&message);
            prop_assert!(packet.len() <= LONGEST);
            prop_assert_eq!(decode(&packet), Ok(message));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Err(why) = decode(&bytes) {
                prop_assert!(why.starts_with("unknown message"));
            }
        }

        #[test]
        fn words_of_the_protocol_in_any_order_are_read_or_refused(
            words in prop::collection::vec(prop::sample::select(vec![
                "hello", "tcp", "unix", "udp", "control-tcp", "control-unix", "token", "end", "within", "step", "ready", "failed", "go",
                "serving", "yours", "interruptions", "paused", "kept", "invalidated", "0", "1", "127.0.0.1:80", "[::1]:0", "", "/run/app.sock", "18446744073709551616",
            ]), 0..6),
        ) {
            let packet = words.join("\0");
            if let Ok(message) = decode(packet.as_bytes()) {
                prop_assert_eq!(decode(&encode(&message)), Ok(message));
            }
        }
    }

    #[test]
    fn long_texts_are_cut_and_stay_text() {
        let Ok(Message::Failed(cut)) = decode(&encode(&Message::Failed("ä\0".repeat(20_000)))) else {
            panic!("a text")
        };
        assert!(cut.len() <= LONGEST_TEXT && cut.starts_with("ä ä "), "{}", cut.len());
    }

    #[test]
    fn a_later_version_is_known_by_its_first_message() {
        let hello = |upgrades| Ok(Message::Hello { version: 2, program: "Firebrick 9".to_owned(), upgrades });
        assert_eq!(decode(b"hello\x002\x00Firebrick 9\x00something new\x00and more"), hello((0, 0)));
        assert_eq!(decode(b"hello\x002\x00Firebrick 9\x004\x0017\x00something new"), hello((4, 17)));
        assert_eq!(decode(b"hello\x002\x00Firebrick 9"), hello((0, 0)), "an earlier one");
    }

    #[test]
    fn only_a_process_id_announces_a_handover() {
        assert_eq!(announced("42".into()), Some(42));
        for stale in ["", "0", "-1", "x", "4294967297"] {
            assert_eq!(announced(stale.into()), None, "{stale}");
        }
    }
}
