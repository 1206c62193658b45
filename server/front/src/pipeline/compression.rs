//! Compresses the responses of the app and of handlers (RFC 9110 section 8.4).
//!
//! Why here: compression is the last step before the client, so mruby handlers see the app's bytes; and no
//! thread holds the GVL for it.
//!
//! Contract:
//! 1. Files, sites and kept responses have chosen their coding ([`Response::negotiated`]) and are not
//!    changed, nor are responses that [`coding::may_encode`] refuses.
//! 2. A response that could have been compressed has `Vary: Accept-Encoding`, whatever the client accepts. A
//!    strong ETag becomes weak with the coding (section 8.8.1); [`WeakenedTags`] restores the app's own tag.
//! 3. Bytes that the app has flushed are sent at once.
//! 4. A short response costs no search in its fields. For a client that accepts no coding it costs one pass
//!    over them, and no clock reading.

use handler::{Body, Fields, Request, Response, Trace};
use representation::coding::{self, Budget, Coding, Effort, Encoding, Levels, Padding, Preferences};
use representation::conditions::{Tag, Tags};
use settings::Compression;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// The compression of one front thread.
pub(super) struct Compressor {
    budget: Rc<Budget>,
}

impl Compressor {
    pub(super) fn new() -> Compressor {
        Compressor { budget: Rc::new(Budget::new(1000, Instant::now())) }
    }

    /// Compresses a response if it, its client and the settings allow it.
    pub(super) fn apply(&self, settings: &Compression, response: &mut Response, trace: &Trace) {
        if !settings.responses || response.negotiated {
            return;
        }
        if response.status == 304 {
            return agree_with_200(&mut response.fields, trace);
        }
        if !coding::may_encode(response, settings.min_length, true) {
            return;
        }
        let Some(request) = trace.request() else { return };
        let head = request.method() == b"HEAD";
        if matches!(response.body, Body::Empty) && !coding::may_encode(response, settings.min_length, head) {
            return;
        }
        let codings = accepted(&request);
        if codings[0] == Coding::Identity {
            return coding::vary_at_last(&mut response.fields);
        }
        let levels =
            Levels { br: settings.brotli_level, zstd: settings.zstd_level, gzip: settings.gzip_level };
        // The setting is in millionths.
        self.budget.set_share(settings.cpu / 1000);
        let (codings, levels) = match self.budget.effort(Instant::now()) {
            Effort::Full => (codings, levels),
            Effort::Least => (codings, Levels::LEAST),
            Effort::None => ([Coding::Identity; 3], levels),
        };
        let padding = match has_secrets(&request, &response.fields) {
            true => Padding::random(settings.padding),
            false => Padding::NONE,
        };
        let tag = strong_tag(&response.fields).map(|tag| TAGS.hash(tag));
        let encoding = Encoding { codings: &codings, levels, padding, budget: Some(&self.budget) };
        coding::encode_response(response, &encoding, &request.peer);
        if let Some(tag) = tag
            && strong_tag(&response.fields).is_none()
        {
            TAGS.add(tag);
        }
    }
}

/// Returns the codings that the client accepts, the best one first.
fn accepted(request: &Request) -> [Coding; 3] {
    if request.fields.get("accept-encoding").is_none() {
        return [Coding::Identity; 3];
    }
    coding::live(&Preferences::read(request.fields.all("accept-encoding")), true)
}

/// Returns whether the response may hold a secret of one client.
fn has_secrets(request: &Request, response: &Fields) -> bool {
    ["cookie", "authorization"].iter().any(|name| request.fields.get(name).is_some())
        || response.get("set-cookie").is_some()
}

/// Returns the opaque part of a strong entity tag, with quotes.
fn strong_tag(fields: &Fields) -> Option<&[u8]> {
    Tag::parse(fields.get("etag")?).filter(|tag| !tag.weak).map(|tag| tag.quoted)
}

/// The strong tags of the app that were sent as weak ones, as hashes.
///
/// Why: an app such as Sinatra compares the tags of If-None-Match by their text. It would not recognise its
/// own tag in the weak form, and would send the whole page again.
///
/// Contract: bounded; a newer tag replaces an older one. A lost tag, or a text that an app uses as both a
/// strong and a weak tag, costs a 200 where a 304 was possible.
struct WeakenedTags {
    any: AtomicBool,
    hashes: [AtomicU64; WeakenedTags::SLOTS],
    secret: LazyLock<RandomState>,
}

static TAGS: WeakenedTags = WeakenedTags {
    any: AtomicBool::new(false),
    hashes: [const { AtomicU64::new(0) }; WeakenedTags::SLOTS],
    secret: LazyLock::new(RandomState::new),
};

impl WeakenedTags {
    /// 64 KiB.
    const SLOTS: usize = 8192;

    fn hash(&self, quoted: &[u8]) -> u64 {
        // 0 is an empty slot.
        self.secret.hash_one(quoted).max(1)
    }

    fn slot(&self, hash: u64) -> &AtomicU64 {
        &self.hashes[hash as usize % WeakenedTags::SLOTS]
    }

    fn add(&self, hash: u64) {
        self.slot(hash).store(hash, Ordering::Relaxed);
        self.any.store(true, Ordering::Relaxed);
    }

    fn contains(&self, quoted: &[u8]) -> bool {
        let hash = self.hash(quoted);
        self.slot(hash).load(Ordering::Relaxed) == hash
    }
}

/// Gives the app its strong tags back in If-None-Match.
pub(super) fn restore_tags(request: &mut Request) {
    if !TAGS.any.load(Ordering::Relaxed) {
        return;
    }
    let Some(value) = request.fields.get("if-none-match") else { return };
    let is_ours = |tag: &Tag<'_>| tag.weak && TAGS.contains(tag.quoted);
    if !Tags(value).any(|tag| is_ours(&tag)) {
        return;
    }
    let mut restored = Vec::with_capacity(value.len());
    for tag in Tags(value) {
        if !restored.is_empty() {
            restored.extend_from_slice(b", ");
        }
        if tag.weak && !is_ours(&tag) {
            restored.extend_from_slice(b"W/");
        }
        restored.extend_from_slice(tag.quoted);
    }
    request.fields.retain(|name, _| !name.eq_ignore_ascii_case(b"if-none-match"));
    request.fields.push(b"If-None-Match", &restored);
}

/// A 304 has the ETag and Vary that the 200 would have (RFC 9110 section 15.4.5).
fn agree_with_200(fields: &mut Fields, trace: &Trace) {
    let Some(weak) = strong_tag(fields).filter(|tag| TAGS.contains(tag)).map(|tag| [b"W/", tag].concat())
    else {
        return;
    };
    coding::vary(fields);
    if trace.request().is_some_and(|request| accepted(&request)[0] != Coding::Identity) {
        fields.retain(|name, _| !name.eq_ignore_ascii_case(b"etag"));
        fields.push(b"ETag", &weak);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_known_by_their_text_and_newer_ones_displace_older_ones() {
        let tags = &TAGS;
        assert!(!tags.contains(b"\"never sent\""));
        tags.add(tags.hash(b"\"sent\""));
        assert!(tags.contains(b"\"sent\"") && !tags.contains(b"\"never sent\""));
        for number in 0..200_000 {
            tags.add(tags.hash(format!("\"{number}\"").as_bytes()));
        }
        assert!(!tags.contains(b"\"sent\"") && tags.contains(b"\"199999\""));
    }
}
