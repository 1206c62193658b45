//! Parses the Range header field (RFC 9110 section 14.2) and builds the body of a 206 with several parts
//! (section 14.6).
//!
//! Contract of [`parse`]:
//! 1. A field that is not `bytes=` with well-formed ranges is ignored: [`Ranges::Whole`].
//! 2. Ranges that begin after the end are dropped. If none is left: [`Ranges::Unsatisfiable`].
//! 3. Ranges that overlap or touch are merged. The others keep the order of the request.
//! 4. Excessive requests get the whole file: more than 32 ranges; ranges whose total length exceeds the
//!    file's (some bytes twice); more than eight parts that, with [`HEAD_ESTIMATE`] bytes of part head each,
//!    are longer than the file.

use bytes::Bytes;
use handler::held::OpenFile;
use handler::{Body, BodyStream, Chunk, Failure, Fields, FileRegion, Response};
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::ops::Range;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The most ranges in one field.
const MAX_RANGES: usize = 32;

/// Up to this many parts are sent without comparing their size with the whole file's.
const SMALL_COUNT: usize = 8;

/// The estimated size of a part's head, in bytes.
pub const HEAD_ESTIMATE: u64 = 128;

/// The part of a file that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ranges {
    /// The whole file (200): the field is invalid or excessive.
    Whole,
    /// No range lies inside the file (416).
    Unsatisfiable,
    /// One non-empty part inside the file (206).
    One(Range<u64>),
    /// At least two parts that do not touch, in the order of the request (206, multipart/byteranges).
    Several(Vec<Range<u64>>),
}

/// Parses the value of a Range field for a file of `len` bytes.
pub fn parse(value: &[u8], len: u64) -> Ranges {
    let Some(set) = byte_set(value) else { return Ranges::Whole };
    let items = || set.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|item| !item.is_empty());
    let mut count = 0;
    let mut total: u64 = 0;
    let mut parts: Vec<Range<u64>> = Vec::new();
    for item in items() {
        count += 1;
        let Some(range) = spec(item, len) else { return Ranges::Whole };
        if count > MAX_RANGES {
            return Ranges::Whole;
        }
        if !range.is_empty() {
            total = total.saturating_add(range.end - range.start);
            join(&mut parts, range);
        }
    }
    let heads = HEAD_ESTIMATE * parts.len() as u64;
    let sum: u64 = parts.iter().map(|part| part.end - part.start).sum();
    match parts.len() {
        _ if count == 0 || total > len => Ranges::Whole,
        0 => Ranges::Unsatisfiable,
        1 => Ranges::One(parts.swap_remove(0)),
        parts if parts > SMALL_COUNT && sum.saturating_add(heads) > len => Ranges::Whole,
        _ => Ranges::Several(parts),
    }
}

/// Returns the range set after `bytes=`.
fn byte_set(value: &[u8]) -> Option<&[u8]> {
    let (unit, set) = split_once(value.trim_ascii(), b'=')?;
    unit.eq_ignore_ascii_case(b"bytes").then_some(set)
}

/// Parses one range, clipped to the file; empty if it lies outside.
fn spec(item: &[u8], len: u64) -> Option<Range<u64>> {
    let (first, last) = split_once(item, b'-')?;
    match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => Some(first.min(len)..last.saturating_add(1).min(len)),
        (Some(first), None) if last.is_empty() => Some(first.min(len)..len),
        (None, Some(count)) if first.is_empty() => Some(len - count.min(len)..len),
        _ => None,
    }
}

/// Adds a range, merged with those that it overlaps or touches, at the position of the first of them.
fn join(parts: &mut Vec<Range<u64>>, mut range: Range<u64>) {
    let mut index = parts.len();
    let mut at = 0;
    while at < parts.len() {
        if parts[at].start <= range.end && range.start <= parts[at].end {
            let part = parts.remove(at);
            range = part.start.min(range.start)..part.end.max(range.end);
            index = index.min(at);
            // The merged range may touch parts that the shorter one did not.
            at = 0;
        } else {
            at += 1;
        }
    }
    parts.insert(index.min(parts.len()), range);
}

