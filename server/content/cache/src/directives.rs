//! Parses Cache-Control (RFC 9111 section 5.2, RFC 5861) of requests and responses.
//!
//! Contract:
//! 1. Names have any case; values are tokens or quoted strings. An unknown directive is ignored.
//! 2. A lifetime that is not a number of seconds counts as 0, so the response is stale (section 4.2.1). A
//!    number is at most 2^31.
//! 3. If a directive is repeated with two lifetimes, the shorter one counts.

use handler::Fields;

/// Seconds that stand for all larger numbers (RFC 9111 section 1.2.2).
const MOST: u64 = 1 << 31;

/// The names of fields in `no-cache="Name"` or `private="Name"`, in lower case.
pub(crate) type FieldNames = Vec<Box<[u8]>>;

/// The Cache-Control directives of a response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResponseDirectives {
    pub(crate) no_store: bool,
    pub(crate) no_cache: bool,
    pub(crate) private: bool,
    pub(crate) public: bool,
    pub(crate) must_revalidate: bool,
    pub(crate) proxy_revalidate: bool,
    pub(crate) must_understand: bool,
    /// In seconds, like all times here.
    pub(crate) max_age: Option<u64>,
    pub(crate) s_maxage: Option<u64>,
    pub(crate) stale_while_revalidate: Option<u64>,
    pub(crate) stale_if_error: Option<u64>,
    /// Fields that a kept response must not be sent with before it is validated.
    pub(crate) no_cache_fields: FieldNames,
    /// Fields that are not kept.
    pub(crate) private_fields: FieldNames,
}

/// The Cache-Control directives of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RequestDirectives {
    pub(crate) no_store: bool,
    pub(crate) no_cache: bool,
    pub(crate) only_if_cached: bool,
    pub(crate) max_age: Option<u64>,
    pub(crate) min_fresh: Option<u64>,
    /// `Some(u64::MAX)`: any staleness is accepted.
    pub(crate) max_stale: Option<u64>,
}

impl ResponseDirectives {
    /// Reads the Cache-Control fields of a response.
    pub(crate) fn of(fields: &Fields) -> ResponseDirectives {
        let mut read = ResponseDirectives::default();
        for value in fields.all("cache-control") {
            for (name, value) in Directives(value) {
                read.take(name, value.as_deref());
            }
        }
        read
    }

    /// Adds a directive.
    pub(crate) fn take(&mut self, name: &[u8], value: Option<&[u8]>) {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        let shorter = |known: &mut Option<u64>| *known = Some(known.unwrap_or(u64::MAX).min(lifetime(value)));
        match name.len() {
            6 if is("public") => self.public = true,
            7 if is("private") => match names(value) {
                Some(names) => self.private_fields.extend(names),
                None => self.private = true,
            },
            7 if is("max-age") => shorter(&mut self.max_age),
            8 if is("no-store") => self.no_store = true,
            8 if is("no-cache") => match names(value) {
                Some(names) => self.no_cache_fields.extend(names),
                None => self.no_cache = true,
            },
            8 if is("s-maxage") => shorter(&mut self.s_maxage),
            14 if is("stale-if-error") => shorter(&mut self.stale_if_error),
            15 if is("must-revalidate") => self.must_revalidate = true,
            15 if is("must-understand") => self.must_understand = true,
            16 if is("proxy-revalidate") => self.proxy_revalidate = true,
            22 if is("stale-while-revalidate") => shorter(&mut self.stale_while_revalidate),
            _ => {}
        }
    }
}

impl RequestDirectives {
    /// Reads the Cache-Control fields of a request; without any, Pragma (section 5.4).
    pub(crate) fn of(fields: &Fields) -> RequestDirectives {
        let mut read = RequestDirectives::default();
        let mut any = false;
        for value in fields.all("cache-control") {
            any = true;
            for (name, value) in Directives(value) {
                read.take(name, value.as_deref());
            }
        }
        if !any && fields.lists("pragma", "no-cache") {
            read.no_cache = true;
        }
        read
    }

    fn take(&mut self, name: &[u8], value: Option<&[u8]>) {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        // A directive with an invalid number is ignored: a client's mistake must not make a response stale.
        let number = || value.and_then(seconds);
        match name.len() {
            7 if is("max-age") => self.max_age = number().or(self.max_age),
            8 if is("no-store") => self.no_store = true,
            8 if is("no-cache") => self.no_cache = true,
            9 if is("min-fresh") => self.min_fresh = number().or(self.min_fresh),
            9 if is("max-stale") => self.max_stale = if value.is_some() { number() } else { Some(u64::MAX) },
            14 if is("only-if-cached") => self.only_if_cached = true,
            _ => {}
        }
    }
}

/// Returns the number of seconds; `None` if the value is not digits.
pub(crate) fn seconds(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    digits.then(|| value.iter().fold(0, |sum: u64, digit| (sum * 10 + u64::from(digit - b'0')).min(MOST)))
}

fn lifetime(value: Option<&[u8]>) -> u64 {
    value.and_then(seconds).unwrap_or(0)
}

/// Returns the field names in the argument of `no-cache` or `private`; `None` without an argument, when the
/// directive concerns the whole response.
fn names(value: Option<&[u8]>) -> Option<impl Iterator<Item = Box<[u8]>> + '_> {
    let names = value?.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|name| !name.is_empty());
    // An argument without names is treated as no argument, which is stricter.
    names.clone().next()?;
    Some(names.map(|name| name.to_ascii_lowercase().into()))
}

