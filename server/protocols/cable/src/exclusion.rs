//! Messages that one client does not get, mostly the one that has caused them: `{"$except":"00000000000000ff","message":{…}}`.
//!
//! Why: the exclusion has to travel with the message, over Redis, and in an upgrade. As a part of the payload it needs no form of its own there.
//! The key marks it; publishers of the app cannot use it ([`crate::publication`]).

/// The number of a client's session, which its welcome names in hexadecimal digits.
pub type SessionId = u64;

/// The beginning of the payload, up to the digits, and what follows them.
const OPENING: &str = "{\"$except\":\"";
const BETWEEN: &str = "\",\"message\":";
/// The digits of a number.
const DIGITS: usize = 16;

/// Returns the number as the client knows it.
pub fn session_text(session: SessionId) -> String {
    format!("{session:0DIGITS$x}")
}

/// Reads the number of a session; `None` for what is none of this server's.
pub fn session_of(text: &str) -> Option<SessionId> {
    let is_one = text.len() == DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_one.then(|| SessionId::from_str_radix(text, 16).ok())?
}

/// Returns the payload of a message that all clients but this one get.
pub fn excluding(session: SessionId, message: &str) -> String {
    format!("{OPENING}{}{BETWEEN}{message}}}", session_text(session))
}

/// Returns the client that does not get a message, and the message.
pub fn parts(payload: &str) -> (Option<SessionId>, &str) {
    let read = || {
        let (session, rest) = payload.strip_prefix(OPENING)?.split_at_checked(DIGITS)?;
        Some((session_of(session)?, rest.strip_prefix(BETWEEN)?.strip_suffix('}')?))
    };
    read().map_or((None, payload), |(session, message)| (Some(session), message))
}

/// Whether a payload has the mark.
pub(crate) fn is_marked(payload: &str) -> bool {
    payload.starts_with(OPENING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_whole_marks_count() {
        let marked = excluding(255, "{\"a\":1}");
        assert_eq!(marked, "{\"$except\":\"00000000000000ff\",\"message\":{\"a\":1}}");
        assert_eq!(parts(&marked), (Some(255), "{\"a\":1}"));
        for other in
            ["{}", "1", "", "{\"$except\":\"ff\",\"message\":1}", "{\"$except\":\"00000000000000ff\"}"]
        {
            assert_eq!(parts(other), (None, other));
        }
        for other in ["ff", "", "00000000000000FF", "+0000000000000ff", "00000000000000ä"] {
            assert_eq!(session_of(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn what_is_marked_is_read(session: u64, message in any::<String>()) {
            let marked = excluding(session, &message);
            prop_assert_eq!(parts(&marked), (Some(session), &*message));
            prop_assert_eq!(session_of(&session_text(session)), Some(session));
        }
    }
}
