//! Files of `firebrick record`: any bytes are read without a panic, in order, and each request has a group.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| load::fuzz_recorded(bytes));
