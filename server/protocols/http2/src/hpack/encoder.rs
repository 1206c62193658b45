//! Encodes the header sections of responses.
//!
//! Only the date is put into the dynamic table: all responses of a second share it, so it costs one byte.
//! Other fields are literals without indexing. Frozen fields are encoded once for all connections, which an
//! index into one connection's table would prevent, and copying a block of them is faster than looking them
//! up.

use super::static_table::index_of;
use fieldcode::syntax::{is_token, is_value, trim};
use fieldcode::{encode_integer, huffman_encode, huffman_len};
use handler::{Fields, Frozen};

/// The length of an IMF-fixdate.
const DATE: usize = 29;
/// The table size that one date needs: name, value and overhead.
const DATE_SIZE: u32 = 4 + DATE as u32 + 32;
/// The size of the table at the start of a connection.
const TABLE_SIZE: u32 = 4096;
/// The newest field of the dynamic table.
const NEWEST: u8 = 0x80 | 62;

#[derive(Debug)]
pub(crate) struct Encoder {
    /// The used size of the client's table.
    size: u32,
    /// The client has reduced the size: the next section announces it (RFC 7541 section 4.2).
    announce: bool,
    /// The newest field of the table, if there is one.
    date: Option<[u8; DATE]>,
}

/// Frozen fields, encoded once.
struct FrozenBlock(Box<[u8]>);

impl FrozenBlock {
    fn of(frozen: &Frozen) -> &[u8] {
        let block = frozen.cache().get_or_init(|| {
            let mut text = Vec::new();
            frozen.iter().for_each(|(name, value)| field(&mut text, name, trim(value), true));
            FrozenBlock(text.into())
        });
        &block.0
    }
}

impl Encoder {
    pub(crate) fn new() -> Encoder {
        Encoder { size: TABLE_SIZE, announce: false, date: None }
    }

    /// Applies the client's SETTINGS_HEADER_TABLE_SIZE. A larger table than before is not used.
    pub(crate) fn set_table_size(&mut self, size: u32) {
        if size < self.size {
            self.size = size;
            self.announce = true;
            self.date = None;
        }
    }

    /// Appends the beginning of a section.
    #[inline]
    pub(crate) fn begin(&mut self, to: &mut Vec<u8>) {
        if self.announce {
            self.announce = false;
            encode_integer(to, 0x20, 5, u64::from(self.size));
        }
    }

    /// Appends `:status`.
    #[inline]
    pub(crate) fn status(to: &mut Vec<u8>, status: u16) {
        let index = match status {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => {
                let digit = |by: u16| b'0' + (status / by % 10) as u8;
                to.extend_from_slice(&[8, 3, digit(100), digit(10), digit(1)]);
                return;
            }
        };
        to.push(0x80 | index);
    }

    /// Returns the date as one byte, if the client's table has it and no size update is due before it.
    #[inline]
    pub(crate) fn short_date(&self, date: &[u8]) -> Option<u8> {
        let known = !self.announce && self.date.as_ref().is_some_and(|known| known[..] == *date);
        known.then_some(NEWEST)
    }

    /// Appends a date.
    #[inline]
    pub(crate) fn date(&mut self, to: &mut Vec<u8>, date: &[u8]) {
        if self.date.as_ref().is_some_and(|known| known[..] == *date) {
            to.push(NEWEST);
            return;
        }
        self.date = date.try_into().ok().filter(|_| self.size >= DATE_SIZE);
        // With or without a place in the table.
        let (flags, prefix) = if self.date.is_some() { (0x40, 6) } else { (0, 4) };
        encode_integer(to, flags, prefix, 33);
        encode_integer(to, 0, 7, date.len() as u64);
        to.extend_from_slice(date);
    }

    /// Appends `content-length`.
    #[inline]
    pub(crate) fn content_length(to: &mut Vec<u8>, length: u64) {
        let (mut digits, mut at, mut rest) = ([0; 20], 20, length);
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        // Name 28 without a place in the table; the length of the value.
        to.extend_from_slice(&[0x0f, 28 - 15, 20 - at as u8]);
        to.extend_from_slice(&digits[at..]);
    }

    /// Appends the fields that HTTP/2 allows. Returns whether `date` is among them.
    #[inline]
    pub(crate) fn fields(to: &mut Vec<u8>, fields: &Fields) -> bool {
        if let Some(frozen) = fields.frozen() {
            to.extend_from_slice(FrozenBlock::of(frozen));
        }
        let mut dated = false;
        for (name, value) in fields.fresh() {
            let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
            let left_out = match name.len() {
                4 => {
                    dated |= is(b"date");
                    false
                }
                7 => is(b"upgrade"),
                10 => is(b"connection") || is(b"keep-alive"),
                14 => is(b"content-length"),
                16 => is(b"proxy-connection"),
                17 => is(b"transfer-encoding"),
                _ => false,
            };
            if !left_out && is_token(name) && is_value(value) {
                field(to, name, trim(value), false);
            }
        }
        dated
    }
}

/// Appends a literal without indexing. `compact`: in the Huffman code where that is shorter.
fn field(to: &mut Vec<u8>, name: &[u8], value: &[u8], compact: bool) {
    to.reserve(name.len() + value.len() + 16);
    // RFC 7541 section 7.1.3: proxies must not put a session into a table.
    let flags = if name.eq_ignore_ascii_case(b"set-cookie") { 0x10 } else { 0 };
    let index = index_of(name);
    encode_integer(to, flags, 4, u64::from(index));
    if index == 0 && compact {
        string(to, &name.to_ascii_lowercase(), true);
    } else if index == 0 {
        string(to, name, false);
        let start = to.len() - name.len();
        to[start..].make_ascii_lowercase();
    }
    string(to, value, compact);
}

/// Appends a string literal (RFC 7541 section 5.2).
fn string(to: &mut Vec<u8>, text: &[u8], compact: bool) {
    if compact && huffman_len(text) < text.len() {
        encode_integer(to, 0x80, 7, huffman_len(text) as u64);
        huffman_encode(text, to);
    } else {
        encode_integer(to, 0, 7, text.len() as u64);
        to.extend_from_slice(text);
    }
}