/// Iterates over the directives of one field: names, and values without quotes.
struct Directives<'a>(&'a [u8]);

impl<'a> Iterator for Directives<'a> {
    type Item = (&'a [u8], Option<std::borrow::Cow<'a, [u8]>>);

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.0.iter().position(|byte| !b" \t,".contains(byte))?;
        let rest = &self.0[start..];
        let end = rest.iter().position(|byte| b"=,".contains(byte)).unwrap_or(rest.len());
        let name = rest[..end].trim_ascii();
        let Some(after) = rest[end..].strip_prefix(b"=") else {
            self.0 = &rest[end..];
            return Some((name, None));
        };
        let after = after.trim_ascii_start();
        if let Some(quoted) = after.strip_prefix(b"\"") {
            let (value, rest) = unquote(quoted);
            // Text between the quote and the comma belongs to no directive.
            self.0 = &rest[rest.iter().position(|&byte| byte == b',').unwrap_or(rest.len())..];
            return Some((name, Some(value)));
        }
        let end = after.iter().position(|&byte| byte == b',').unwrap_or(after.len());
        self.0 = &after[end..];
        Some((name, Some(after[..end].trim_ascii().into())))
    }
}

/// Returns the text of a quoted string (RFC 9110 section 5.6.4) after its first quote, and the rest. Without
/// a second quote, all of it is the text.
fn unquote(text: &[u8]) -> (std::borrow::Cow<'_, [u8]>, &[u8]) {
    let mut plain = Vec::new();
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'"' => return (plain.into(), &text[at + 1..]),
            b'\\' if at + 1 < text.len() => {
                plain.push(text[at + 1]);
                at += 2;
            }
            byte => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    (plain.into(), &[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn response(values: &[&str]) -> ResponseDirectives {
        let mut fields = Fields::default();
        values.iter().for_each(|value| fields.push(b"Cache-Control", value.as_bytes()));
        ResponseDirectives::of(&fields)
    }

    fn request(value: &str) -> RequestDirectives {
        let mut fields = Fields::default();
        fields.push(b"Cache-Control", value.as_bytes());
        RequestDirectives::of(&fields)
    }

    #[test]
    fn directives_have_any_case_and_stand_in_several_fields() {
        let read = response(&["Public, MAX-AGE=60", "s-maxage = 120 , Stale-While-Revalidate=30"]);
        assert!(read.public && !read.private);
        assert_eq!(
            (read.max_age, read.s_maxage, read.stale_while_revalidate),
            (Some(60), Some(120), Some(30))
        );
    }

    #[test]
    fn lifetimes_that_cannot_be_read_are_0_and_large_ones_are_bounded() {
        for wrong in ["max-age=-1", "max-age='60'", "max-age=1.5", "max-age=", "max-age", "max-age=a60"] {
            assert_eq!(response(&[wrong]).max_age, Some(0), "{wrong}");
        }
        for (text, seconds) in
            [("max-age=003600", 3600), ("max-age=\"60\"", 60), ("max-age=99999999999999999999", MOST)]
        {
            assert_eq!(response(&[text]).max_age, Some(seconds), "{text}");
        }
        assert_eq!(response(&["max-age=60, max-age=10"]).max_age, Some(10));
    }

    #[test]
    fn quoted_text_is_no_directive() {
        assert_eq!(response(&["extension=\"max-age=3600\", max-age=1"]).max_age, Some(1));
        assert_eq!(response(&["x=\"a\\\"b, no-store\", max-age=2"]).max_age, Some(2));
        assert!(!response(&["x=\"a\\\"b, no-store\", max-age=2"]).no_store);
        assert!(!response(&["x=\", no-store"]).no_store);
    }

    #[test]
    fn arguments_name_fields() {
        let read = response(&["no-cache=\"Set-Cookie, X-One\", private=\"X-Two\""]);
        assert!(!read.no_cache && !read.private);
        assert_eq!(read.no_cache_fields, [&b"set-cookie"[..], b"x-one"].map(Box::from));
        assert_eq!(read.private_fields, [Box::from(&b"x-two"[..])]);
        assert!(response(&["no-cache=\"\""]).no_cache && response(&["private"]).private);
    }

    #[test]
    fn requests() {
        let read = request("no-cache, max-age=5, min-fresh=x, max-stale");
        assert!(read.no_cache && !read.no_store);
        assert_eq!((read.max_age, read.min_fresh, read.max_stale), (Some(5), None, Some(u64::MAX)));
        assert_eq!(request("max-stale=7").max_stale, Some(7));
        let mut fields = Fields::default();
        fields.push(b"Pragma", b"no-cache");
        assert!(RequestDirectives::of(&fields).no_cache);
        fields.push(b"Cache-Control", b"max-stale");
        assert!(!RequestDirectives::of(&fields).no_cache);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(value: Vec<u8>) {
            let mut fields = Fields::default();
            fields.push(b"Cache-Control", &value);
            let read = ResponseDirectives::of(&fields);
            prop_assert!(read.max_age.is_none_or(|age| age <= MOST));
            let _ = RequestDirectives::of(&fields);
        }

        #[test]
        fn no_store_is_found_wherever_it_stands(before in "[a-z0-9, ]{0,20}(, [a-z]{1,5}=\"[a-z=, ]{0,9}\")?", after in "[a-z=0-9, ]{0,20}") {
            let value = format!("{before}, no-store, {after}");
            prop_assert!(response(&[&value]).no_store, "{value}");
        }
    }
}
