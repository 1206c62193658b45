//! Encodes the head of a response.
//!
//! Why values are not Huffman-coded: it saves a fifth of some hundred bytes, and costs more than the rest of
//! the head. Frozen fields are encoded once (see `handler::Fields::freeze`).

use super::table;
use crate::frame::kind;
use crate::varint;
use fieldcode::{Name, encode_integer};
use handler::{Fields, Frozen};

/// The parts of a head besides its fields.
#[derive(Debug, Clone, Copy)]
pub struct ResponseSection<'a> {
    pub status: u16,
    /// The `date` field, unless the fields have one.
    pub date: Option<&'a [u8]>,
    /// The `content-length` field, if the length is known.
    pub content_length: Option<u64>,
}

/// Encodes heads; keeps its buffer.
#[derive(Debug, Default)]
pub struct Encoder {
    section: Vec<u8>,
}

/// The encoded form of frozen fields.
struct Encoded(Vec<u8>);

impl Encoder {
    /// Appends a HEADERS frame to `to`. Names are written in lower case. Connection-specific fields (RFC 9114
    /// section 4.2) and `content-length` are left out.
    pub fn head(&mut self, to: &mut Vec<u8>, head: ResponseSection<'_>, fields: &Fields) {
        self.section.clear();
        let section = &mut self.section;
        // No reference to the dynamic table.
        section.extend_from_slice(&[0, 0]);
        match table::status(head.status) {
            Some(index) => indexed(section, index),
            None => {
                let digits = [head.status / 100, head.status / 10 % 10, head.status % 10]
                    .map(|digit| b'0' + digit as u8);
                with_name(section, 24, &digits);
            }
        }
        if let Some(length) = head.content_length {
            content_length(section, length);
        }
        if let Some(frozen) = fields.frozen() {
            section.extend_from_slice(&encoded(frozen).0);
        }
        let mut dated = false;
        for (name, value) in fields.fresh() {
            dated |= name.eq_ignore_ascii_case(b"date");
            field(section, name, value);
        }
        if let Some(date) = head.date.filter(|_| !dated) {
            with_name(section, 6, date);
        }
        varint::encode(to, kind::HEADERS);
        varint::encode(to, section.len() as u64);
        to.extend_from_slice(section);
    }

    /// Appends a HEADERS frame with an informational response (RFC 9114 section 4.1).
    pub fn interim(&mut self, to: &mut Vec<u8>, status: u16, fields: &Fields) {
        self.head(to, ResponseSection { status, date: None, content_length: None }, fields);
    }
}

fn encoded(frozen: &Frozen) -> &Encoded {
    frozen.cache().get_or_init(|| {
        let mut section = Vec::new();
        frozen.iter().for_each(|(name, value)| field(&mut section, name, value));
        Encoded(section)
    })
}

fn field(section: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let mut lower = [0; 64];
    let owned;
    let name = match lower.get_mut(..name.len()) {
        Some(lower) => {
            lower.copy_from_slice(name);
            lower.make_ascii_lowercase();
            &*lower
        }
        None => {
            owned = name.to_ascii_lowercase();
            &owned
        }
    };
    if matches!(Name::of(name), Name::Connection | Name::ContentLength) {
        return;
    }
    match table::name(name) {
        Some(first) => match table::entry(first, value) {
            Some(index) => indexed(section, index as u64),
            None => with_name(section, first as u64, value),
        },
        None => {
            encode_integer(section, 0x20, 3, name.len() as u64);
            section.extend_from_slice(name);
            text(section, value);
        }
    }
}

/// Appends an entry of the static table (RFC 9204 section 4.5.2).
fn indexed(section: &mut Vec<u8>, index: u64) {
    encode_integer(section, 0xc0, 6, index);
}

/// Appends a name of the static table and a value (section 4.5.4).
fn with_name(section: &mut Vec<u8>, index: u64, value: &[u8]) {
    encode_integer(section, 0x50, 4, index);
    text(section, value);
}