/// Parses digits; saturates.
fn number(digits: &[u8]) -> Option<u64> {
    let add = |sum: u64, digit: &u8| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        Some(sum.saturating_mul(10).saturating_add(digit))
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

fn split_once(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let index = text.iter().position(|&byte| byte == at)?;
    Some((&text[..index], &text[index + 1..]))
}

/// The source of the parts.
#[derive(Debug, Clone)]
pub enum Content {
    File(Rc<OpenFile>),
    /// The whole file in memory.
    Bytes(Bytes),
}

impl From<Rc<OpenFile>> for Content {
    fn from(file: Rc<OpenFile>) -> Content {
        Content::File(file)
    }
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Content {
        Content::Bytes(bytes)
    }
}

impl Content {
    /// Returns one range. A buffer that is too short is an error, like a file that has shrunk.
    fn part(&self, range: &Range<u64>) -> Result<Chunk, Failure> {
        match self {
            Content::File(file) => Ok(Chunk::File(FileRegion {
                file: Rc::clone(file),
                offset: range.start,
                len: range.end - range.start,
            })),
            Content::Bytes(bytes) if range.end <= bytes.len() as u64 => {
                Ok(Chunk::Bytes(bytes.slice(range.start as usize..range.end as usize)))
            }
            Content::Bytes(_) => Err(Failure::server(500, "a file is shorter than the requested range")),
        }
    }
}

/// Returns the response to a GET with this Range field: 206, 416, or the response of `whole` with `fields`.
/// `fields`: those of the 200.
pub fn respond(
    range: &[u8],
    content: &Content,
    len: u64,
    mut fields: Fields,
    whole: impl FnOnce(Fields) -> Response,
) -> Response {
    let ranges = parse(range, len);
    if !matches!(ranges, Ranges::Whole) && fields.get("content-range").is_some() {
        // It has no meaning in a 200 (RFC 9110 section 14.4), and another one here.
        fields.retain(|name, _| !name.eq_ignore_ascii_case(b"content-range"));
    }
    match ranges {
        Ranges::Whole => whole(fields),
        Ranges::Unsatisfiable => {
            fields.retain(|name, _| {
                !name.eq_ignore_ascii_case(b"content-type") && !name.eq_ignore_ascii_case(b"content-encoding")
            });
            fields.push(b"Content-Range", format!("bytes */{len}").as_bytes());
            Response::new(416, fields, Body::Empty)
        }
        Ranges::One(range) => match content.part(&range) {
            Ok(chunk) => {
                let value = format!("bytes {}-{}/{len}", range.start, range.end - 1);
                fields.push(b"Content-Range", value.as_bytes());
                Response::new(206, fields, body_of(chunk))
            }
            Err(failure) => failure.into_response(),
        },
        Ranges::Several(ranges) => {
            let content_type = fields.get("content-type").unwrap_or(b"application/octet-stream");
            let content_type = String::from_utf8_lossy(content_type).into_owned();
            let (content_type, length, stream) = multipart(&ranges, content.clone(), len, &content_type);
            fields.retain(|name, _| !name.eq_ignore_ascii_case(b"content-type"));
            fields.push(b"Content-Type", content_type.as_bytes());
            fields.push(b"Content-Length", length.to_string().as_bytes());
            Response::new(206, fields, Body::Stream(stream))
        }
    }
}

fn body_of(chunk: Chunk) -> Body {
    match chunk {
        Chunk::File(region) => Body::File(region),
        Chunk::Bytes(bytes) => Body::Bytes(bytes),
        Chunk::Offer(_) => Body::Empty,
    }
}

/// Builds the body of a 206 with several parts. Returns its Content-Type, its exact length in bytes, and the
/// stream. `len`: the length of the whole file. `content_type`: the field of the 200 response.
fn multipart(
    ranges: &[Range<u64>],
    content: impl Into<Content>,
    len: u64,
    content_type: &str,
) -> (String, u64, Box<dyn BodyStream>) {
    let content = content.into();
    let boundary = boundary();
    let mut total = 0;
    let mut chunks = VecDeque::with_capacity(ranges.len() * 2 + 1);
    for (index, range) in ranges.iter().enumerate() {
        let line = if index == 0 { "" } else { "\r\n" };
        let (first, last) = (range.start, range.end.saturating_sub(1));
        let head = format!(
            "{line}--{boundary}\r\nContent-Type: {content_type}\r\nContent-Range: bytes {first}-{last}/{len}\r\n\r\n"
        );
        total += head.len() as u64 + (range.end - range.start);
        chunks.push_back(Ok(Chunk::Bytes(head.into())));
        chunks.push_back(content.part(range));
    }
    let end = format!("\r\n--{boundary}--\r\n");
    total += end.len() as u64;
    chunks.push_back(Ok(Chunk::Bytes(end.into())));
    (format!("multipart/byteranges; boundary={boundary}"), total, Box::new(Parts(chunks)))
}

/// Returns 128 random bits, so that the author of a file cannot predict the boundary and put it into a part.
fn boundary() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

struct Parts(VecDeque<Result<Chunk, Failure>>);

impl BodyStream for Parts {
    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        let next = self.0.pop_front();
        if let Some(Err(_)) = next {
            self.0.clear();
        }
        Poll::Ready(next)
    }
}

#[cfg(test)]
#[path = "byteranges_tests.rs"]
mod tests;
