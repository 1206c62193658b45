//! Header fields as spans of one block of text.
//!
//! Why: a request has ten to twenty fields, of which a handler reads two or three. One block and a list of
//! offsets need two allocations, can grow in place (`X-Request-Id`), and are encoded for a worker in one
//! pass.

use crate::Cache;
use std::sync::Arc;

/// A part of a block of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The offset of the first byte.
    pub start: u32,
    /// The length in bytes.
    pub len: u32,
}

impl Span {
    /// Returns the span of `part`, which must lie inside `whole`; otherwise an empty span.
    pub fn of(whole: &[u8], part: &[u8]) -> Span {
        let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
        if start.checked_add(part.len()).is_some_and(|end| end <= whole.len()) {
            Span { start: start as u32, len: part.len() as u32 }
        } else {
            Span::default()
        }
    }

    /// Returns the bytes of the span.
    #[inline]
    pub fn slice(self, text: &[u8]) -> &[u8] {
        text.get(self.start as usize..self.start as usize + self.len as usize).unwrap_or_default()
    }
}

/// Fields in order. Repeated names stay separate.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    text: Vec<u8>,
    slots: Vec<(Span, Span)>,
    /// Fields before the others, shared by many responses.
    frozen: Option<Arc<Frozen>>,
}

/// Fields that no longer change.
#[derive(Debug)]
pub struct Frozen {
    text: Box<[u8]>,
    slots: Box<[(Span, Span)]>,
    cache: Cache,
}

impl Frozen {
    /// Returns names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.slots.iter().map(|(name, value)| (name.slice(&self.text), value.slice(&self.text)))
    }

    /// Returns the cache for the protocols' encoded forms of these fields.
    #[inline]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }
}

impl Fields {
    /// Creates an empty list with room for `count` fields and `bytes` bytes of text.
    pub fn with_capacity(count: usize, bytes: usize) -> Fields {
        Fields { text: Vec::with_capacity(bytes), slots: Vec::with_capacity(count), frozen: None }
    }

    /// Creates fields from `text` and pairs of spans for name and value.
    pub fn from_parts(text: Vec<u8>, slots: Vec<(Span, Span)>) -> Fields {
        Fields { text, slots, frozen: None }
    }

    /// Returns a copy with room for `spare` bytes of further fields.
    pub fn with_room(&self, spare: usize) -> Fields {
        let mut text = Vec::with_capacity(self.text.len() + spare);
        text.extend_from_slice(&self.text);
        let mut slots = Vec::with_capacity(self.slots.len() + 4);
        slots.extend_from_slice(&self.slots);
        Fields { text, slots, frozen: self.frozen.clone() }
    }

    /// Makes the fields cheap to clone, and lets protocols encode them only once: for responses that are sent
    /// often. Fields that the protocol must check in each response (framing, connection, date, anything
    /// malformed) are not frozen.
    pub fn freeze(self) -> Fields {
        if self.frozen.is_some() || !self.iter().all(|(name, value)| is_plain(name, value)) {
            return self;
        }
        let frozen = Frozen { text: self.text.into(), slots: self.slots.into(), cache: Cache::default() };
        Fields { frozen: Some(Arc::new(frozen)), ..Fields::default() }
    }

    /// Makes as many of the fields cheap to clone as [`Fields::freeze`] allows. The others follow them.
    pub fn freeze_plain(self) -> Fields {
        let mut parts = [Fields::default(), Fields::default()];
        for (name, value) in self.iter() {
            parts[usize::from(!is_plain(name, value))].push(name, value);
        }
        let [plain, fresh] = parts;
        Fields { frozen: plain.freeze().frozen, ..fresh }
    }

    /// Puts the frozen fields of `other` before these, without a copy. Returns false if there are frozen fields already.
    #[inline]
    pub fn follow(&mut self, other: &Fields) -> bool {
        let may = self.frozen.is_none();
        if may {
            self.frozen.clone_from(&other.frozen);
        }
        may
    }

    /// Returns the frozen fields. Their names are tokens, their values have no control bytes, and none
    /// concerns framing or the connection.
    #[inline]
    pub fn frozen(&self) -> Option<&Frozen> {
        self.frozen.as_deref()
    }

    /// Returns the fields that are not frozen.
    #[inline]
    pub fn fresh(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.slots.iter().map(|(name, value)| (name.slice(&self.text), value.slice(&self.text)))
    }

    /// Returns the text that the spans of these fields, and of the request line before them, refer to.
    #[inline]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Adds a field at the end.
    pub fn push(&mut self, name: &[u8], value: &[u8]) {
        let start = self.text.len() as u32;
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(value);
        let name = Span { start, len: name.len() as u32 };
        self.slots.push((name, Span { start: start + name.len, len: value.len() as u32 }));
    }

