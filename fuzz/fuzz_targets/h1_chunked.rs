//! Chunked bodies: no input makes the decoder panic or give more than it was given, and none means something else when it
//! comes in two pieces. The first byte says where to cut. Run with `make fuzz FUZZ=h1_chunked`.
#![no_main]

use h1::chunked::{ChunkBounds, Decoder};
use libfuzzer_sys::fuzz_target;

/// Data and whether it was all, or `None` for a refusal.
fn decode(pieces: [&[u8]; 2]) -> Option<(Vec<u8>, bool)> {
    let mut decoder = Decoder::new(ChunkBounds { max_body: Some(1000), max_trailer_bytes: 200, max_trailers: 5 });
    let mut data = Vec::new();
    for piece in pieces {
        let used = decoder.decode(piece, &mut data).ok()?;
        assert!(used == piece.len() || decoder.is_done());
    }
    Some((data, decoder.is_done()))
}

fuzz_target!(|input: &[u8]| {
    let [cut, coded @ ..] = input else { return };
    let cut = usize::from(*cut) % (coded.len() + 1);
    let whole = decode([coded, &[]]);
    assert_eq!(whole, decode([&coded[..cut], &coded[cut..]]));
    if let Some((data, _)) = whole {
        assert!(data.len() <= coded.len() && data.len() <= 1000);
    }
});
