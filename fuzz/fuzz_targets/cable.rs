//! Frames and commands of Action Cable's clients, publications and questions of processes, and members who join by any command: no bytes make the parsers panic, and how they are split changes
//! nothing.
#![no_main]

use cable::broadcast::{self, BroadcastHead};
use cable::command::{CableCommand, CableProtocol};
use cable::frame::{FrameDecoder, FrameViolation, Received};
use cable::presence::{PresenceBounds, PresenceJoin, PresenceTable};
use cable::presence_event::event_of;
use cable::presence_query::PresenceQuery;
use cable::process_listener::{ListenCommand, ListenHead};
use cable::publication::PublicationHead;
use cable::signed::SignedNames;
use cable::whisper::Whisper;
use libfuzzer_sys::fuzz_target;

fn received<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Received>, Option<FrameViolation>) {
    let (mut decoder, mut all) = (FrameDecoder::new(1 << 10), Vec::new());
    for piece in pieces {
        if let Err(violation) = decoder.decode(piece, &mut |one| all.push(one)) {
            return (all, Some(violation));
        }
    }
    (all, None)
}

/// Lets all commands about members act on a small table. Members who came and have not gone are those that the table has.
fn meet(all: &[Received]) {
    let mut table = PresenceTable::new(PresenceBounds { expiry: 1, members: 3, bytes: 4 << 10 });
    let (mut there, mut now) = (0, 0);
    let mut tell = |_: &str, payload: String| {
        let event = event_of(&payload).expect("it is an event");
        let event: serde_json::Value = serde_json::from_str(event).expect("it is JSON");
        there += if event["type"] == "join" { 1 } else { -1 };
    };
    for (at, one) in all.iter().enumerate() {
        let Received::Text(text) = one else { continue };
        let session = at as u64 % 5;
        match CableCommand::parse(text) {
            Ok(CableCommand::Join { identifier, presence }) => {
                let (stream, id, info) = (identifier.into(), presence.id.into(), presence.info.to_string().into());
                let _ = table.join(&PresenceJoin { stream, id, info, session, is_vouched: at % 2 == 0 }, &mut tell);
            }
            Ok(CableCommand::Leave { identifier }) => _ = table.leave(&identifier, session, &mut tell),
            Ok(CableCommand::Presence { identifier, .. }) => table.lose(&identifier, session, now, &mut tell),
            _ => now += 1,
        }
        table.expire(now, &mut tell);
    }
    assert_eq!(there, table.len() as i64);
}

fuzz_target!(|input: &[u8]| {
    let (size, input) = input.split_first().map_or((1, input), |(size, rest)| (usize::from(*size).max(1), rest));
    let (all, violation) = received(std::iter::once(input));
    for one in &all {
        if let Received::Text(text) = one {
            assert!(text.len() <= 1 << 10);
            let _ = CableCommand::parse(text);
        }
    }
    meet(&all);
    assert_eq!((all, violation), received(input.chunks(size)));
    let _ = CableProtocol::choose(input);
    if let Some(whisper) = Whisper::of_other(input, "one") {
        let record = whisper.record("two").expect("its message is JSON");
        assert_eq!(Whisper::of_other(record.as_bytes(), "one"), Some(whisper));
    }
    if let Ok(text) = std::str::from_utf8(input) {
        let _ = CableCommand::parse(text);
    }
    for input in [input.to_vec(), [b"PRESENCE 4\n", input].concat(), [b"PRESENCE ", input].concat()] {
        if let Ok(Some(query)) = PresenceQuery::parse(&input)
            && input.len() >= query.length()
            && let Ok(stream) = query.stream(&input)
        {
            assert!(!stream.is_empty());
        }
    }
    for input in [input.to_vec(), [b"LISTEN 30\n", input].concat(), [b"UNLISTEN 4\n", input].concat()] {
        if let Ok(Some(head)) = ListenHead::parse(&input)
            && input.len() >= head.length()
            && let Ok(ListenCommand::Listen(stream, _) | ListenCommand::Unlisten(stream)) = head.command(&input)
        {
            assert!(!stream.is_empty());
        }
    }
    for input in [input.to_vec(), [b"BROADCAST 40\n", input].concat()] {
        let head = BroadcastHead::parse(&input).ok().flatten().filter(|head| input.len() >= head.length());
        let json = head.as_ref().map_or(&input[..], |head| head.json(&input));
        for message in broadcast::parse(json).unwrap_or_default() {
            let (_, payload) = cable::exclusion::parts(&message.payload);
            assert_eq!(cable::publication::check(&message.stream, payload), Ok(()));
        }
    }
    if let Ok(text) = std::str::from_utf8(input) {
        assert!(SignedNames::new("secret").presence(text, 0).is_err(), "no input knows the secret");
    }
    for input in [input.to_vec(), [b"PUBLISH 4 20\n", input].concat()] {
        if let Ok(Some(head)) = PublicationHead::parse(&input)
            && input.len() >= head.length()
            && let Ok((name, payload)) = head.split(&input)
        {
            assert!(!name.is_empty() && name.len() == head.name && cable::exclusion::parts(&payload).1.len() == head.payload);
        }
    }
});
