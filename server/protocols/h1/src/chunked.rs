//! Decodes the chunked coding (RFC 9112 section 7.1), for requests and responses.
//!
//! Contract:
//! 1. Any split of the same bytes gives the same data and the same error.
//! 2. A chunk's size has 1 to 16 hexadecimal digits. Extensions and trailers are checked, bounded and dropped.
//! 3. No byte after the end is consumed.

use crate::syntax;
use handler::BodyError;

/// The most bytes of chunk extensions in one body.
const MAX_EXTENSIONS: usize = 16 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    EndLf,
    Done,
}

/// The limits of a chunked body.
#[derive(Debug, Clone, Copy)]
pub struct ChunkBounds {
    /// The most data, in bytes.
    pub max_body: Option<u64>,
    /// The longest trailer section, in bytes.
    pub max_trailer_bytes: usize,
    /// The most trailer fields.
    pub max_trailers: usize,
}

/// An incremental decoder.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    bounds: ChunkBounds,
    /// The size of the chunk, then the rest of it.
    left: u64,
    digits: u8,
    total: u64,
    extensions: usize,
    trailer_bytes: usize,
    trailers: usize,
}

impl Decoder {
    /// Creates a decoder at the start of a body.
    pub fn new(bounds: ChunkBounds) -> Decoder {
        Decoder {
            state: State::Size,
            bounds,
            left: 0,
            digits: 0,
            total: 0,
            extensions: 0,
            trailer_bytes: 0,
            trailers: 0,
        }
    }

    /// Returns whether the whole body has been decoded.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Consumes framing at the front of `input`, up to data or the end of the body. Returns the number of bytes.
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub fn skip(&mut self, input: &[u8]) -> Result<usize, BodyError> {
        let mut at = 0;
        while at < input.len() && !matches!(self.state, State::Data | State::Done) {
            self.state = self.step(input[at])?;
            at += 1;
        }
        Ok(at)
    }

    /// Returns how many of the next `available` bytes are data of one chunk. They count as decoded, without a copy.
    pub fn pass(&mut self, available: usize) -> usize {
        if self.state != State::Data {
            return 0;
        }
        let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(available);
        self.left -= taken as u64;
        if self.left == 0 {
            self.state = State::DataCr;
        }
        taken
    }

    /// Decodes all of `input`, or up to the end of the body; appends data to `data`. Returns the number of
    /// bytes consumed.
    ///
    /// # Errors
    /// [`BodyError::Malformed`] or [`BodyError::TooLarge`]; the decoder must not be used after that.
    pub fn decode(&mut self, input: &[u8], data: &mut Vec<u8>) -> Result<usize, BodyError> {
        let mut at = 0;
        while at < input.len() && self.state != State::Done {
            if self.state == State::Data {
                let taken = self.pass(input.len() - at);
                data.extend_from_slice(&input[at..at + taken]);
                at += taken;
            } else {
                self.state = self.step(input[at])?;
                at += 1;
            }
        }
        Ok(at)
    }

