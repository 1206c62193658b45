//! Frames and commands of Action Cable's clients, and publications: no bytes make the parsers panic, and how they are split changes
//! nothing.
#![no_main]

use cable::command::{CableCommand, CableProtocol};
use cable::frame::{FrameDecoder, FrameViolation, Received};
use cable::publication::PublicationHead;
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

fuzz_target!(|input: &[u8]| {
    let (size, input) = input.split_first().map_or((1, input), |(size, rest)| (usize::from(*size).max(1), rest));
    let (all, violation) = received(std::iter::once(input));
    for one in &all {
        if let Received::Text(text) = one {
            assert!(text.len() <= 1 << 10);
            let _ = CableCommand::parse(text);
        }
    }
    assert_eq!((all, violation), received(input.chunks(size)));
    let _ = CableProtocol::choose(input);
    if let Ok(text) = std::str::from_utf8(input) {
        let _ = CableCommand::parse(text);
    }
    for input in [input.to_vec(), [b"PUBLISH 4 20\n", input].concat()] {
        if let Ok(Some(head)) = PublicationHead::parse(&input)
            && input.len() >= head.length()
            && let Ok((name, payload)) = head.split(&input)
        {
            assert!(!name.is_empty() && name.len() == head.name && payload.len() == head.payload);
        }
    }
});
