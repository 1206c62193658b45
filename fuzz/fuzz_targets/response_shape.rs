//! The shapes of responses that a reload compares: any body of JSON, HTML or another type, and any fields, are read without a panic; a shape is
//! bounded, and always the same. The first line of the input is the media type, the second one a field, the rest the body.
//! Run with `make fuzz FUZZ=response_shape`.
#![no_main]

use handler::Fields;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(3, |&byte| byte == b'\n');
    let mut next = || parts.next().unwrap_or_default();
    let (media_type, field, body) = (next(), next(), next());
    let (name, value) = field.split_at(field.iter().position(|&byte| byte == b':').unwrap_or(field.len()));
    let mut fields = Fields::default();
    fields.push(b"Content-Type", media_type);
    fields.push(name, value.strip_prefix(b":").unwrap_or(value));
    let shape = || workers::shadow::shape(200, &fields, body, body.len() as u64);
    let one = shape();
    assert!(one.parts().count() <= 1000);
    assert!(one.parts().all(|(name, value)| name.len() <= 200 && value.len() <= 200));
    assert_eq!(one, shape());
});
