//! Writes markup that is well-formed XML and reads the same as HTML. Elements are closed by construction, and texts and
//! attributes are escaped only here.

use std::borrow::Cow;
use std::fmt::{Display, Write as _};

/// Markup under construction.
#[derive(Debug, Default)]
pub(crate) struct Markup {
    text: String,
}

/// Attributes of an element: the names are fixed, the values are untrusted.
pub(crate) type Attributes<'a> = &'a [(&'static str, &'a dyn Display)];

impl Markup {
    /// Writes an element around the output of `content`.
    pub fn within(
        &mut self,
        name: &'static str,
        attributes: Attributes<'_>,
        content: impl FnOnce(&mut Markup),
    ) {
        self.open(name, attributes);
        self.text.push('>');
        content(self);
        let _ = write!(self.text, "</{name}>");
    }

    pub fn element(&mut self, name: &'static str, attributes: Attributes<'_>, text: &str) {
        self.within(name, attributes, |markup| markup.text(text));
    }

    /// Writes an element without content. In HTML, only void elements and those of SVG may be closed this way.
    pub fn empty(&mut self, name: &'static str, attributes: Attributes<'_>) {
        self.open(name, attributes);
        self.text.push_str("/>");
    }

    pub fn text(&mut self, text: &str) {
        self.text.push_str(&escape(text));
    }

    /// Writes a fixed document type, style sheet or script, without `<` and `&`.
    pub fn verbatim(&mut self, text: &'static str) {
        self.text.push_str(text);
    }

    pub fn append(&mut self, other: &Markup) {
        self.text.push_str(&other.text);
    }

    /// Returns the complete markup.
    pub fn finish(self) -> String {
        self.text
    }

    fn open(&mut self, name: &'static str, attributes: Attributes<'_>) {
        let _ = write!(self.text, "<{name}");
        for (key, value) in attributes {
            let _ = write!(self.text, " {key}=\"{}\"", escape(&value.to_string()));
        }
    }
}

/// Escapes characters special in XML or HTML, and replaces those that XML forbids.
fn escape(text: &str) -> Cow<'_, str> {
    if text.chars().all(|c| replacement(c).is_none()) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match replacement(c) {
            Some(replacement) => escaped.push_str(replacement),
            None => escaped.push(c),
        }
    }
    Cow::Owned(escaped)
}

/// Returns the replacement of a character, by the allowed characters of XML 1.0, 2.2.
fn replacement(c: char) -> Option<&'static str> {
    match c {
        '<' => Some("&lt;"),
        '>' => Some("&gt;"),
        '&' => Some("&amp;"),
        '"' => Some("&quot;"),
        '\'' => Some("&#39;"),
        '\t' | '\n' => None,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => Some("\u{fffd}"),
        // Bidirectional overrides would affect the text after them, even outside their element.
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => Some("\u{fffd}"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn document(text: &str) -> String {
        let mut markup = Markup::default();
        markup.within("p", &[("title", &text)], |markup| {
            markup.text(text);
            markup.empty("br", &[]);
        });
        markup.finish()
    }

    #[test]
    fn elements_close() {
        assert_eq!(
            document("a<b>&\"'"),
            "<p title=\"a&lt;b&gt;&amp;&quot;&#39;\">a&lt;b&gt;&amp;&quot;&#39;<br/></p>"
        );
    }

    proptest! {
        #[test]
        fn no_text_leaves_its_element(text in any::<String>()) {
            let written = document(&text);
            let read = roxmltree::Document::parse(&written).expect("well-formed");
            let paragraph = read.root_element();
            prop_assert_eq!(paragraph.children().count(), if text.is_empty() { 1 } else { 2 });
            prop_assert_eq!(paragraph.attributes().count(), 1);
            let kept: String = text.chars().filter(|c| c.is_alphanumeric()).collect();
            let shown: String = paragraph.text().unwrap_or("").chars().filter(|c| c.is_alphanumeric()).collect();
            prop_assert!(paragraph.first_child().is_none_or(|child| child.is_element()) || kept == shown);
        }
    }
}
