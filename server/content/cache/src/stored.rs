//! A kept response.
//!
//! Contract: a [`Stored`] does not change, apart from its encoded forms, which are added once, and its counts. A validated response is a new one that
//! shares the body.

use crate::date;
use crate::directives::ResponseDirectives;
use crate::freshness::initial_age;
use crate::storable::Plan;
use crate::vary::Selection;
use bytes::Bytes;
use handler::{Body, Fields, Request, Response, Span};
use representation::coding::{self, Coding};
use representation::conditions::Tag;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// What a kept response says about its reuse, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// It is validated before each use.
    pub(crate) no_cache: bool,
    /// It is never sent stale.
    pub(crate) must_revalidate: bool,
    /// Nothing in it forbids that it is sent stale.
    pub(crate) may_be_stale: bool,
    pub(crate) stale_while_revalidate: Option<u64>,
    pub(crate) stale_if_error: Option<u64>,
}

impl Rules {
    fn of(directives: &ResponseDirectives) -> Rules {
        let must_revalidate = directives.must_revalidate || directives.proxy_revalidate;
        Rules {
            no_cache: directives.no_cache,
            must_revalidate,
            may_be_stale: !must_revalidate && directives.s_maxage.is_none(),
            stale_while_revalidate: directives.stale_while_revalidate,
            stale_if_error: directives.stale_if_error,
        }
    }
}

/// Header fields that threads share.
#[derive(Debug, Clone, Default)]
pub(crate) struct Head {
    text: Box<[u8]>,
    slots: Box<[(Span, Span)]>,
}

impl Head {
    fn new(fields: &Fields) -> Head {
        let mut text = Vec::with_capacity(256);
        let mut slots = Vec::with_capacity(fields.len());
        for (name, value) in fields.iter() {
            let start = text.len() as u32;
            text.extend_from_slice(name);
            text.extend_from_slice(value);
            let name = Span { start, len: name.len() as u32 };
            slots.push((name, Span { start: start + name.len, len: value.len() as u32 }));
        }
        Head { text: text.into(), slots: slots.into() }
    }

    /// Returns the fields, with room for a few more.
    pub(crate) fn fields(&self) -> Fields {
        let mut text = Vec::with_capacity(self.text.len() + 128);
        text.extend_from_slice(&self.text);
        let mut slots = Vec::with_capacity(self.slots.len() + 6);
        slots.extend_from_slice(&self.slots);
        Fields::from_parts(text, slots)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        let is = |span: &Span| {
            span.len as usize == name.len() && span.slice(&self.text).eq_ignore_ascii_case(name.as_bytes())
        };
        self.slots.iter().find(|(found, _)| is(found)).map(|(_, value)| value.slice(&self.text))
    }

    fn bytes(&self) -> usize {
        self.text.len() + size_of_val(&*self.slots)
    }
}

/// The encoded forms of a body, each made once.
#[derive(Debug, Default)]
pub(crate) struct EncodedForms {
    /// By the number of the coding; `None` inside: it does not shrink.
    forms: [OnceLock<Option<Bytes>>; 3],
    /// Codings that are being made, a bit each.
    begun: AtomicU8,
}

impl EncodedForms {
    /// Returns the form, if it has been made; `None` inside if the body does not shrink.
    pub(crate) fn get(&self, coding: Coding) -> Option<&Option<Bytes>> {
        self.forms.get(coding as usize)?.get()
    }

    /// Returns true to one caller, which then makes the form.
    pub(crate) fn begin(&self, coding: Coding) -> bool {
        let bit = 1_u8 << (coding as u8);
        self.begun.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    pub(crate) fn set(&self, coding: Coding, form: Option<Bytes>) {
        if let Some(slot) = self.forms.get(coding as usize) {
            // Only the caller that has begun it gets here.
            let _ = slot.set(form);
        }
    }

    fn bytes(&self) -> usize {
        self.forms.iter().filter_map(|form| form.get()?.as_ref()).map(Bytes::len).sum()
    }
}

#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) status: u16,
    pub(crate) head: Head,
    pub(crate) body: Bytes,
    /// Whether it may be encoded, whatever its length is.
    pub(crate) codable: bool,
    pub(crate) forms: Arc<EncodedForms>,
    pub(crate) lifetime: Duration,
    /// Its age when it arrived.
    initial_age: Duration,
    pub(crate) arrived: Instant,
    /// When it arrived, by the clock on the wall.
    pub(crate) since: SystemTime,
    pub(crate) selection: Selection,
    pub(crate) rules: Rules,
    /// Tags for purges.
    pub(crate) tags: Box<[Box<[u8]>]>,
    /// The time that the origin took for it.
    pub(crate) took: Duration,
    pub(crate) hits: AtomicU64,
}

