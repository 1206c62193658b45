//! Decodes the chunked transfer coding from input that is split anywhere. Strict: lines end with CRLF, sizes
//! have at most 16 digits.

/// The limit for the sum of all extensions and trailers of a body, in bytes.
const LONGEST_ASIDE: usize = 16 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In a size, after this many digits.
    Size(u8),
    Extension,
    /// After the CR of a size line.
    SizeEnd,
    Data,
    /// After the data: CR, then LF.
    DataCr,
    DataLf,
    /// In trailers: at the start of a line, in a line, after its CR, after the CR of the empty line.
    LineStart,
    Line,
    LineEnd,
    LastLf,
    Over,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunked {
    state: State,
    /// While reading a size: its value so far. In data: the bytes left.
    left: u64,
    aside: usize,
}

impl Chunked {
    pub(crate) fn new() -> Chunked {
        Chunked { state: State::Size(0), left: 0, aside: 0 }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Consumes the part of `bytes` that belongs to the body and returns its length. Passes decoded content to `data`.
    ///
    /// # Errors
    /// The reason why the coding is invalid.
    pub(crate) fn take(&mut self, bytes: &[u8], data: &mut dyn FnMut(&[u8])) -> Result<usize, String> {
        let mut used = 0;
        while used < bytes.len() && self.state != State::Over {
            if self.state == State::Data {
                let rest = &bytes[used..];
                let here = usize::try_from(self.left).map_or(rest.len(), |left| left.min(rest.len()));
                data(&rest[..here]);
                used += here;
                self.left -= here as u64;
                if self.left == 0 {
                    self.state = State::DataCr;
                }
                continue;
            }
            self.state = self.step(bytes[used])?;
            used += 1;
        }
        Ok(used)
    }

    fn step(&mut self, byte: u8) -> Result<State, String> {
        Ok(match (self.state, byte) {
            (State::Size(digits), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if digits < 16 => {
                self.left = self.left << 4 | u64::from((byte as char).to_digit(16).unwrap_or(0));
                State::Size(digits + 1)
            }
            (State::Size(1..), b'\r') | (State::Extension, b'\r') => State::SizeEnd,
            (State::Size(1..), b';' | b' ' | b'\t') => State::Extension,
            (State::Extension, byte) if byte != b'\n' => self.aside(State::Extension)?,
            (State::SizeEnd, b'\n') if self.left == 0 => State::LineStart,
            (State::SizeEnd, b'\n') => State::Data,
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size(0),
            (State::LineStart, b'\r') => State::LastLf,
            (State::Line, b'\r') => State::LineEnd,
            (State::LineStart | State::Line, byte) if byte != b'\n' => self.aside(State::Line)?,
            (State::LineEnd, b'\n') => State::LineStart,
            (State::LastLf, b'\n') => State::Over,
            (State::Size(_) | State::SizeEnd | State::Extension, _) => {
                return Err("invalid chunk size".to_owned());
            }
            (State::DataCr | State::DataLf, _) => {
                return Err("a chunk is longer than its size says".to_owned());
            }
            _ => return Err("invalid end of a chunked body".to_owned()),
        })
    }

    fn aside(&mut self, state: State) -> Result<State, String> {
        self.aside += 1;
        match self.aside > LONGEST_ASIDE {
            true => Err("chunk extensions and trailers are longer than 16 KiB".to_owned()),
            false => Ok(state),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<(Vec<u8>, usize, bool), String> {
        let mut chunked = Chunked::new();
        let mut body = Vec::new();
        let used = chunked.take(bytes, &mut |data| body.extend_from_slice(data))?;
        Ok((body, used, chunked.is_over()))
    }

    #[test]
    fn bodies() {
        assert_eq!(read(b"5\r\nhello\r\n0\r\n\r\nrest"), Ok((b"hello".to_vec(), 15, true)));
        assert_eq!(
            read(b"1;x=y\r\na\r\nA\r\n0123456789\r\n00\r\nT: 1\r\n\r\n"),
            Ok((b"a0123456789".to_vec(), 37, true))
        );
        assert_eq!(read(b"5\r\nhe"), Ok((b"he".to_vec(), 5, false)));
    }

    #[test]
    fn invalid_bodies() {
        let long = format!("1;{}\r\n", "x".repeat(LONGEST_ASIDE + 1));
        for bytes in [
            "\r\n",
            "x\r\n",
            "5\nhello",
            "5\r\nhelloo",
            "5\r\nhello\n",
            "11111111111111111\r\n",
            "0\r\n\n",
            "0\r\nA\n",
            "-1\r\n",
            &long,
        ] {
            assert!(read(bytes.as_bytes()).is_err(), "{bytes:?}");
        }
    }
}
