//! The shape of HTML: which element stands in which other one, with folded ids, classes, and the names of form controls.
//!
//! Why pairs of elements, not paths: a new wrapper around a page is one difference, not one for each element in it.
//! Why a scanner of our own: both sides are read in the same way, so nothing depends on how browsers mend a page, which is
//! most of what a library for HTML does. Text and comments are skipped.

use super::parts::{Shape, folded};

/// Elements whose content is text up to their own end tag.
const RAW: [&[u8]; 5] = [b"script", b"style", b"textarea", b"title", b"noscript"];
/// Elements without an end tag.
const VOID: [&str; 14] = [
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track",
    "wbr",
];
/// Attributes whose presence counts.
const PRESENT: [&str; 5] = ["action", "disabled", "href", "required", "src"];
/// Attributes whose folded value counts.
const VALUED: [&str; 3] = ["name", "rel", "type"];
/// The deepest level that is told apart, and the most classes of an element.
const DEEPEST: usize = 200;
const CLASSES: usize = 6;

/// Adds the parts of a page.
pub(super) fn put(page: &[u8], shape: &mut Shape) {
    let mut scanner = Scanner { rest: page };
    let mut open: Vec<(String, String)> = Vec::new();
    while let Some(tag) = scanner.next_tag() {
        if shape.is_full() {
            return;
        }
        match tag {
            Tag::End(name) => {
                // An end tag without its element is ignored.
                if let Some(at) = open.iter().rposition(|(tag, _)| *tag == name) {
                    open.truncate(at);
                }
            }
            Tag::Start { name, signature, closed } => {
                let parent = open.last().map_or("page", |(_, signature)| signature.as_str());
                shape.put(&format!("HTML {parent} > {signature}"), "present");
                if RAW.contains(&name.as_bytes()) {
                    scanner.skip_raw(name.as_bytes());
                } else if !closed && !VOID.contains(&name.as_str()) && open.len() < DEEPEST {
                    open.push((name, signature));
                }
            }
        }
    }
}

enum Tag {
    Start {
        name: String,
        /// The name with what tells two elements of this name apart.
        signature: String,
        /// Whether it ends itself (`<path/>`).
        closed: bool,
    },
    End(String),
}

struct Scanner<'a> {
    rest: &'a [u8],
}

impl<'a> Scanner<'a> {
    fn next_tag(&mut self) -> Option<Tag> {
        loop {
            let at = self.rest.iter().position(|byte| *byte == b'<')?;
            self.rest = &self.rest[at + 1..];
            match self.rest.first()? {
                b'!' if self.rest.starts_with(b"!--") => self.skip_after(b"-->"),
                b'!' | b'?' => self.skip_after(b">"),
                b'/' => {
                    self.rest = &self.rest[1..];
                    let name = self.name();
                    self.skip_after(b">");
                    return Some(Tag::End(name));
                }
                byte if byte.is_ascii_alphabetic() => return Some(self.start()),
                _ => {}
            }
        }
    }

    /// Reads a start tag from its name on.
    fn start(&mut self) -> Tag {
        let name = self.name();
        let (mut id, mut classes, mut others, mut closed) = (String::new(), Vec::new(), Vec::new(), false);
        loop {
            self.skip_while(|byte| byte.is_ascii_whitespace());
            match self.rest.first() {
                None => break,
                Some(b'>') => {
                    self.rest = &self.rest[1..];
                    break;
                }
                Some(b'/') => {
                    self.rest = &self.rest[1..];
                    closed = self.rest.first() == Some(&b'>');
                }
                Some(_) => {
                    let (attribute, value) = self.attribute();
                    match attribute.as_str() {
                        "id" => id = format!("#{}", folded(&value)),
                        "class" => classes = value.split_ascii_whitespace().map(folded).collect(),
                        known if PRESENT.contains(&known) => others.push(format!("[{known}]")),
                        known if VALUED.contains(&known) => {
                            others.push(format!("[{known}={}]", folded(&value)))
                        }
                        _ => {}
                    }
                }
            }
        }
        classes.sort_unstable();
        classes.dedup();
        others.sort_unstable();
        let classes: String = classes.iter().take(CLASSES).map(|class| format!(".{class}")).collect();
        // A part is cut off at its end, and the parent stands before the child.
        let signature: String = format!("{name}{id}{classes}{}", others.concat()).chars().take(80).collect();
        Tag::Start { name, signature, closed }
    }