/// What a response is made of, for a file.
pub(crate) struct StoredParts {
    pub(crate) status: u16,
    pub(crate) fields: Fields,
    pub(crate) body: Bytes,
    pub(crate) lifetime: Duration,
    pub(crate) initial_age: Duration,
    pub(crate) since: SystemTime,
    pub(crate) selection: Selection,
    pub(crate) rules: Rules,
    pub(crate) tags: Box<[Box<[u8]>]>,
    pub(crate) took: Duration,
}

/// Times of a response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) at: Instant,
    pub(crate) since: SystemTime,
    /// The time between request and response.
    pub(crate) took: Duration,
}

impl Stored {
    pub(crate) fn new(
        status: u16,
        fields: &Fields,
        body: Bytes,
        plan: &Plan,
        request: &Request,
        arrival: Arrival,
    ) -> Stored {
        let kept = kept_fields(fields, &plan.directives, arrival.since);
        Stored {
            status,
            head: Head::new(&kept),
            codable: is_codable(status, kept, &body),
            body,
            forms: Arc::default(),
            lifetime: plan.lifetime.duration(),
            initial_age: initial_age(fields, arrival.since, arrival.took),
            arrived: arrival.at,
            since: arrival.since,
            selection: Selection::of(&plan.vary, &request.fields),
            rules: Rules::of(&plan.directives),
            tags: tags(fields),
            took: arrival.took,
            hits: AtomicU64::new(0),
        }
    }

    /// Returns the response with the fields of a 304 (RFC 9111 section 3.2). `plan`: what the new fields say.
    pub(crate) fn validated(&self, fields: &Fields, plan: &Plan, arrival: Arrival) -> Stored {
        let kept = kept_fields(fields, &plan.directives, arrival.since);
        Stored {
            status: self.status,
            head: Head::new(&kept),
            codable: is_codable(self.status, kept, &self.body),
            body: self.body.clone(),
            forms: self.forms.clone(),
            lifetime: plan.lifetime.duration(),
            initial_age: initial_age(fields, arrival.since, arrival.took),
            arrived: arrival.at,
            since: arrival.since,
            selection: self.selection.clone(),
            rules: Rules::of(&plan.directives),
            tags: self.tags.clone(),
            took: self.took,
            hits: AtomicU64::new(self.hits.load(Ordering::Relaxed)),
        }
    }

    /// Returns the fields with those of a 304 instead of the old ones of the same names.
    pub(crate) fn merged(&self, update: &Fields) -> Fields {
        // These describe the body, which a 304 does not have.
        const OF_BODY: [&str; 3] = ["content-length", "content-encoding", "content-range"];
        let is_new = |name: &[u8]| {
            !OF_BODY.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
                && update.iter().any(|(new, _)| new.eq_ignore_ascii_case(name))
        };
        let mut merged = self.head.fields();
        merged.retain(|name, _| !is_new(name));
        update.iter().filter(|(name, _)| is_new(name)).for_each(|(name, value)| merged.push(name, value));
        merged
    }

    pub(crate) fn parts(&self) -> StoredParts {
        StoredParts {
            status: self.status,
            fields: self.head.fields(),
            body: self.body.clone(),
            lifetime: self.lifetime,
            initial_age: self.initial_age,
            since: self.since,
            selection: self.selection.clone(),
            rules: self.rules,
            tags: self.tags.clone(),
            took: self.took,
        }
    }

    /// Returns a response that another process has kept. Its age is that of the clock on the wall.
    pub(crate) fn from_parts(parts: StoredParts) -> Stored {
        let resident = SystemTime::now().duration_since(parts.since).unwrap_or(Duration::ZERO);
        Stored {
            status: parts.status,
            head: Head::new(&parts.fields),
            codable: is_codable(parts.status, parts.fields, &parts.body),
            body: parts.body,
            forms: Arc::default(),
            lifetime: parts.lifetime,
            initial_age: parts.initial_age + resident,
            arrived: Instant::now(),
            since: SystemTime::now(),
            selection: parts.selection,
            rules: parts.rules,
            tags: parts.tags,
            took: parts.took,
            hits: AtomicU64::new(0),
        }
    }

    pub(crate) fn age(&self, now: Instant) -> Duration {
        self.initial_age + now.saturating_duration_since(self.arrived)
    }

    /// Returns when the origin was asked for it.
    pub(crate) fn asked(&self) -> Option<Instant> {
        self.arrived.checked_sub(self.took)
    }

    /// Returns the entity tag.
    pub(crate) fn tag(&self) -> Option<Tag<'_>> {
        Tag::parse(self.head.get("etag")?)
    }

    pub(crate) fn last_modified(&self) -> Option<SystemTime> {
        date::parse(self.head.get("last-modified")?)
    }

    /// Returns the number of bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        let tags: usize = self.tags.iter().map(|tag| tag.len() + size_of::<Box<[u8]>>()).sum();
        size_of::<Stored>()
            + size_of::<EncodedForms>()
            + self.head.bytes()
            + self.body.len()
            + self.forms.bytes()
            + self.selection.bytes()
            + tags
    }

    #[cfg(test)]
    pub(crate) fn for_tests(lifetime: Duration, rules: Rules) -> Stored {
        Stored {
            status: 200,
            head: Head::default(),
            body: Bytes::from_static(b"body"),
            codable: false,
            forms: Arc::default(),
            lifetime,
            initial_age: Duration::ZERO,
            arrived: Instant::now(),
            since: SystemTime::now(),
            selection: Selection::default(),
            rules,
            tags: Box::default(),
            took: Duration::ZERO,
            hits: AtomicU64::new(0),
        }
    }
}

