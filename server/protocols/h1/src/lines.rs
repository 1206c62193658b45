//! Scans the lines of message heads.
//!
//! Contract:
//! 1. A line ends with CRLF. The caller of [`Lines::take`] refuses any other LF. The rules of the line's
//!    contents handle a CR elsewhere.
//! 2. Scanned bytes are not scanned again, however the text is split.

/// The position in a head that arrives in pieces. All calls get the same text, as far as it has arrived.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// The start of the head.
    start: usize,
    /// The start of the current line.
    line_start: usize,
    /// How far the text has been searched for a line end.
    scanned: usize,
}

impl Lines {
    /// Sets the start of the head.
    pub(crate) fn begin(&mut self, at: usize) {
        *self = Lines { start: at, line_start: at, scanned: at };
    }

    /// Returns the start of the head.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Searches for the end of the current line. Returns whether it has arrived.
    pub(crate) fn scan(&mut self, text: &[u8]) -> bool {
        let line_end = memchr::memchr(b'\n', &text[self.scanned..]).map(|at| self.scanned + at);
        self.scanned = line_end.map_or(text.len(), |at| at + 1);
        line_end.is_some()
    }

    /// Returns the bytes of the head so far, for comparison with its limit. An incomplete line lacks at least
    /// its LF; with that counted, an incomplete line is refused exactly when the complete one would be.
    pub(crate) fn size(&self, complete: bool) -> usize {
        self.scanned - self.start + usize::from(!complete)
    }

    /// Returns the current line as far as it has arrived.
    pub(crate) fn partial<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        &text[self.line_start..self.scanned]
    }

    /// Returns the complete line without CRLF, and its offset in the head; `None` if it ends without CR.
    /// Moves to the next line.
    pub(crate) fn take<'a>(&mut self, text: &'a [u8]) -> Option<(&'a [u8], u32)> {
        let [line @ .., b'\r', b'\n'] = self.partial(text) else { return None };
        let offset = (self.line_start - self.start) as u32;
        self.line_start = self.scanned;
        Some((line, offset))
    }

    /// Returns the end of the lines that were taken.
    pub(crate) fn end(&self) -> usize {
        self.line_start
    }
}
