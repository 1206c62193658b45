//! The chunked coding, read in whatever pieces it comes. Strict: lines end with CRLF, sizes have at most 16 digits.

/// Extensions and trailers together may be so long; what is longer is nonsense.
const LONGEST_ASIDE: usize = 16 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// In a size: digits seen.
    Size(u8),
    /// In an extension.
    Extension,
    /// Behind the CR of a size.
    SizeEnd,
    /// In data.
    Data,
    /// Behind data: CR, then LF.
    DataCr,
    DataLf,
    /// In trailers: at the start of a line, in a line, behind its CR, behind the CR of the empty line.
    LineStart,
    Line,
    LineEnd,
    LastLf,
    Over,
}

/// Where in a chunked body we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunked {
    at: At,
    /// Of the chunk: its size so far, then what is left of it.
    left: u64,
    aside: usize,
}

impl Chunked {
    pub(crate) fn new() -> Chunked {
        Chunked { at: At::Size(0), left: 0, aside: 0 }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.at == At::Over
    }

    /// Takes what belongs to the body from the front of `bytes` and says how much that was; `data` is told the content.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn take(&mut self, bytes: &[u8], data: &mut dyn FnMut(&[u8])) -> Result<usize, String> {
        let mut used = 0;
        while used < bytes.len() && self.at != At::Over {
            if self.at == At::Data {
                let rest = &bytes[used..];
                let here = usize::try_from(self.left).map_or(rest.len(), |left| left.min(rest.len()));
                data(&rest[..here]);
                used += here;
                self.left -= here as u64;
                if self.left == 0 {
                    self.at = At::DataCr;
                }
                continue;
            }
            self.at = self.step(bytes[used])?;
            used += 1;
        }
        Ok(used)
    }

    fn step(&mut self, byte: u8) -> Result<At, String> {
        Ok(match (self.at, byte) {
            (At::Size(digits), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if digits < 16 => {
                self.left = self.left << 4 | u64::from((byte as char).to_digit(16).unwrap_or(0));
                At::Size(digits + 1)
            }
            (At::Size(1..), b'\r') | (At::Extension, b'\r') => At::SizeEnd,
            (At::Size(1..), b';' | b' ' | b'\t') => At::Extension,
            (At::Extension, byte) if byte != b'\n' => self.aside(At::Extension)?,
            (At::SizeEnd, b'\n') if self.left == 0 => At::LineStart,
            (At::SizeEnd, b'\n') => At::Data,
            (At::DataCr, b'\r') => At::DataLf,
            (At::DataLf, b'\n') => At::Size(0),
            (At::LineStart, b'\r') => At::LastLf,
            (At::Line, b'\r') => At::LineEnd,
            (At::LineStart | At::Line, byte) if byte != b'\n' => self.aside(At::Line)?,
            (At::LineEnd, b'\n') => At::LineStart,
            (At::LastLf, b'\n') => At::Over,
            (At::Size(_) | At::SizeEnd | At::Extension, _) => {
                return Err("a chunk's size is nonsense".to_owned());
            }
            (At::DataCr | At::DataLf, _) => return Err("a chunk is longer than its size".to_owned()),
            _ => return Err("the end of a chunked body is nonsense".to_owned()),
        })
    }

    fn aside(&mut self, at: At) -> Result<At, String> {
        self.aside += 1;
        match self.aside > LONGEST_ASIDE {
            true => Err("chunk extensions and trailers are longer than 16 KiB".to_owned()),
            false => Ok(at),
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
    fn nonsense() {
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
