//! Range: no value makes the reader panic or overflow, and every part that it gives is inside of the file and apart from the
//! others. The first nine bytes say how long the file is. Run with `make fuzz FUZZ=byte_ranges`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use representation::byteranges::{Ranges, parse};

fuzz_target!(|input: &[u8]| {
    let Some((&[shift, ref long @ ..], value)) = input.split_first_chunk::<9>() else { return };
    let len = u64::from_be_bytes(*long) >> (shift % 64);
    let ranges = parse(value, len);
    match &ranges {
        Ranges::Whole | Ranges::Unsatisfiable => {}
        Ranges::One(part) => assert!(part.start < part.end && part.end <= len),
        Ranges::Several(parts) => {
            assert!((2..=32).contains(&parts.len()));
            let mut sorted = parts.clone();
            sorted.sort_by_key(|part| part.start);
            assert!(sorted.iter().all(|part| part.start < part.end && part.end <= len));
            assert!(sorted.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }
    // An empty item is as if it were not there (RFC 9110 section 5.6.1.2).
    assert_eq!(ranges, parse(&[value, b" ,"].concat(), len));
});
