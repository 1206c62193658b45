//! The streams to which every page may listen without a signature (`hub.public_streams`).
//!
//! Why a list and not a switch: names of other streams, which the app signs for some, must stay closed.

/// Names of streams; one with `*` at its end stands for all that begin with what is before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublicStreams(Vec<Box<str>>);

impl PublicStreams {
    pub fn new<T: AsRef<str>>(patterns: impl IntoIterator<Item = T>) -> PublicStreams {
        PublicStreams(patterns.into_iter().map(|pattern| pattern.as_ref().into()).collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether every page may listen to the stream of this name.
    pub fn has(&self, name: &str) -> bool {
        !name.is_empty()
            && self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(beginning) => name.starts_with(beginning),
                None => **pattern == *name,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_streams_are_public() {
        let public = PublicStreams::new(["news", "chat/*"]);
        assert!(["news", "chat/", "chat/22", "chat/22*"].iter().all(|name| public.has(name)));
        assert!(["", "new", "news/2", "chat", "xchat/2", "*"].iter().all(|name| !public.has(name)));
        assert!(PublicStreams::new(["*"]).has("any") && !PublicStreams::new(["*"]).has(""));
        assert!(PublicStreams::default().is_empty() && !PublicStreams::default().has("news"));
    }
}
