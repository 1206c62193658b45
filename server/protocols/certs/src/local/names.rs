//! The names for which development certificates can be issued.

use std::net::IpAddr;

/// The permitted names, for people.
pub const COVERED: &str = "localhost, *.localhost, *.test, 127.0.0.0/8 and ::1";

/// Whether the authority may sign for this name: a DNS name, or an IP address as text.
pub fn covers(name: &str) -> bool {
    if let Ok(address) = name.parse::<IpAddr>() {
        return address.is_loopback();
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let labels = || name.split('.');
    let usable = |label: &str| {
        let byte = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(byte)
    };
    let below_test = name.ends_with(".test");
    let local = name == "localhost" || name.ends_with(".localhost");
    name.len() <= 253 && (below_test || local) && labels().all(usable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_this_machine_alone() {
        for name in
            ["localhost", "LOCALHOST", "app.localhost", "a.b.localhost.", "shop.test", "127.3.0.1", "::1"]
        {
            assert!(covers(name), "{name}");
        }
        for name in [
            "",
            "test",
            ".test",
            "a..test",
            "example.com",
            "localhost.example.com",
            "mylocalhost",
            "xtest",
            "192.168.0.1",
            "::2",
            "*.test",
            "a b.test",
            "é.test",
        ] {
            assert!(!covers(name), "{name}");
        }
        assert!(!covers(&format!("{}.test", "a".repeat(64))));
    }

    proptest! {
        #[test]
        fn what_is_covered_ends_in_a_reserved_name(name in "[a-z.*]{0,12}(\\.|)(localhost|test|com)\\.?") {
            if covers(&name) {
                let bare = name.trim_end_matches('.');
                let last = bare.rsplit('.').next().unwrap_or(bare);
                prop_assert!(last == "localhost" || last == "test");
            }
        }
    }
}
