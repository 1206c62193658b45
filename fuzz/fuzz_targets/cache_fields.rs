//! Cache-Control, CDN-Cache-Control and Vary: no value makes a reader panic, and `no-store` is found wherever it stands by itself. Lines of the input are
//! values, each for all fields.
//! Run with `make fuzz FUZZ=cache_fields`.
#![no_main]

use handler::Fields;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut fields = Fields::default();
    for value in input.split(|&byte| byte == b'\n') {
        for name in ["Cache-Control", "CDN-Cache-Control", "Vary", "Accept-Language", "Forwarded"] {
            fields.push(name.as_bytes(), value);
        }
    }
    cache::fuzzing::fields(&fields, &fields);
    fields.push(b"Cache-Control", b"no-store");
    assert!(cache::fuzzing::fields(&fields, &fields));
});