/// Returns whether a response may be encoded (RFC 9110 section 8.4), whatever its length is.
fn is_codable(status: u16, fields: Fields, body: &Bytes) -> bool {
    coding::may_encode(&Response::new(status, fields, Body::Bytes(body.clone())), 0, false)
}

/// Fields that name tags, for purges. The client does not see them.
pub(crate) const TAG_FIELDS: [&str; 2] = ["surrogate-key", "cache-tag"];

/// Returns the tags: separated by blanks in Surrogate-Key, by commas in Cache-Tag.
fn tags(fields: &Fields) -> Box<[Box<[u8]>]> {
    let of =
        |name: &'static str| fields.all(name).flat_map(|value| value.split(|byte| b" ,\t".contains(byte)));
    TAG_FIELDS.iter().flat_map(|name| of(name)).filter(|tag| !tag.is_empty()).map(Box::from).collect()
}

/// Returns the fields that are kept: not those of the connection (RFC 9111 section 3.1), not those of one request, not what the directives exclude.
/// Adds Date, which the kept response must show.
fn kept_fields(fields: &Fields, directives: &ResponseDirectives, since: SystemTime) -> Fields {
    const LEFT_OUT: [&str; 19] = [
        "age",
        "cache-status",
        "connection",
        "content-length",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authentication-info",
        "proxy-authorization",
        "proxy-connection",
        "server-timing",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-request-id",
        "x-runtime",
        "x-accel-buffering",
        "surrogate-key",
        "cache-tag",
    ];
    let excluded = |name: &[u8]| {
        let named = |list: &[Box<[u8]>]| list.iter().any(|known| name.eq_ignore_ascii_case(known));
        LEFT_OUT.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
            || named(&directives.no_cache_fields)
            || named(&directives.private_fields)
            || std::str::from_utf8(name).is_ok_and(|name| fields.lists("connection", name))
    };
    let mut kept = Fields::with_capacity(fields.len() + 1, 256);
    fields.iter().filter(|(name, _)| !excluded(name)).for_each(|(name, value)| kept.push(name, value));
    if kept.get("date").is_none() {
        kept.push(b"Date", date::format(since).as_bytes());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::storable::judge;
    use crate::testing::request;

    fn stored(all: &[(&str, &str)]) -> Stored {
        let mut fields = Fields::default();
        fields.push(b"Cache-Control", b"max-age=60");
        all.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
        let request = request("GET", "/", &[]);
        let response = Response::new(200, fields, Body::Bytes("body".into()));
        let plan = judge(&request, &response, &Policy::default(), SystemTime::now()).unwrap();
        let arrival = Arrival { at: Instant::now(), since: SystemTime::now(), took: Duration::ZERO };
        Stored::new(200, &response.fields, "body".into(), &plan, &request, arrival)
    }

    #[test]
    fn fields_of_the_connection_and_of_one_request_are_not_kept() {
        let stored = stored(&[
            ("Connection", "close, X-Hop"),
            ("X-Hop", "1"),
            ("X-Request-Id", "1"),
            ("Keep-Alive", "5"),
            ("X-Kept", "1"),
            ("Surrogate-Key", "a b"),
            ("Cache-Tag", "c,d"),
        ]);
        let names: Vec<String> =
            stored.head.fields().iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect();
        assert_eq!(names, ["Cache-Control", "X-Kept", "Date"]);
        assert_eq!(stored.tags.len(), 4);
    }

    #[test]
    fn a_304_updates_all_but_the_description_of_the_body() {
        let stored = stored(&[("X-One", "old"), ("X-Two", "old"), ("Content-Type", "text/plain")]);
        let mut update = Fields::default();
        for (name, value) in
            [("x-one", "new"), ("X-ONE", "newer"), ("Content-Length", "99"), ("X-Three", "new")]
        {
            update.push(name.as_bytes(), value.as_bytes());
        }
        let merged = stored.merged(&update);
        assert_eq!(merged.all("x-one").collect::<Vec<_>>(), [&b"new"[..], b"newer"]);
        assert_eq!((merged.get("x-two"), merged.get("x-three")), (Some(&b"old"[..]), Some(&b"new"[..])));
        assert_eq!(
            (merged.get("content-type"), merged.get("content-length")),
            (Some(&b"text/plain"[..]), None)
        );
    }
}
