//! The file format of a kept resource.
//!
//! `FBC1`, the SHA-256 of everything that follows, the key, and the variants. Numbers are little-endian; each
//! text follows its length. Times are wall-clock times, because another process reads them.
//!
//! Contract: reading any bytes returns a resource that [`write`] has written, or nothing. It never panics,
//! and allocates no more than a small multiple of the file's length.

use crate::stored::{Rules, Stored, StoredParts};
use crate::vary::Selection;
use bytes::Bytes;
use handler::Fields;
use sha2::{Digest, Sha256};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const MAGIC: &[u8; 4] = b"FBC1";
/// The bytes before the content: the magic and the digest.
const PREFIX: usize = 4 + 32;

/// Encodes a resource.
pub(crate) fn write<'a>(key: &[u8], variants: impl ExactSizeIterator<Item = &'a Stored>) -> Vec<u8> {
    let mut out = vec![0; PREFIX];
    text(&mut out, key);
    number(&mut out, variants.len() as u64);
    for stored in variants {
        variant(&mut out, stored);
    }
    let digest = Sha256::digest(&out[PREFIX..]);
    out[..4].copy_from_slice(MAGIC);
    out[4..PREFIX].copy_from_slice(&digest);
    out
}

fn variant(out: &mut Vec<u8>, stored: &Stored) {
    let parts = stored.parts();
    number(out, parts.status.into());
    time(out, parts.lifetime);
    time(out, parts.initial_age);
    time(out, parts.since.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO));
    time(out, parts.took);
    let rules = parts.rules;
    let bits = u64::from(rules.no_cache)
        | u64::from(rules.must_revalidate) << 1
        | u64::from(rules.may_be_stale) << 2;
    number(out, bits);
    optional(out, rules.stale_while_revalidate);
    optional(out, rules.stale_if_error);
    let fields = parts.fields;
    number(out, fields.len() as u64);
    for (name, value) in fields.iter() {
        text(out, name);
        text(out, value);
    }
    number(out, parts.selection.pairs().count() as u64);
    for (name, value) in parts.selection.pairs() {
        text(out, name);
        number(out, u64::from(value.is_some()));
        text(out, value.unwrap_or_default());
    }
    number(out, parts.tags.len() as u64);
    parts.tags.iter().for_each(|tag| text(out, tag));
    text(out, &parts.body);
}

fn number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn optional(out: &mut Vec<u8>, value: Option<u64>) {
    number(out, value.map_or(0, |value| value.saturating_add(1)));
}

