//! The flight recorder of a worker that has died: whatever it has left in the shared memory, reading ends with bounded lists.
//! Run with `make fuzz FUZZ=flight_recorder`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::recorder::{EVENTS, Flight, LEN, LONGEST, SECONDS};

fuzz_target!(|input: &[u8]| {
    let mut memory = vec![0; LEN];
    // Short inputs reach the events, too.
    for (at, byte) in memory.iter_mut().enumerate().filter(|_| !input.is_empty()) {
        *byte = input[at % input.len()];
    }
    for bytes in [input, &memory] {
        let flight = Flight::read(bytes);
        assert!(flight.events.len() <= EVENTS && flight.seconds.len() <= SECONDS);
        assert!(flight.events.iter().all(|event| event.text.chars().count() <= LONGEST));
        assert!(flight.seconds.is_sorted_by_key(|one| one.second));
    }
});