    /// Returns names and values in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.frozen.iter().flat_map(|frozen| frozen.iter()).chain(self.fresh())
    }

    /// Returns the value of the first field with this name, in any case.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let frozen = self.frozen.as_ref().and_then(|frozen| find(&frozen.text, &frozen.slots, name));
        frozen.or_else(|| find(&self.text, &self.slots, name))
    }

    /// Returns the values of all fields with this name, in any case.
    #[inline]
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// Returns whether a comma-separated list field contains `token`, in any case (RFC 9110 section 5.6.1).
    pub fn lists(&self, name: &str, token: &str) -> bool {
        self.all(name)
            .flat_map(|value| value.split(|&b| b == b','))
            .any(|item| item.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    }

    /// Like [`Fields::lists`] without the frozen fields: for names that are never frozen.
    pub fn fresh_lists(&self, name: &str, token: &str) -> bool {
        self.fresh()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes()))
            .flat_map(|(_, value)| value.split(|&b| b == b','))
            .any(|item| item.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    }

    /// Keeps the fields for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        if self.frozen.is_some() {
            let mut kept = Fields::default();
            self.iter()
                .filter(|(name, value)| keep(name, value))
                .for_each(|(name, value)| kept.push(name, value));
            *self = kept;
            return;
        }
        let text = &self.text;
        self.slots.retain(|(name, value)| keep(name.slice(text), value.slice(text)));
    }

    pub fn len(&self) -> usize {
        self.slots.len() + self.frozen.as_ref().map_or(0, |frozen| frozen.slots.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Returns the value of the first field with this name.
#[inline]
fn find<'a>(text: &'a [u8], slots: &[(Span, Span)], name: &str) -> Option<&'a [u8]> {
    // Lengths are compared first: most names differ in length, so no text has to be read.
    let is = |span: Span| {
        span.len as usize == name.len() && span.slice(text).eq_ignore_ascii_case(name.as_bytes())
    };
    slots.iter().find(|(found, _)| is(*found)).map(|(_, value)| value.slice(text))
}

/// Returns whether a field can be written unchanged in every response.
fn is_plain(name: &[u8], value: &[u8]) -> bool {
    const JUDGED: [&str; 9] = [
        "date",
        "upgrade",
        "connection",
        "keep-alive",
        "content-length",
        "content-range",
        "proxy-connection",
        "transfer-encoding",
        "trailer",
    ];
    let clean = |byte: &u8| matches!(byte, b' '..=b'~' | 0x80..);
    !name.is_empty()
        && name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        && value.iter().all(clean)
        && !JUDGED.iter().any(|judged| name.eq_ignore_ascii_case(judged.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_order_and_repeats() {
        let mut fields = Fields::default();
        fields.push(b"Accept", b"a, b");
        fields.push(b"X-One", b"1");
        fields.push(b"accept", b"c");
        assert_eq!(fields.get("ACCEPT"), Some(&b"a, b"[..]));
        assert_eq!(fields.all("accept").collect::<Vec<_>>(), [&b"a, b"[..], b"c"]);
        assert!(fields.lists("accept", "B") && fields.lists("accept", "c") && !fields.lists("accept", "d"));
        fields.retain(|name, _| name != b"X-One");
        assert_eq!(fields.len(), 2);
    }

    #[test]
    fn frozen_fields_are_the_same_fields() {
        let mut fields = Fields::default();
        fields.push(b"ETag", b"\"1\"");
        fields.push(b"X-One", b"1");
        let mut frozen = fields.clone().freeze();
        assert!(frozen.frozen().is_some_and(|frozen| frozen.iter().eq(fields.iter())));
        frozen.push(b"X-Two", b"2");
        fields.push(b"X-Two", b"2");
        assert!(frozen.iter().eq(fields.iter()) && frozen.len() == 3 && frozen.fresh().count() == 1);
        assert_eq!((frozen.get("etag"), frozen.get("x-two")), (Some(&b"\"1\""[..]), Some(&b"2"[..])));
        let mut later = Fields::default();
        later.push(b"X-Two", b"2");
        assert!(later.follow(&frozen) && later.iter().eq(fields.iter()));
        assert!(!later.follow(&frozen), "it has frozen fields already");
        frozen.retain(|name, _| name != b"ETag");
        assert!(frozen.frozen().is_none() && frozen.len() == 2 && frozen.get("x-one").is_some());
    }

    #[test]
    fn fields_that_need_judging_follow_those_that_are_frozen() {
        let mut fields = Fields::default();
        for (name, value) in [("X-One", "1"), ("Date", "then"), ("X-Two", "2"), ("Content-Range", "*")] {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        let frozen = fields.freeze_plain();
        let names = |all: &mut dyn Iterator<Item = (&[u8], &[u8])>| -> Vec<String> {
            all.map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect()
        };
        assert_eq!(names(&mut frozen.frozen().unwrap().iter()), ["X-One", "X-Two"]);
        assert_eq!(names(&mut frozen.fresh()), ["Date", "Content-Range"]);
    }

    #[test]
    fn fields_that_need_judging_are_not_frozen() {
        let odd: [(&[u8], &[u8]); 5] = [
            (b"Content-Length", b"1"),
            (b"CONNECTION", b"close"),
            (b"X", b"a\r\nb"),
            (b"X:", b"1"),
            (b"", b"1"),
        ];
        for (name, value) in odd {
            let mut fields = Fields::default();
            fields.push(name, value);
            assert!(fields.freeze().frozen().is_none(), "{}", name.escape_ascii());
        }
    }

    #[test]
    fn spans_of_parts_and_of_other_text() {
        let text = b"GET /path".to_vec();
        let span = Span::of(&text, &text[4..]);
        assert_eq!(span.slice(&text), b"/path");
        assert_eq!(Span::of(&text, b"elsewhere"), Span::default());
    }
}
