//! The line scanner of message heads.
//!
//! Contract:
//! 1. A line ends with CRLF; any other LF, and the caller of [`Lines::take`], refuses it. A CR elsewhere is left to the
//!    rules of the line's contents.
//! 2. Scanned bytes are not scanned again, however the text is split.

/// The position in a head that arrives in pieces. All calls get the same text, as far as it has arrived.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Where the head begins.
    start: usize,
    /// Where the current line begins.
    line_start: usize,
    /// How far a line end has been searched for.
    scanned: usize,
}

impl Lines {
    /// Sets where the head begins.
    pub(crate) fn begin(&mut self, at: usize) {
        *self = Lines { start: at, line_start: at, scanned: at };
    }

    /// Where the head begins.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Searches for the end of the current line; whether it has arrived.
    pub(crate) fn scan(&mut self, text: &[u8]) -> bool {
        let line_end = memchr::memchr(b'\n', &text[self.scanned..]).map(|at| self.scanned + at);
        self.scanned = line_end.map_or(text.len(), |at| at + 1);
        line_end.is_some()
    }

    /// Bytes of the head so far, which must have room in its limit. An incomplete line lacks at least its LF: counting it
    /// refuses the line exactly when the complete one would be refused.
    pub(crate) fn size(&self, complete: bool) -> usize {
        self.scanned - self.start + usize::from(!complete)
    }

    /// The current line as far as it has arrived.
    pub(crate) fn partial<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        &text[self.line_start..self.scanned]
    }

    /// The complete line without CRLF, and its offset in the head; `None` if it ends without CR. Goes on to the next line.
    pub(crate) fn take<'a>(&mut self, text: &'a [u8]) -> Option<(&'a [u8], u32)> {
        let [line @ .., b'\r', b'\n'] = self.partial(text) else { return None };
        let offset = (self.line_start - self.start) as u32;
        self.line_start = self.scanned;
        Some((line, offset))
    }

    /// Where the lines that were taken end.
    pub(crate) fn end(&self) -> usize {
        self.line_start
    }
}
