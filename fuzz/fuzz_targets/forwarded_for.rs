//! X-Forwarded-For: no value makes the reader panic; what it finds is written in the value and can be read again; what stands before the
//! client, which anybody can write, changes nothing; and two fields say the same as one. Lines of the input are fields.
//! Run with `make fuzz FUZZ=forwarded_for`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use handler::address::{forwarded, parse};
use std::net::IpAddr;

/// Half of all addresses are those of proxies.
fn is_proxy(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets()[0] < 128,
        IpAddr::V6(address) => address.octets()[0] < 128,
    }
}

fuzz_target!(|input: &[u8]| {
    let fields: Vec<&[u8]> = input.split(|&byte| byte == b'\n').collect();
    let found = forwarded(fields.iter().rev().copied(), is_proxy);
    let joined = fields.join(&b',');
    assert_eq!(forwarded([joined.as_slice()].into_iter(), is_proxy), found);
    let Some((word, address)) = found else { return };
    assert_eq!(parse(word), Some(address));
    assert!(fields.iter().any(|field| field.windows(word.len()).any(|part| part == word)));
    if !is_proxy(address) {
        let forged = [b"192.0.2.1,".as_slice(), &joined].concat();
        assert_eq!(forwarded([forged.as_slice()].into_iter(), is_proxy), found);
    }
});
