//! The stream of a heap dump, with `make fuzz FUZZ=heap_dump`: any bytes in any pieces give the same snapshot, or the same error, and its
//! groups add up.
#![no_main]

use control::heap::{HeapReader, HeapSnapshot};
use libfuzzer_sys::fuzz_target;

fn read(bytes: &[u8], piece: usize) -> Result<HeapSnapshot, String> {
    let mut reader = HeapReader::new(true);
    bytes.chunks(piece).for_each(|part| reader.read(part));
    reader.finish()
}

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    // Short lines are never cut.
    let read_in_pieces = read(bytes, usize::from(piece).max(1));
    if let Ok(snapshot) = &read_in_pieces {
        assert_eq!(snapshot.groups.iter().map(|group| group.count).sum::<u64>(), snapshot.objects);
        // Objects before the first route in the stream belong to none.
        for group in &snapshot.groups {
            assert!(group.routes.iter().map(|route| route.count).sum::<u64>() <= group.count);
        }
    }
    if bytes.len() < 64 << 10 {
        assert_eq!(read_in_pieces, read(bytes, bytes.len().max(1)));
    }
});