    fn name(&mut self) -> String {
        let name = |byte: u8| !byte.is_ascii_whitespace() && byte != b'>' && byte != b'/';
        let bytes = self.take_while(name);
        String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).to_ascii_lowercase()
    }

    fn attribute(&mut self) -> (String, String) {
        // The first byte belongs to the name, even `=`; so each call takes at least one.
        let (first, rest) = self.rest.split_at(1);
        self.rest = rest;
        let others = self.take_while(|byte| !byte.is_ascii_whitespace() && !b"=>/".contains(&byte));
        let name = String::from_utf8_lossy(&[first, others].concat()).to_ascii_lowercase();
        self.skip_while(|byte| byte.is_ascii_whitespace());
        if self.rest.first() != Some(&b'=') {
            return (name, String::new());
        }
        self.rest = &self.rest[1..];
        self.skip_while(|byte| byte.is_ascii_whitespace());
        let value = match self.rest.first() {
            Some(&quote @ (b'"' | b'\'')) => {
                self.rest = &self.rest[1..];
                let value = self.take_while(|byte| byte != quote);
                self.rest = self.rest.get(1..).unwrap_or_default();
                value
            }
            _ => self.take_while(|byte| !byte.is_ascii_whitespace() && byte != b'>'),
        };
        (name, String::from_utf8_lossy(&value[..value.len().min(200)]).into_owned())
    }

    fn take_while(&mut self, of: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(|byte| !of(*byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn skip_while(&mut self, of: impl Fn(u8) -> bool) {
        self.take_while(of);
    }

    fn skip_after(&mut self, end: &[u8]) {
        let at = self.rest.windows(end.len()).position(|part| part == end);
        self.rest = at.map_or(&[], |at| &self.rest[at + end.len()..]);
    }

    /// Skips the text of an element, up to its end tag.
    fn skip_raw(&mut self, name: &[u8]) {
        let is_end = |part: &[u8]| part.starts_with(b"</") && part[2..].eq_ignore_ascii_case(name);
        let at = self.rest.windows(name.len() + 2).position(is_end);
        self.rest = at.map_or(&[], |at| &self.rest[at + name.len() + 2..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(page: &str) -> Vec<String> {
        let mut shape = Shape::default();
        put(page.as_bytes(), &mut shape);
        shape.parts().map(|(name, _)| name.trim_start_matches("HTML ").to_owned()).collect()
    }

    #[test]
    fn elements_have_parents() {
        let page = "<!DOCTYPE html><!-- <b> --><html><body class='b a'><div id=post_12 data-x=\"<i>\">\
                    <img src=/x.png alt=x>text<br/><a href='/1'>1</a></div></p><script>if (a<b) '<p>'</script><hr></body>";
        let expected = [
            "body.a.b > div#post_0",
            "body.a.b > hr",
            "body.a.b > script",
            "div#post_0 > a[href]",
            "div#post_0 > br",
            "div#post_0 > img[src]",
            "html > body.a.b",
            "page > html",
        ];
        assert_eq!(parts(page), expected);
    }

    #[test]
    fn texts_numbers_and_order_do_not_matter_and_controls_do() {
        let form = |token: &str, name: &str| {
            format!(
                "<form action=/p><input type=hidden name=token value={token}><input name={name}>{token}</form>"
            )
        };
        assert_eq!(parts(&form("xx1", "a[b]")), parts(&form("yy2", "a[b]")));
        assert_ne!(parts(&form("xx1", "a[b]")), parts(&form("xx1", "a[c]")));
    }

    #[test]
    fn what_is_cut_off_anywhere_is_read() {
        let page = "<a href=\"x\" class='y z'><!-- c --><script>s</script><p/></a>";
        (0..=page.len()).for_each(|end| drop(parts(&page[..end])));
    }
}
