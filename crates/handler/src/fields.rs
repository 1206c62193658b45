//! Header fields as spans into one block of text.
//!
//! Why: a request has ten to twenty fields of which a handler looks at two or three. One block and a list of offsets is
//! two allocations, can be grown in place (`X-Request-Id`), and is encoded for a worker by walking it once.

/// A part of a block of text: start and length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// Offset of the first byte.
    pub start: u32,
    /// Length in bytes.
    pub len: u32,
}

impl Span {
    /// The span of `part`, which must lie inside `whole`; an empty span otherwise.
    pub fn of(whole: &[u8], part: &[u8]) -> Span {
        let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
        if start.checked_add(part.len()).is_some_and(|end| end <= whole.len()) {
            Span { start: start as u32, len: part.len() as u32 }
        } else {
            Span::default()
        }
    }

    /// The bytes it covers.
    #[inline]
    pub fn slice(self, text: &[u8]) -> &[u8] {
        text.get(self.start as usize..self.start as usize + self.len as usize).unwrap_or_default()
    }
}

/// Fields in order, with repeated names kept apart.
#[derive(Debug, Clone, Default)]
pub struct Fields {
    text: Vec<u8>,
    slots: Vec<(Span, Span)>,
}

impl Fields {
    /// No fields yet, but room for `count` of them with `bytes` of text.
    pub fn with_capacity(count: usize, bytes: usize) -> Fields {
        Fields { text: Vec::with_capacity(bytes), slots: Vec::with_capacity(count) }
    }

    /// Fields that point into `text`: pairs of name and value.
    pub fn from_parts(text: Vec<u8>, slots: Vec<(Span, Span)>) -> Fields {
        Fields { text, slots }
    }

    /// The text that spans of these fields, and of the request line in front of them, point into.
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

    /// Names and values in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.slots.iter().map(|(name, value)| (name.slice(&self.text), value.slice(&self.text)))
    }

    /// The value of the first field of that name, in any case.
    #[inline]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// The values of all fields of that name, in any case.
    #[inline]
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// Whether a comma-separated list field contains `token`, in any case (RFC 9110 section 5.6.1).
    pub fn lists(&self, name: &str, token: &str) -> bool {
        self.all(name)
            .flat_map(|value| value.split(|&b| b == b','))
            .any(|item| item.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
    }

    /// Keeps the fields for which `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(&[u8], &[u8]) -> bool) {
        let text = &self.text;
        self.slots.retain(|(name, value)| keep(name.slice(text), value.slice(text)));
    }

    /// Number of fields.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }
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
    fn spans_of_parts_and_strangers() {
        let text = b"GET /path".to_vec();
        let span = Span::of(&text, &text[4..]);
        assert_eq!(span.slice(&text), b"/path");
        assert_eq!(Span::of(&text, b"elsewhere"), Span::default());
    }
}
