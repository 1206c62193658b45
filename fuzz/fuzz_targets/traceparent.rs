//! `traceparent`: any bytes are survived; what is accepted can be written and read again, and says the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trace::{Sampler, TraceParent};

fuzz_target!(|value: &[u8]| {
    let Some(parent) = TraceParent::parse(value) else { return };
    let written = parent.write();
    assert_eq!(TraceParent::parse(&written), Some(parent));
    assert!(value.len() >= written.len() && value[3..53] == written[3..53]);
    assert!(value.starts_with(b"00-") == (value.len() == written.len() && value[..2] == written[..2]));
    assert_eq!(Sampler::new(true, 0.5).decide(Some(&parent), &parent.trace), parent.is_sampled());
});
