//! Compares the path of a request with the paths of a pool.
//!
//! Contract: a path is compared byte by byte as it appears in the request, which is also the app's PATH_INFO.
//! Nothing is decoded, and slashes are not merged. So `/%65vents` and `//events` differ from `/events`, as
//! for an app that uses PATH_INFO.

/// Returns the length of the longest prefix that equals the path or a part of it that ends before a slash.
/// Prefixes have no slash at their end; the root is empty.
#[inline]
pub(crate) fn longest(prefixes: &[String], path: &[u8]) -> Option<usize> {
    let is_one = |prefix: &&String| {
        path.strip_prefix(prefix.as_bytes()).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
    };
    prefixes.iter().filter(is_one).map(String::len).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn include(prefixes: &[String], path: &[u8]) -> bool {
        longest(prefixes, path).is_some()
    }

    #[test]
    fn a_prefix_is_a_path_and_all_below_it() {
        let prefixes = ["/events".to_owned(), "/a/b".to_owned()];
        assert_eq!(longest(&["/a".to_owned(), "/a/b".to_owned(), String::new()], b"/a/b/c"), Some(4));
        let within = ["/events", "/events/", "/events/1", "/events//x", "/a/b", "/a/b/c"];
        let others = [
            "/",
            "",
            "*",
            "/event",
            "/eventsource",
            "/Events",
            "/%65vents",
            "//events",
            "/x/events",
            "/a",
            "/a/bc",
        ];
        assert!(within.iter().all(|path| include(&prefixes, path.as_bytes())));
        assert!(others.iter().all(|path| !include(&prefixes, path.as_bytes())));
    }

    #[test]
    fn the_root_is_every_path_and_no_prefix_is_none() {
        assert!(["/", "/x", ""].iter().all(|path| include(&[String::new()], path.as_bytes())));
        // `OPTIONS *` addresses the server, not a path.
        assert!(!include(&[String::new()], b"*"));
        assert!(!include(&[], b"/"));
    }

    proptest! {
        /// The same result as comparing both as lists of segments.
        #[test]
        fn segments_decide(prefix in "(/[ab%.]{1,2}){1,3}", path in "(/[ab%.]{0,2}){1,5}") {
            let segments = |text: &str| text.split('/').map(str::to_owned).collect::<Vec<_>>();
            let expected = segments(&path).starts_with(&segments(&prefix));
            prop_assert_eq!(include(std::slice::from_ref(&prefix), path.as_bytes()), expected);
        }
    }
}
