//! The query of a request for events: `stream=SIGNED&stream=SIGNED&last_event_id=ID&presence=TOKEN&poll&refresh`.
//!
//! Contract: unknown parameters are ignored. `+` is a plus sign, because signed names are in Base64 and have no blanks.

use text::percent;

/// Returns the names and values of a query or a form, still encoded.
pub(crate) fn pairs(query: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    query.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let end = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        (&pair[..end], pair.get(end + 1..).unwrap_or_default())
    })
}

/// A request for events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// Signed names of streams.
    pub streams: Vec<String>,
    /// The id at which the client is; `None` if it is empty, too.
    pub last_event_id: Option<String>,
    /// The token of the member that the client is in one of the streams ([`crate::presence_token`]).
    pub presence: Option<String>,
    /// Long polling.
    pub polls: bool,
    /// A gap is a message to Turbo, which loads its page again.
    pub refreshes: bool,
}

impl EventQuery {
    /// Reads the query, which is still percent-encoded, with at most `most` streams.
    ///
    /// # Errors
    /// The text for the client names the parameter.
    pub fn parse(query: &[u8], most: usize) -> Result<EventQuery, String> {
        let mut read = EventQuery::default();
        for (name, value) in pairs(query) {
            let value = || {
                let decoded = percent::decode_strict(value)
                    .and_then(|decoded| String::from_utf8(decoded.into_owned()).ok());
                let name = name.escape_ascii();
                decoded.ok_or_else(|| format!("the parameter {name} is not percent-encoded UTF-8"))
            };
            match name {
                b"stream" => {
                    if read.streams.len() >= most {
                        return Err(format!("more than {most} streams; hub.max_subscriptions is the limit"));
                    }
                    read.streams.push(value()?);
                }
                b"last_event_id" => read.last_event_id = Some(value()?).filter(|id| !id.is_empty()),
                b"presence" => read.presence = Some(value()?).filter(|token| !token.is_empty()),
                b"poll" => read.polls = value()? != "0",
                b"refresh" => read.refreshes = value()? != "0",
                _ => {}
            }
        }
        match read.streams.is_empty() {
            true => Err("no stream: expected ?stream=SIGNED_NAME, once for each stream".to_owned()),
            false => Ok(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parameters_are_read() {
        let read = EventQuery::parse(
            b"stream=ab%2B%3D--1&x=%zz&stream=c+d&last_event_id=e%3A1&presence=a+b--1&poll",
            2,
        );
        let expected = EventQuery {
            streams: vec!["ab+=--1".to_owned(), "c+d".to_owned()],
            last_event_id: Some("e:1".to_owned()),
            presence: Some("a+b--1".to_owned()),
            polls: true,
            refreshes: false,
        };
        assert_eq!(read, Ok(expected));
        let read = EventQuery::parse(b"stream=a&refresh=1&poll=0&last_event_id=", 1).unwrap();
        assert_eq!((read.polls, read.refreshes, read.last_event_id), (false, true, None));
        for (query, expected) in [
            ("", "no stream"),
            ("poll=1", "no stream"),
            ("stream=%ff", "stream is not"),
            ("stream=a&last_event_id=%1", "last_event_id is not"),
            ("stream=a&stream=b&stream=c", "more than 2"),
        ] {
            let error = EventQuery::parse(query.as_bytes(), 2).unwrap_err();
            assert!(error.contains(expected), "{query}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_query_is_safe(query in "(stream|poll|refresh|last_event_id|presence|[a&=%]){0,8}[\\x00-\\x7f]{0,20}") {
            if let Ok(read) = EventQuery::parse(query.as_bytes(), 3) {
                prop_assert!((1..=3).contains(&read.streams.len()));
            }
        }
    }
}
