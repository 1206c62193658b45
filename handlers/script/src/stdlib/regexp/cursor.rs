//! A pattern of Ruby's while it is read, and its translation so far.

/// The maximum nesting of groups and classes.
const MAX_DEPTH: usize = 100;

pub(super) struct Cursor {
    pub(super) chars: Vec<char>,
    pub(super) at: usize,
    pub(super) out: String,
    /// The number of groups and classes that are open.
    pub(super) depth: usize,
}

impl Cursor {
    pub(super) fn new(chars: Vec<char>) -> Cursor {
        Cursor { chars, at: 0, out: String::new(), depth: 0 }
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    pub(super) fn next(&mut self) -> Option<char> {
        let next = self.peek();
        self.at += usize::from(next.is_some());
        next
    }

    /// Consumes `text` if it comes next.
    pub(super) fn eat(&mut self, text: &str) -> bool {
        let length = text.chars().count();
        let comes = self.chars[self.at..].iter().take(length).copied().eq(text.chars());
        self.at += if comes { length } else { 0 };
        comes
    }

    /// Consumes everything up to and including `close`; returns it without `close`.
    pub(super) fn until(&mut self, close: char, what: &str) -> Result<String, String> {
        let text: String = self.chars[self.at..].iter().take_while(|c| **c != close).collect();
        self.at += text.chars().count();
        self.next().map(|_| text).ok_or_else(|| format!("{what} without its end"))
    }

    pub(super) fn nest(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(String::from("too deeply nested")) } else { Ok(()) }
    }
}
