//! Parses CDN-Cache-Control (RFC 9213): a dictionary of structured fields (RFC 9651) that overrides
//! Cache-Control and Expires in this cache.
//!
//! Contract: a field that is not a valid dictionary, or whose known members have the wrong type, is ignored
//! as a whole; then Cache-Control applies.

use crate::directives::ResponseDirectives;
use handler::Fields;

/// A value of the dictionary, of a type that directives use.
#[derive(Debug, PartialEq, Eq)]
enum Bare<'a> {
    Integer(i64),
    Boolean(bool),
    /// A string, without its quotes but with escapes.
    Text(&'a [u8]),
    /// A token, decimal, date or byte sequence.
    Other,
}

/// Reads the field; `None` if there is none, or if it is invalid or empty.
pub(crate) fn read(fields: &Fields) -> Option<ResponseDirectives> {
    let mut values = fields.all("cdn-cache-control");
    let mut all = values.next()?.to_vec();
    for value in values {
        all.push(b',');
        all.extend_from_slice(value);
    }
    let mut text = Text(&all);
    let mut directives = ResponseDirectives::default();
    text.blanks();
    if text.0.is_empty() {
        return None;
    }
    loop {
        let name = text.key()?;
        let value = if text.skip(b'=') { text.item_or_list()? } else { Bare::Boolean(true) };
        text.parameters()?;
        take(&mut directives, name, value)?;
        text.optional_blanks();
        if text.0.is_empty() {
            return Some(directives);
        }
        if !text.skip(b',') {
            return None;
        }
        text.optional_blanks();
        if text.0.is_empty() {
            // A comma at the end.
            return None;
        }
    }
}

/// Adds a member. `None` if its type is wrong.
fn take(directives: &mut ResponseDirectives, name: &[u8], value: Bare<'_>) -> Option<()> {
    let timed = [&b"max-age"[..], b"s-maxage", b"stale-while-revalidate", b"stale-if-error"].contains(&name);
    match value {
        Bare::Integer(number) if timed => {
            let number = u64::try_from(number).unwrap_or(0).to_string();
            // The last member of a name counts (RFC 9651 section 4.2.2).
            match name {
                b"max-age" => directives.max_age = None,
                b"s-maxage" => directives.s_maxage = None,
                b"stale-if-error" => directives.stale_if_error = None,
                _ => directives.stale_while_revalidate = None,
            }
            directives.take(name, Some(number.as_bytes()));
        }
        _ if timed => return None,
        Bare::Boolean(true) => directives.take(name, None),
        Bare::Text(names) => directives.take(name, Some(names)),
        Bare::Integer(_) | Bare::Boolean(false) | Bare::Other => {}
    }
    Some(())
}

struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    fn skip(&mut self, byte: u8) -> bool {
        let rest = self.0.strip_prefix(&[byte]);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn blanks(&mut self) {
        while self.skip(b' ') {}
    }

    fn optional_blanks(&mut self) {
        while self.skip(b' ') || self.skip(b'\t') {}
    }

    fn take_while(&mut self, matches: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.0.iter().position(|&byte| !matches(byte)).unwrap_or(self.0.len());
        let (taken, rest) = self.0.split_at(end);
        self.0 = rest;
        taken
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        let begins = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'*';
        self.0.first().filter(|byte| begins(byte))?;
        Some(
            self.take_while(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte)
            }),
        )
    }

    fn parameters(&mut self) -> Option<()> {
        while self.skip(b';') {
            self.blanks();
            self.key()?;
            if self.skip(b'=') {
                self.bare()?;
            }
        }
        Some(())
    }

    fn item_or_list(&mut self) -> Option<Bare<'a>> {
        if !self.skip(b'(') {
            return self.bare();
        }
        loop {
            self.blanks();
            if self.skip(b')') {
                return Some(Bare::Other);
            }
            self.bare()?;
            self.parameters()?;
            self.0.first().filter(|byte| matches!(byte, b' ' | b')'))?;
        }
    }

    fn bare(&mut self) -> Option<Bare<'a>> {
        match self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b'?' => {
                self.skip(b'?');
                match self.0.split_first()? {
                    (b'0', rest) => (self.0 = rest, Some(Bare::Boolean(false))).1,
                    (b'1', rest) => (self.0 = rest, Some(Bare::Boolean(true))).1,
                    _ => None,
                }
            }
            b':' => {
                self.skip(b':');
                self.take_while(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
                self.skip(b':').then_some(Bare::Other)
            }
            b'@' => {
                self.skip(b'@');
                self.number()?;
                Some(Bare::Other)
            }
            byte if byte.is_ascii_alphabetic() || *byte == b'*' => {
                self.take_while(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte));
                Some(Bare::Other)
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Option<Bare<'a>> {
        let negative = self.skip(b'-');
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        if !(1..=15).contains(&digits.len()) {
            return None;
        }
        if self.skip(b'.') {
            let fraction = self.take_while(|byte| byte.is_ascii_digit());
            return ((1..=3).contains(&fraction.len()) && digits.len() <= 12).then_some(Bare::Other);
        }
        let number = digits.iter().fold(0_i64, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        Some(Bare::Integer(if negative { -number } else { number }))
    }

    fn string(&mut self) -> Option<Bare<'a>> {
        self.skip(b'"');
        let start = self.0;
        loop {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            match byte {
                b'"' => return Some(Bare::Text(&start[..start.len() - self.0.len() - 1])),
                b'\\' => {
                    let (_, rest) = self.0.split_first().filter(|(byte, _)| b"\"\\".contains(byte))?;
                    self.0 = rest;
                }
                b' '..=b'~' => {}
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[&str]) -> Option<ResponseDirectives> {
        let mut fields = Fields::default();
        values.iter().for_each(|value| fields.push(b"CDN-Cache-Control", value.as_bytes()));
        read(&fields)
    }

    #[test]
    fn a_dictionary_is_read() {
        let read = of(&[
            "max-age=60, private;a=1;b=\"x\", no-cache=\"X-One\"",
            "foo=(a \"b\" 1);q=0.5, stale-if-error=7",
        ])
        .unwrap();
        assert!(read.private && read.max_age == Some(60) && read.stale_if_error == Some(7));
        assert_eq!(read.no_cache_fields.len(), 1);
        assert_eq!(of(&["max-age=60, max-age=100"]).unwrap().max_age, Some(100));
        assert_eq!(of(&["max-age=-5"]).unwrap().max_age, Some(0));
        assert!(!of(&["no-store=?0, max-age=5"]).unwrap().no_store);
    }

    #[test]
    fn an_invalid_field_is_ignored() {
        for text in [
            "",
            " ",
            "max-age=10000, &&&&&",
            "max-age=\"60\"",
            "max-age=6.5",
            "max-age",
            "Max-Age=60",
            "max-age=60,",
            "max-age=60 no-store",
            "a=(b",
            "a=\"b",
            "a=?2",
            "a=1234567890123456",
        ] {
            assert_eq!(of(&[text]), None, "{text}");
        }
        assert_eq!(of(&[]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(value: Vec<u8>) {
            let mut fields = Fields::default();
            fields.push(b"CDN-Cache-Control", &value);
            let _ = read(&fields);
        }
    }
}
