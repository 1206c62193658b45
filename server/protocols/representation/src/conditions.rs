//! Evaluates conditional requests (RFC 9110 section 13) for a representation: a file, a kept response. No I/O.

use crate::date;
use handler::Fields;
use std::time::{Duration, SystemTime};

/// Returns whether a field is a condition (RFC 9110 section 13.1).
#[inline]
pub fn is_condition(name: &[u8]) -> bool {
    match name.len() {
        8 => name.eq_ignore_ascii_case(b"if-match") || name.eq_ignore_ascii_case(b"if-range"),
        13 => name.eq_ignore_ascii_case(b"if-none-match"),
        17 => name.eq_ignore_ascii_case(b"if-modified-since"),
        _ => is_precondition(name),
    }
}

/// Returns whether a field is a condition that only an origin evaluates, not a cache (RFC 9111 section 4.3.2).
#[inline]
pub fn is_precondition(name: &[u8]) -> bool {
    match name.len() {
        8 => name.eq_ignore_ascii_case(b"if-match"),
        19 => name.eq_ignore_ascii_case(b"if-unmodified-since"),
        _ => false,
    }
}

/// The validators of a representation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validators<'a> {
    /// The opaque part of the entity tag, with quotes; `None` if the representation has no tag.
    pub tag: Option<&'a [u8]>,
    /// The tag is weak: equal tags mean equivalent content, not equal bytes.
    pub weak: bool,
    /// Last-Modified in whole seconds; never later than the request. `None` if there is no such field.
    pub modified: Option<SystemTime>,
    /// The time is that of the last change, not one set by a tool, so no other content has the same time.
    pub genuine: bool,
    /// When the request arrived.
    pub now: SystemTime,
}

/// The result of a request's conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConditionResult {
    /// Respond as if there were no conditions.
    Proceed,
    /// 304: the client has this version.
    NotModified,
    /// 412: the client expects another version.
    PreconditionFailed,
}

impl Validators<'_> {
    /// Evaluates the conditions for GET or HEAD, in the order of section 13.2.2.
    pub fn evaluate(&self, fields: &Fields) -> ConditionResult {
        if fields.get("if-match").is_some() {
            if !self.listed(fields, "if-match", Comparison::Strong) {
                return ConditionResult::PreconditionFailed;
            }
        } else if date_of(fields, "if-unmodified-since")
            .is_some_and(|limit| self.modified.is_some_and(|modified| modified > limit))
        {
            return ConditionResult::PreconditionFailed;
        }
        let fresh = match fields.get("if-none-match") {
            Some(_) => self.listed(fields, "if-none-match", Comparison::Weak),
            None => date_of(fields, "if-modified-since")
                .is_some_and(|have| self.modified.is_some_and(|modified| modified <= have)),
        };
        if fresh { ConditionResult::NotModified } else { ConditionResult::Proceed }
    }

    /// Returns whether a Range field applies: If-Range (section 13.1.5) is absent or names this version.
    pub fn range_counts(&self, fields: &Fields) -> bool {
        let Some(value) = fields.get("if-range").map(<[u8]>::trim_ascii) else { return true };
        if value.starts_with(b"\"") || value.starts_with(b"W/") {
            return !self.weak && Some(value) == self.tag;
        }
        // A date is strong enough only if the file cannot have changed twice in that second (section 8.8.2.2).
        let Some(modified) = self.modified.filter(|_| self.genuine) else { return false };
        let settled = self.now.duration_since(modified).is_ok_and(|age| age >= Duration::from_secs(2));
        settled && date::parse(value) == Some(modified)
    }

    fn listed(&self, fields: &Fields, name: &str, comparison: Comparison) -> bool {
        fields
            .all(name)
            .any(|value| value.trim_ascii() == b"*" || Tags(value).any(|tag| self.is(&tag, comparison)))
    }

    fn is(&self, tag: &Tag<'_>, comparison: Comparison) -> bool {
        let strong_enough = comparison == Comparison::Weak || !(tag.weak || self.weak);
        strong_enough && Some(tag.quoted) == self.tag
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

/// An entity tag (RFC 9110 section 8.8.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag<'a> {
    /// Written with `W/`.
    pub weak: bool,
    /// The opaque part, with quotes.
    pub quoted: &'a [u8],
}

impl<'a> Tag<'a> {
    /// Parses the value of an ETag field; `None` if it is malformed.
    pub fn parse(value: &'a [u8]) -> Option<Tag<'a>> {
        let mut tags = Tags(value);
        tags.next().filter(|_| tags.0.trim_ascii().is_empty())
    }
}

/// Iterates over a list of entity tags; stops at the first malformed one.
pub struct Tags<'a>(pub &'a [u8]);

impl<'a> Iterator for Tags<'a> {
    type Item = Tag<'a>;

    fn next(&mut self) -> Option<Tag<'a>> {
        let start = self.0.iter().position(|byte| !b" \t,".contains(byte))?;
        let text = &self.0[start..];
        let (weak, text) = match text.strip_prefix(b"W/") {
            Some(text) => (true, text),
            None => (false, text),
        };
        let inner = text.strip_prefix(b"\"")?;
        let (quoted, rest) = text.split_at(inner.iter().position(|&byte| byte == b'"')? + 2);
        self.0 = rest;
        Some(Tag { weak, quoted })
    }
}

