//! Frames of WebSockets and event streams to the load generator: any bytes are read the same way in pieces as in one.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: (u16, &[u8])| load::held::fuzz(input.1, usize::from(input.0)));
