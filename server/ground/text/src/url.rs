//! Splits URLs into their parts, as written. Readers decide what a part may contain.

/// The parts of `scheme://authority/path?query#fragment`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UrlParts<'a> {
    pub scheme: &'a str,
    /// User, host and port.
    pub authority: &'a str,
    /// Path, query and fragment.
    pub rest: &'a str,
}

/// Splits a URL; `None` without `://`.
pub fn split(url: &str) -> Option<UrlParts<'_>> {
    let (scheme, behind) = url.split_once("://")?;
    let (authority, rest) = behind.split_at(behind.find(['/', '?', '#']).unwrap_or(behind.len()));
    Some(UrlParts { scheme, authority, rest })
}

/// Splits host and port; the host lacks the brackets of an IPv6 address. `None` if a bracket is not closed,
/// or something other than a port follows it.
pub fn host_and_port(authority: &str) -> Option<(&str, Option<&str>)> {
    let (host, behind) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    match behind.strip_prefix(':') {
        Some(port) => Some((host, Some(port))),
        None => behind.is_empty().then_some((host, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_are_split() {
        let parts = |url| split(url).map(|UrlParts { scheme, authority, rest }| (scheme, authority, rest));
        assert_eq!(parts("http://u@a.test:1/b?c#d"), Some(("http", "u@a.test:1", "/b?c#d")));
        assert_eq!(parts("https://a?b/c"), Some(("https", "a", "?b/c")));
        assert_eq!((parts("unix:///a"), parts("a/b")), (Some(("unix", "", "/a")), None));
    }

    #[test]
    fn hosts_are_split_from_ports() {
        assert_eq!(host_and_port("a.test:80"), Some(("a.test", Some("80"))));
        assert_eq!(host_and_port("[::1]:80"), Some(("::1", Some("80"))));
        assert_eq!([host_and_port("[::1]"), host_and_port("a")], [Some(("::1", None)), Some(("a", None))]);
        assert_eq!([host_and_port("a:"), host_and_port("")], [Some(("a", Some(""))), Some(("", None))]);
        assert_eq!([host_and_port("[::1"), host_and_port("[::1]80")], [None, None]);
    }

    proptest! {
        #[test]
        fn parts_make_up_the_whole(url in any::<String>()) {
            if let Some(parts) = split(&url) {
                prop_assert_eq!(format!("{}://{}{}", parts.scheme, parts.authority, parts.rest), url.as_str());
                let _ = host_and_port(parts.authority);
            }
        }
    }
}