fn date_of(fields: &Fields, name: &str) -> Option<SystemTime> {
    fields.get(name).and_then(date::parse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::UNIX_EPOCH;

    const EARLIER: &str = "Sat, 31 Jan 2026 11:59:59 GMT";
    const THEN: &str = "Sat, 31 Jan 2026 12:00:00 GMT";
    const LATER: &str = "Sat, 31 Jan 2026 12:00:01 GMT";

    const TAG: &str = "\"10-abc\"";

    fn file(age: u64) -> Validators<'static> {
        let modified = UNIX_EPOCH + Duration::from_secs(1_769_860_800);
        let now = modified + Duration::from_secs(age);
        Validators { tag: Some(TAG.as_bytes()), weak: false, modified: Some(modified), genuine: true, now }
    }

    fn fields(all: &[(&str, &str)]) -> Fields {
        let mut fields = Fields::default();
        all.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
        fields
    }

    fn verdict_of(all: &[(&str, &str)]) -> ConditionResult {
        file(60).evaluate(&fields(all))
    }

    #[test]
    fn if_none_match_compares_weakly_and_comes_before_dates() {
        let etag = TAG;
        let weak = format!("W/\"x,y\" , W/{etag}");
        assert_eq!(verdict_of(&[("If-None-Match", etag)]), ConditionResult::NotModified);
        assert_eq!(verdict_of(&[("If-None-Match", &weak)]), ConditionResult::NotModified);
        assert_eq!(verdict_of(&[("If-None-Match", "*")]), ConditionResult::NotModified);
        assert_eq!(
            verdict_of(&[("If-None-Match", "\"other\""), ("If-Modified-Since", LATER)]),
            ConditionResult::Proceed
        );
        assert_eq!(
            verdict_of(&[("If-None-Match", "\"other\""), ("If-None-Match", etag)]),
            ConditionResult::NotModified
        );
        assert_eq!(verdict_of(&[("If-None-Match", &etag[1..])]), ConditionResult::Proceed);
    }

    #[test]
    fn if_modified_since() {
        assert_eq!(verdict_of(&[("If-Modified-Since", EARLIER)]), ConditionResult::Proceed);
        assert_eq!(verdict_of(&[("If-Modified-Since", THEN)]), ConditionResult::NotModified);
        assert_eq!(
            verdict_of(&[("If-Modified-Since", "Saturday, 31-Jan-26 12:00:00 GMT")]),
            ConditionResult::NotModified
        );
        assert_eq!(verdict_of(&[("If-Modified-Since", "yesterday")]), ConditionResult::Proceed);
    }

    #[test]
    fn if_match_compares_strongly_and_comes_first() {
        let etag = TAG;
        let weak = format!("W/{etag}");
        assert_eq!(
            verdict_of(&[("If-Match", etag), ("If-Unmodified-Since", EARLIER)]),
            ConditionResult::Proceed
        );
        assert_eq!(verdict_of(&[("If-Match", "*")]), ConditionResult::Proceed);
        assert_eq!(verdict_of(&[("If-Match", &weak)]), ConditionResult::PreconditionFailed);
        assert_eq!(
            verdict_of(&[("If-Match", "\"other\""), ("If-None-Match", etag)]),
            ConditionResult::PreconditionFailed
        );
        assert_eq!(verdict_of(&[("If-Unmodified-Since", EARLIER)]), ConditionResult::PreconditionFailed);
        assert_eq!(verdict_of(&[("If-Unmodified-Since", THEN)]), ConditionResult::Proceed);
    }

    #[test]
    fn if_range_needs_a_strong_match() {
        let counts = |age, value: &str| file(age).range_counts(&fields(&[("If-Range", value)]));
        let etag = TAG;
        assert!(file(60).range_counts(&fields(&[])));
        assert!(counts(60, etag) && !counts(60, &format!("W/{etag}")) && !counts(60, "\"other\""));
        assert!(counts(60, THEN) && !counts(60, LATER) && !counts(60, EARLIER) && !counts(60, "soon"));
        assert!(!counts(1, THEN), "the file may have changed again within that second");
    }

    #[test]
    fn a_time_that_a_tool_has_set_is_no_strong_validator_and_one_that_says_nothing_is_none() {
        let set = Validators { genuine: false, ..file(60) };
        assert!(
            !set.range_counts(&fields(&[("If-Range", THEN)]))
                && set.range_counts(&fields(&[("If-Range", TAG)]))
        );
        assert_eq!(set.evaluate(&fields(&[("If-Modified-Since", THEN)])), ConditionResult::NotModified);
        let none = Validators { modified: None, ..file(60) };
        for name in ["If-Modified-Since", "If-Unmodified-Since"] {
            assert_eq!(none.evaluate(&fields(&[(name, THEN)])), ConditionResult::Proceed, "{name}");
        }
        assert!(!none.range_counts(&fields(&[("If-Range", THEN)])));
    }

    #[test]
    fn a_weak_tag_never_matches_strongly() {
        let weak = Validators { weak: true, ..file(60) };
        let tag = format!("W/{TAG}");
        assert_eq!(weak.evaluate(&fields(&[("If-None-Match", &tag)])), ConditionResult::NotModified);
        assert_eq!(weak.evaluate(&fields(&[("If-None-Match", TAG)])), ConditionResult::NotModified);
        assert_eq!(weak.evaluate(&fields(&[("If-Match", &tag)])), ConditionResult::PreconditionFailed);
        assert!(!weak.range_counts(&fields(&[("If-Range", TAG)])));
    }

    proptest! {
        #[test]
        fn any_bytes_are_evaluated(value: Vec<u8>, name in prop::sample::select(vec!["if-match", "if-none-match", "if-range"])) {
            let mut fields = Fields::default();
            fields.push(name.as_bytes(), &value);
            let _ = file(60).range_counts(&fields);
            let verdict = file(60).evaluate(&fields);
            prop_assert!(name != "if-none-match" || verdict != ConditionResult::PreconditionFailed);
        }
    }
}