    fn step(&mut self, byte: u8) -> Result<State, BodyError> {
        match (self.state, byte) {
            (State::Size, _) => self.size(byte),
            (State::Extension, b'\r') | (State::TrailerValue, b'\r') => {
                Ok(if self.state == State::Extension { State::SizeLf } else { State::TrailerLf })
            }
            (State::Extension, _) => self.extension(byte),
            (State::SizeLf, b'\n') => self.sized(),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::Size),
            (State::TrailerStart, b'\r') => Ok(State::EndLf),
            (State::TrailerStart | State::TrailerName | State::TrailerValue, _) => self.trailer(byte),
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            (State::EndLf, b'\n') => Ok(State::Done),
            (State::DataCr | State::DataLf, _) => {
                Err(BodyError::Malformed("a chunk that does not end with CRLF"))
            }
            _ => Err(BodyError::Malformed("a CR without LF in the chunked coding")),
        }
    }

    fn size(&mut self, byte: u8) -> Result<State, BodyError> {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            b'A'..=b'F' => byte - b'A' + 10,
            b';' if self.digits > 0 => return Ok(State::Extension),
            b'\r' if self.digits > 0 => return Ok(State::SizeLf),
            _ => return Err(BodyError::Malformed("a chunk size is hexadecimal digits, then ; or CRLF")),
        };
        if self.digits == 16 {
            return Err(BodyError::Malformed("a chunk size of more than 16 digits"));
        }
        self.digits += 1;
        self.left = self.left << 4 | u64::from(digit);
        Ok(State::Size)
    }

    fn extension(&mut self, byte: u8) -> Result<State, BodyError> {
        self.extensions += 1;
        if self.extensions > MAX_EXTENSIONS {
            return Err(BodyError::Malformed("more than 16 KiB of chunk extensions"));
        }
        if !syntax::is_value(&[byte]) {
            return Err(BodyError::Malformed("a control byte in a chunk extension"));
        }
        Ok(State::Extension)
    }

    fn sized(&mut self) -> Result<State, BodyError> {
        self.digits = 0;
        if self.left == 0 {
            return Ok(State::TrailerStart);
        }
        let Some(total) = self.total.checked_add(self.left) else {
            return Err(BodyError::Malformed("chunks of more than 64 bits together"));
        };
        self.total = total;
        if self.bounds.max_body.is_some_and(|max| total > max) {
            return Err(BodyError::TooLarge);
        }
        Ok(State::Data)
    }

    fn trailer(&mut self, byte: u8) -> Result<State, BodyError> {
        self.trailer_bytes += 1;
        self.trailers += usize::from(self.state == State::TrailerStart);
        if self.trailer_bytes > self.bounds.max_trailer_bytes || self.trailers > self.bounds.max_trailers {
            return Err(BodyError::Malformed("more trailers than header fields are allowed"));
        }
        match self.state {
            State::TrailerName if byte == b':' => Ok(State::TrailerValue),
            State::TrailerStart | State::TrailerName if syntax::is_token_byte(byte) => Ok(State::TrailerName),
            State::TrailerValue if syntax::is_value(&[byte]) => Ok(State::TrailerValue),
            _ => Err(BodyError::Malformed("a malformed trailer")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUNDS: ChunkBounds =
        ChunkBounds { max_body: Some(100_000), max_trailer_bytes: 200, max_trailers: 4 };

    /// Data and the number of bytes after the end (`None` if the end has not arrived), or an error.
    type Outcome = Result<(Vec<u8>, Option<usize>), BodyError>;

    fn decode(coded: &[u8], cuts: &[usize]) -> Outcome {
        let (mut decoder, mut data, mut used) = (Decoder::new(BOUNDS), Vec::new(), 0);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (coded.len() + 1)).collect();
        cuts.push(coded.len());
        cuts.sort_unstable();
        for cut in cuts {
            if cut > used && !decoder.is_done() {
                used += decoder.decode(&coded[used..cut], &mut data)?;
            }
        }
        Ok((data, decoder.is_done().then_some(coded.len() - used)))
    }

    fn status(error: &BodyError) -> &'static str {
        match error {
            BodyError::Malformed(_) => "malformed",
            BodyError::TooLarge => "too large",
            _ => "other",
        }
    }

    #[test]
    fn accepted() {
        for coded in [
            "a\r\n0123456789\r\n0\r\n\r\n",
            "A\r\n0123456789\r\n0\r\n\r\n",
            "000a\r\n0123456789\r\n000\r\n\r\n",
            "1\r\n0\r\n2\r\n12\r\n7\r\n3456789\r\n0\r\n\r\n",
            "a;n=v;f;q=\"a;b\"\r\n0123456789\r\n0;last\r\n\r\n",
            "a\r\n0123456789\r\n0\r\nX-T: one\r\nX-O:\r\n\r\n",
            "000000000000000a\r\n0123456789\r\n0\r\n\r\n",
        ] {
            let with_more = format!("{coded}GET /");
            assert_eq!(decode(with_more.as_bytes(), &[]), Ok((b"0123456789".to_vec(), Some(5))), "{coded:?}");
        }
        assert_eq!(decode(b"0\r\n\r\n", &[]), Ok((vec![], Some(0))));
        assert_eq!(decode(b"5\r\n123", &[]), Ok((b"123".to_vec(), None)));
    }

    #[test]
    fn refused() {
        for (coded, expected) in [
            ("\r\n", "malformed"),
            (";a\r\n", "malformed"),
            ("-5\r\n", "malformed"),
            ("+5\r\n", "malformed"),
            ("0x5\r\n", "malformed"),
            ("1_0\r\n", "malformed"),
            ("g\r\n", "malformed"),
            (" 5\r\n", "malformed"),
            ("5 \r\n", "malformed"),
            ("5\n", "malformed"),
            ("5\r1", "malformed"),
            ("00000000000000005\r\n", "malformed"),
            ("10000000000000005\r\n", "malformed"),
            ("ffffffffffffffff\r\n", "too large"),
            ("186a1\r\n", "too large"),
            ("5;a=\nb", "malformed"),
            ("5;a=\rb", "malformed"),
            ("5;a=\0", "malformed"),
            ("5\r\n123456", "malformed"),
            ("5\r\n12345\n", "malformed"),
            ("5\r\n123450\r\n", "malformed"),
            ("0\r\n\n", "malformed"),
            ("0\r\nnonsense\r\n", "malformed"),
            ("0\r\nX : b\r\n", "malformed"),
            ("0\r\n: b\r\n", "malformed"),
            ("0\r\nX: b\r\n c", "malformed"),
            ("0\r\nX: b\n", "malformed"),
            ("0\r\nX: \0", "malformed"),
            ("0\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\nA: b\r\n", "malformed"),
        ] {
            assert_eq!(
                decode(coded.as_bytes(), &[]).as_ref().map_err(status).err(),
                Some(expected),
                "{coded:?}"
            );
        }
        let extension = format!("1;{}\r\nx\r\n", "e".repeat(MAX_EXTENSIONS + 1));
        assert!(decode(extension.as_bytes(), &[]).is_err());
    }

    fn encode(chunks: &[Vec<u8>], decoration: &str) -> Vec<u8> {
        let mut coded = Vec::new();
        for chunk in chunks.iter().filter(|chunk| !chunk.is_empty()) {
            coded.extend_from_slice(format!("{:x}{decoration}\r\n", chunk.len()).as_bytes());
            coded.extend_from_slice(chunk);
            coded.extend_from_slice(b"\r\n");
        }
        coded.extend_from_slice(b"0\r\n\r\n");
        coded
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding_under_any_split(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8),
            decoration in prop::sample::select(vec!["", ";a=b", ";\"q\""]),
            cuts in prop::collection::vec(any::<usize>(), 0..10),
        ) {
            let mut coded = encode(&chunks, decoration);
            coded.extend_from_slice(b"next");
            prop_assert_eq!(decode(&coded, &cuts), Ok((chunks.concat(), Some(4))));
        }

        #[test]
        fn any_bytes_give_the_same_under_any_split(
            coded in prop::collection::vec(prop::sample::select(b"0015af;=\r\n\r\n\r\n: xg\0".to_vec()), 0..60),
            cuts in prop::collection::vec(any::<usize>(), 0..10),
        ) {
            let every: Vec<usize> = (0..coded.len()).collect();
            let expected = decode(&coded, &[]);
            prop_assert_eq!(decode(&coded, &cuts), expected.clone());
            prop_assert_eq!(decode(&coded, &every), expected);
        }
    }
}
