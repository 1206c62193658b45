//! Accept-Encoding: no value makes the reader panic, what it ranks is what it accepts, and neither the order of the items, nor
//! their case, nor how they are spread over fields changes anything. Lines of the input are fields.
//! Run with `make fuzz FUZZ=accept_encoding`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use representation::coding::{Coding, Preferences};

fuzz_target!(|input: &[u8]| {
    let read = Preferences::read(input.split(|&byte| byte == b'\n'));
    let ranked: Vec<Coding> = read.ranked().collect();
    for coding in Coding::ALL {
        let places = ranked.iter().filter(|&&place| place == coding).count();
        assert_eq!(places, usize::from(read.accepts(coding)));
    }
    assert_eq!(read.best(|_| true), ranked.first().copied());
    assert_eq!(read.best(|_| false), None);

    let shouted = input.to_ascii_uppercase();
    assert_eq!(read, Preferences::read(shouted.split(|&byte| byte == b'\n')));
    let mut items: Vec<&[u8]> = input.split(|byte| b"\n,".contains(byte)).collect();
    items.reverse();
    assert_eq!(read, Preferences::read(items.iter().copied()));
    assert_eq!(read, Preferences::read([items.join(&b',').as_slice()]));
});