fn text(section: &mut Vec<u8>, value: &[u8]) {
    encode_integer(section, 0, 7, value.len() as u64);
    section.extend_from_slice(value);
}

fn content_length(section: &mut Vec<u8>, length: u64) {
    let mut digits = [0; 20];
    let (mut at, mut rest) = (digits.len(), length);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    with_name(section, 4, &digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use fieldcode::{decode_integer, huffman_decode};
    use proptest::prelude::*;

    /// Decodes this encoder's output, independently of the decoder for requests.
    fn fields_of(frame: &[u8]) -> Vec<(String, String)> {
        let (kind, first) = varint::decode(frame).unwrap();
        let (len, second) = varint::decode(&frame[first..]).unwrap();
        assert_eq!((kind, len as usize), (kind::HEADERS, frame.len() - first - second));
        let bytes = &frame[first + second..];
        assert_eq!(&bytes[..2], [0, 0]);
        let (mut at, mut fields) = (2, Vec::new());
        let string = |at: &mut usize, prefix: u32| {
            let huffman = bytes[*at] & 1 << prefix != 0;
            let len = decode_integer(bytes, at, prefix).unwrap() as usize;
            let coded = &bytes[*at..*at + len];
            *at += len;
            let mut text = Vec::new();
            if huffman {
                huffman_decode(coded, &mut text).unwrap()
            } else {
                text.extend_from_slice(coded)
            }
            String::from_utf8(text).unwrap()
        };
        while at < bytes.len() {
            let (name, value) = match bytes[at] {
                0xc0.. => {
                    let (name, value) =
                        super::table::STATIC[decode_integer(bytes, &mut at, 6).unwrap() as usize];
                    (name.to_owned(), value.to_owned())
                }
                0x40.. => {
                    let name = super::table::STATIC[decode_integer(bytes, &mut at, 4).unwrap() as usize].0;
                    (name.to_owned(), string(&mut at, 7))
                }
                _ => (string(&mut at, 3), string(&mut at, 7)),
            };
            fields.push((name, value));
        }
        fields
    }

    #[test]
    fn heads() {
        let mut fields = Fields::default();
        fields.push(b"Content-Type", b"text/css");
        fields.push(b"Connection", b"close");
        fields.push(b"X-Long-Name-That-No-Table-Has", b"v");
        let mut to = Vec::new();
        let head = ResponseSection { status: 404, date: Some(b"today"), content_length: Some(1203) };
        Encoder::default().head(&mut to, head, &fields);
        let expected = [
            (":status", "404"),
            ("content-length", "1203"),
            ("content-type", "text/css"),
            ("x-long-name-that-no-table-has", "v"),
            ("date", "today"),
        ];
        assert_eq!(fields_of(&to), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn frozen_fields_are_the_same() {
        let mut fields = Fields::default();
        fields.push(b"ETag", b"\"x\"");
        fields.push(b"Cache-Control", b"no-store");
        let fields = fields.freeze();
        let head = ResponseSection { status: 201, date: None, content_length: Some(0) };
        for _ in 0..2 {
            let mut to = Vec::new();
            Encoder::default().head(&mut to, head, &fields);
            let expected = [
                (":status", "201"),
                ("content-length", "0"),
                ("etag", "\"x\""),
                ("cache-control", "no-store"),
            ];
            assert_eq!(fields_of(&to), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn any_field_survives(status in 100u16..1000, name in "[a-zA-Z-]{1,90}", value in "[ -~]{0,200}") {
            let mut fields = Fields::default();
            fields.push(name.as_bytes(), value.as_bytes());
            let mut to = Vec::new();
            Encoder::default().interim(&mut to, status, &fields);
            if fieldcode::Name::of(name.to_ascii_lowercase().as_bytes()) != fieldcode::Name::Plain {
                return Ok(());
            }
            prop_assert_eq!(fields_of(&to), [(":status".to_owned(), status.to_string()), (name.to_ascii_lowercase(), value)]);
        }
    }
}
