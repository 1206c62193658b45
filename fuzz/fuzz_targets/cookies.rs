//! Cookies: no field makes the reader panic; what it finds is a part of the field without a semicolon; a cookie that is added at the
//! end is found last; and two fields say the same as one. Lines of the input are fields.
//! Run with `make fuzz FUZZ=cookies`.
#![no_main]

use handler::{Fields, cookies};
use libfuzzer_sys::fuzz_target;

fn fields(values: &[&[u8]]) -> Fields {
    let mut fields = Fields::default();
    values.iter().for_each(|value| fields.push(b"Cookie", value));
    fields
}

fuzz_target!(|input: &[u8]| {
    let lines: Vec<&[u8]> = input.split(|&byte| byte == b'\n').collect();
    let several = fields(&lines);
    let found: Vec<&[u8]> = cookies(&several, "a").collect();
    for value in &found {
        assert!(!value.contains(&b';'));
        assert!(lines.iter().any(|line| value.is_empty() || line.windows(value.len()).any(|part| part == *value)));
    }
    let joined = lines.join(b"; ".as_slice());
    let one = fields(&[&joined]);
    assert_eq!(cookies(&one, "a").collect::<Vec<_>>(), found);
    let more = fields(&[&joined, b"a=1"]);
    assert_eq!(cookies(&more, "a").collect::<Vec<_>>(), [found, vec![b"1".as_slice()]].concat());
});
