//! A file of kept responses: no content makes the reader panic, and what it reads can be written and read again. The digest is made right, so that the
//! content behind it is reached.
//! Run with `make fuzz FUZZ=cache_file`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sha2::{Digest, Sha256};

fuzz_target!(|input: &[u8]| {
    let all = [b"FBC1", &Sha256::digest(input)[..], input].concat();
    cache::fuzzing::file(&all.into());
    cache::fuzzing::file(&input.to_vec().into());
});
