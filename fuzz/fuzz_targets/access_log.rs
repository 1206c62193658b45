//! Access logs: no bytes make the reader panic, arrivals never go back in time, and every line is accounted for. Run with
//! `make fuzz FUZZ=access_log`.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use load::inputs::access_log::access_log;

fuzz_target!(|input: &[u8]| {
    let lines = input.split(|byte| *byte == b'\n').count() as u64;
    if let Ok(found) = access_log("a.log", &mut &input[..], false) {
        assert_eq!(found.arrivals.first().map(|(at, _)| *at), Some(Duration::ZERO));
        assert!(found.arrivals.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        assert!(found.arrivals.iter().all(|(_, which)| *which < found.requests.len()));
        assert!(found.arrivals.len() as u64 + found.skipped + found.unreadable <= lines);
        assert!(found.requests.iter().all(|asked| asked.target.bytes().all(|byte| byte.is_ascii_graphic())));
    }
});
