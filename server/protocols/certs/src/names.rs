//! Converts and compares the names of certificates.

use instant_acme::Identifier;
use std::net::IpAddr;

/// Returns the name as an ACME identifier.
pub fn identifier(name: &str) -> Identifier {
    name.parse::<IpAddr>().map_or_else(|_| Identifier::Dns(name.to_owned()), Identifier::Ip)
}

/// Whether two lists contain the same names, in any order and case.
pub fn same(have: &[String], wanted: &[String]) -> bool {
    let sorted = |names: &[String]| {
        let mut names: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    sorted(have) == sorted(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_names() {
        let names = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(same(&names("b.test a.test"), &names("a.test B.test")));
        assert!(!same(&names("a.test"), &names("a.test b.test")));
    }
}