fn time(out: &mut Vec<u8>, time: Duration) {
    number(out, u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    number(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// Decodes a resource: its key and its variants. `None` if the bytes are incomplete or damaged.
pub(crate) fn read(bytes: &Bytes) -> Option<(Box<[u8]>, Vec<Stored>)> {
    let content = bytes.get(PREFIX..)?;
    if &bytes[..4] != MAGIC || bytes[4..PREFIX] != *Sha256::digest(content) {
        return None;
    }
    let mut reader = Reader { bytes, at: PREFIX };
    let key = reader.text()?.to_vec().into_boxed_slice();
    let count = reader.number()?;
    let mut variants = Vec::new();
    for _ in 0..count {
        variants.push(reader.variant()?);
    }
    (reader.at == bytes.len()).then_some((key, variants))
}

struct Reader<'a> {
    bytes: &'a Bytes,
    at: usize,
}

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        let bytes = self.bytes.get(self.at..self.at.checked_add(8)?)?;
        self.at += 8;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }

    fn optional(&mut self) -> Option<Option<u64>> {
        self.number().map(|number| number.checked_sub(1))
    }

    fn time(&mut self) -> Option<Duration> {
        self.number().map(Duration::from_millis)
    }

    fn text(&mut self) -> Option<Bytes> {
        let length = usize::try_from(self.number()?).ok()?;
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len())?;
        let text = self.bytes.slice(self.at..end);
        self.at = end;
        Some(text)
    }

    fn variant(&mut self) -> Option<Stored> {
        let status = u16::try_from(self.number()?).ok().filter(|status| (200..=599).contains(status))?;
        let (lifetime, initial_age) = (self.time()?, self.time()?);
        let since: SystemTime = UNIX_EPOCH.checked_add(self.time()?)?;
        let took = self.time()?;
        let bits = self.number()?;
        let rules = Rules {
            no_cache: bits & 1 != 0,
            must_revalidate: bits & 2 != 0,
            may_be_stale: bits & 4 != 0,
            stale_while_revalidate: self.optional()?,
            stale_if_error: self.optional()?,
        };
        let mut fields = Fields::default();
        for _ in 0..self.number()? {
            let (name, value) = (self.text()?, self.text()?);
            fields.push(&name, &value);
        }
        let mut pairs = Vec::new();
        for _ in 0..self.number()? {
            let (name, is_some, value) = (self.text()?, self.number()?, self.text()?);
            pairs.push((
                name.to_vec().into_boxed_slice(),
                (is_some == 1).then(|| value.to_vec().into_boxed_slice()),
            ));
        }
        let mut tags = Vec::new();
        for _ in 0..self.number()? {
            tags.push(self.text()?.to_vec().into_boxed_slice());
        }
        // A copy, so that the body does not keep the bytes of the whole file.
        let body = Bytes::copy_from_slice(&self.text()?);
        let selection = Selection::from_pairs(pairs);
        Some(Stored::from_parts(StoredParts {
            status,
            fields,
            body,
            lifetime,
            initial_age,
            since,
            selection,
            rules,
            tags: tags.into(),
            took,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stored(body: &[u8], tag: &str, swr: Option<u64>) -> Stored {
        let mut fields = Fields::default();
        fields.push(b"Content-Type", b"text/plain");
        fields.push(b"X", body);
        Stored::from_parts(StoredParts {
            status: 200,
            fields,
            body: Bytes::copy_from_slice(body),
            lifetime: Duration::from_secs(60),
            initial_age: Duration::from_secs(1),
            since: SystemTime::now(),
            selection: Selection::from_pairs(vec![
                (Box::from(&b"a"[..]), None),
                (Box::from(&b"b"[..]), Some(Box::from(&b"1"[..]))),
            ]),
            rules: Rules {
                no_cache: true,
                must_revalidate: false,
                may_be_stale: true,
                stale_while_revalidate: swr,
                stale_if_error: Some(0),
            },
            tags: vec![Box::from(tag.as_bytes())].into(),
            took: Duration::from_millis(5),
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(body: Vec<u8>, tag: String, swr: Option<u32>, count in 0_usize..3) {
            let variants: Vec<Stored> = (0..count).map(|_| stored(&body, &tag, swr.map(u64::from))).collect();
            let written = Bytes::from(write(b"http://a/", variants.iter()));
            let (key, read) = read(&written).unwrap();
            prop_assert_eq!((&*key, read.len()), (&b"http://a/"[..], count));
            for (one, other) in variants.iter().zip(&read) {
                prop_assert_eq!(&one.body, &other.body);
                prop_assert_eq!(one.rules, other.rules);
                prop_assert_eq!(&one.tags, &other.tags);
                prop_assert_eq!(&one.selection, &other.selection);
                prop_assert!(one.head.fields().iter().eq(other.head.fields().iter()));
                prop_assert!(other.age(std::time::Instant::now()) >= Duration::from_secs(1));
            }
        }

        #[test]
        fn changed_bytes_are_refused(body: Vec<u8>, at: usize, bit in 0_u8..8) {
            let mut written = write(b"http://a/", [stored(&body, "t", None)].iter());
            let at = at % written.len();
            written[at] ^= 1 << bit;
            prop_assert!(read(&Bytes::from(written)).is_none());
        }

        #[test]
        fn any_content_with_a_right_digest_is_read_without_panic(content: Vec<u8>) {
            let digest = Sha256::digest(&content);
            let all = [&MAGIC[..], &digest[..], &content[..]].concat();
            let _ = read(&Bytes::from(all));
        }
    }
}
