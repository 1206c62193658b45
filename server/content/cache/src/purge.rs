//! Says what is purged.

use crate::key;

/// A set of kept responses that are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purge {
    All,
    /// A path with its query, or with all queries if none is given; on one host if a URL is given, else on
    /// all.
    Path(String),
    /// All paths, or URLs, that begin with the text.
    Prefix(String),
    /// The responses that have named this tag in Surrogate-Key or Cache-Tag.
    Tag(String),
}

impl Purge {
    /// Parses a path or URL as users type it; `*` at the end matches everything that follows.
    ///
    /// # Errors
    /// The text names the expected form.
    pub fn parse(text: &str) -> Result<Purge, String> {
        let fits = text.starts_with('/') || text.starts_with("http://") || text.starts_with("https://");
        if !fits || text.contains(char::is_whitespace) {
            return Err(format!(
                "{text:?} is neither a path nor a URL: write /posts/12, /posts/* or https://example.org/posts/12"
            ));
        }
        Ok(match text.strip_suffix('*') {
            Some(prefix) => Purge::Prefix(prefix.to_owned()),
            None => Purge::Path(text.to_owned()),
        })
    }

    /// Returns whether the purge matches a key with these tags.
    pub(crate) fn matches<'a, T>(&self, key: &[u8], tags: impl FnOnce() -> T) -> bool
    where
        T: Iterator<Item = &'a Box<[u8]>>,
    {
        match self {
            Purge::All => true,
            Purge::Tag(tag) => tags().any(|known| **known == *tag.as_bytes()),
            Purge::Prefix(prefix) => part(key, prefix).starts_with(prefix.as_bytes()),
            Purge::Path(path) => {
                let part = part(key, path);
                part == path.as_bytes()
                    || part.strip_prefix(path.as_bytes()).is_some_and(|rest| rest.starts_with(b"?"))
            }
        }
    }
}

/// Returns the part of a key that is compared: the whole for a URL, the path and query otherwise.
fn part<'a>(key: &'a [u8], text: &str) -> &'a [u8] {
    if text.starts_with('/') { key::path(key) } else { key }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(text: &str, key: &str) -> bool {
        Purge::parse(text).unwrap().matches(key.as_bytes(), std::iter::empty)
    }

    #[test]
    fn paths_and_urls() {
        assert!(
            matches("/a", "http://one/a")
                && matches("/a", "https://two/a?b=1")
                && !matches("/a", "http://one/ab")
        );
        assert!(matches("/a?b=1", "http://one/a?b=1") && !matches("/a?b=1", "http://one/a?b=12"));
        assert!(matches("http://one/a", "http://one/a?x") && !matches("http://one/a", "http://two/a"));
        assert!(
            matches("/a*", "http://one/abc/d")
                && matches("/*", "http://one/")
                && !matches("/b*", "http://one/a")
        );
        assert!(matches("https://one/*", "https://one/x") && !matches("https://one/*", "http://one/x"));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "posts", "ftp://a/", "*", "/a b"] {
            assert!(Purge::parse(text).unwrap_err().contains("neither a path nor a URL"), "{text}");
        }
    }

    #[test]
    fn tags_match_exactly() {
        let tags: Vec<Box<[u8]>> = vec![Box::from(&b"post-12"[..]), Box::from(&b"posts"[..])];
        let tagged = |tag: &str| Purge::Tag(tag.into()).matches(b"http://a/", || tags.iter());
        assert!(tagged("post-12") && tagged("posts") && !tagged("post") && !tagged("post-1"));
    }
}
