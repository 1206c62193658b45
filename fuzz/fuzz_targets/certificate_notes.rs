//! Notes stored beside certificates: no bytes panic, and a note that is read is written as it was read.
//! Run with `make fuzz FUZZ=certificate_notes`.
#![no_main]

use certs::record::{StoredNote, announced};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Some(note) = StoredNote::parse(input) {
        let read = StoredNote::parse(&note.to_bytes()).expect("what was written is read");
        assert_eq!((&read.names, &read.directory, read.next_order), (&note.names, &note.directory, note.next_order));
    }
    let _ = announced(input);
});
