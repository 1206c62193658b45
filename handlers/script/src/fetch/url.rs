//! URLs as handlers write them: [`Url`].

use h1::syntax;
use proxy::Origin;
use text::url::UrlParts;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) origin: Origin,
    /// The value of the Host field.
    pub(crate) authority: Vec<u8>,
    /// Path and query; starts with `/`.
    pub(crate) target: Vec<u8>,
}

impl Url {
    /// Parses `http://host:port/path?query`, `https://…`, `unix:/path.sock:/path` or H2O's
    /// `http://[unix:/path.sock]/path`. Drops a fragment.
    ///
    /// # Errors
    /// The text is not such a URL; the message shows the form.
    pub(crate) fn parse(text: &[u8]) -> Result<Url, String> {
        let wrong = |what: &str| {
            format!("\"{}\" is not a URL: {what}; write http://host:port/path?query", text.escape_ascii())
        };
        let text = std::str::from_utf8(text).map_err(|_| wrong("it is not UTF-8"))?;
        let whole = text.split('#').next().unwrap_or_default();
        let (origin, authority, target) =
            split(whole).ok_or_else(|| wrong("a scheme and a host are missing"))?;
        let target = match target.bytes().next() {
            None => "/".to_owned(),
            Some(b'/') => target.to_owned(),
            Some(_) => format!("/{target}"),
        };
        if !syntax::is_target(target.as_bytes()) {
            return Err(wrong("a byte in its path or query must be percent-encoded"));
        }
        let origin = Origin::parse(&origin).map_err(|why| wrong(&why))?;
        Ok(Url {
            origin,
            authority: authority.trim_end_matches(':').as_bytes().to_vec(),
            target: target.into_bytes(),
        })
    }
}

/// Splits a URL into origin, authority and target.
fn split(url: &str) -> Option<(String, &str, &str)> {
    if let Some(rest) = url.strip_prefix("unix:") {
        let (socket, target) = rest.split_once(':').unwrap_or((rest, ""));
        return Some((format!("unix:{socket}"), "localhost", target));
    }
    if let Some(rest) = url.strip_prefix("http://[unix:") {
        let (socket, target) = rest.split_once(']')?;
        return Some((format!("unix:{socket}"), "localhost", target));
    }
    let UrlParts { scheme, authority, rest } = text::url::split(url)?;
    Some((format!("{scheme}://{authority}"), authority, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_are_split() {
        for (text, origin, authority, target) in [
            ("http://h", "http://h", "h", "/"),
            ("http://h:81/a/b?c=d#e", "http://h:81", "h:81", "/a/b?c=d"),
            ("http://h?q", "http://h", "h", "/?q"),
            ("https://[::1]:8443/x", "https://[::1]:8443", "[::1]:8443", "/x"),
            ("unix:/run/a.sock:/x?y", "unix:/run/a.sock", "localhost", "/x?y"),
            ("unix:/run/a.sock", "unix:/run/a.sock", "localhost", "/"),
            ("http://[unix:/run/a.sock]/x", "unix:/run/a.sock", "localhost", "/x"),
        ] {
            let url = Url::parse(text.as_bytes()).unwrap();
            assert_eq!(url.origin.to_string(), origin, "{text}");
            assert_eq!((&*url.authority, &*url.target), (authority.as_bytes(), target.as_bytes()), "{text}");
        }
    }

    #[test]
    fn what_is_no_url_is_explained() {
        for (text, why) in [
            ("", "scheme and a host"),
            ("example.org/x", "scheme and a host"),
            ("ftp://h/", "neither http nor https"),
            ("http:///x", "malformed"),
            ("http://h/a b", "percent-encoded"),
            ("http://h/a\r\nX: y", "percent-encoded"),
            ("http://u:p@h/", "user names"),
        ] {
            let error = Url::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_sent_is_always_a_target(text in ".{0,80}") {
            if let Ok(url) = Url::parse(text.as_bytes()) {
                prop_assert!(url.target.starts_with(b"/") && syntax::is_target(&url.target));
            }
            if let Ok(url) = Url::parse(format!("http://host/{text}").as_bytes()) {
                prop_assert!(url.target.starts_with(b"/") && syntax::is_target(&url.target));
            }
        }
    }
}
