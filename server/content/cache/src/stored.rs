//! A kept response.
//!
//! Contract: a [`Stored`] does not change, except for its counts and its encoded forms, which are added once.
//! Validation creates a new one that shares the body.

use crate::counts::RouteCounts;
use crate::directives::ResponseDirectives;
use crate::freshness::initial_age;
use crate::removals::Moment;
use crate::storable::Plan;
use crate::vary::Selection;
use bytes::Bytes;
use handler::{Body, Fields, Request, Response, Span};
use representation::coding::{self, Coding};
use representation::conditions::Tag;
use representation::date;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// The reuse rules of a kept response, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// It is validated before each use.
    pub(crate) no_cache: bool,
    /// It is never sent stale.
    pub(crate) must_revalidate: bool,
    /// No directive forbids sending it stale.
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

/// The header fields of a response: frozen, so that threads share them and protocols encode them once, apart from Date.
#[derive(Debug, Default)]
pub(crate) struct Head {
    plain: Fields,
    /// The fields with each coding, identity included, of a body that is sent in several; made when they are
    /// first sent.
    coded: [OnceLock<Fields>; Coding::ALL.len()],
}

impl Head {
    fn new(fields: Fields) -> Head {
        Head { plain: fields.freeze_plain(), coded: Default::default() }
    }

    /// Room for the fields that each response adds: Age, Cache-Status, and an id.
    const SPARE: usize = 160;

    /// Returns the fields, with room for a few more.
    pub(crate) fn fields(&self) -> Fields {
        self.plain.with_room(Head::SPARE)
    }

    /// Returns the fields for a body in this coding, when the response is also sent in other codings.
    pub(crate) fn coded(&self, coding: Coding) -> Fields {
        let made = || {
            let mut fields: Fields = Fields::with_capacity(self.plain.len() + 2, 256);
            self.plain.iter().for_each(|(name, value)| fields.push(name, value));
            coding::vary(&mut fields);
            if let Some(token) = coding.token() {
                coding::describe(&mut fields, token);
            }
            fields.freeze_plain()
        };
        self.coded[coding as usize].get_or_init(made).with_room(Head::SPARE)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        self.plain.get(name)
    }

    /// The bytes of the fields and of their forms in HTTP/1.1 and HTTP/2, once.
    fn bytes(&self) -> usize {
        let field =
            |(name, value): (&[u8], &[u8])| 3 * (name.len() + value.len() + 4) + size_of::<(Span, Span)>();
        self.plain.iter().map(field).sum()
    }
}

/// The encoded forms of a body, each made once.
#[derive(Debug, Default)]
pub(crate) struct EncodedForms {
    /// Indexed by the coding's number; `None` inside: the coding does not shrink the body.
    forms: [OnceLock<Option<Bytes>>; 3],
    /// Codings that are being made, a bit each.
    begun: AtomicU8,
}

impl EncodedForms {
    /// Returns the encoded form, if it exists; `None` inside if the coding does not shrink the body.
    pub(crate) fn get(&self, coding: Coding) -> Option<&Option<Bytes>> {
        self.forms.get(coding as usize)?.get()
    }

    /// Returns true to the first caller, which then creates the form.
    pub(crate) fn begin(&self, coding: Coding) -> bool {
        let bit = 1_u8 << (coding as u8);
        self.begun.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }

    pub(crate) fn set(&self, coding: Coding, form: Option<Bytes>) {
        if let Some(slot) = self.forms.get(coding as usize) {
            // Only the caller of `begin` gets here.
            let _ = slot.set(form);
        }
    }

    /// Returns the bytes of the forms, and their number.
    fn bytes(&self) -> (usize, usize) {
        let made = self.forms.iter().filter_map(|form| form.get()?.as_ref());
        made.fold((0, 0), |(bytes, count), form| (bytes + form.len(), count + 1))
    }
}

#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) status: u16,
    pub(crate) head: Head,
    /// Last-Modified, which conditions are compared with.
    pub(crate) last_modified: Option<SystemTime>,
    pub(crate) body: Bytes,
    /// Whether the body may be encoded, apart from its length.
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
    /// The time from the request to the origin until `arrived`.
    pub(crate) took: Duration,
    pub(crate) hits: AtomicU64,
    /// The counts of its route, once it has been sent.
    pub(crate) route: OnceLock<Arc<RouteCounts>>,
}

/// The parts of a response, for writing it to a file.
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
    /// The moment of the request. If the resource was removed since, the response is not kept.
    pub(crate) moment: Moment,
}

impl Arrival {
    /// Returns the times of a response that arrives now and was requested at `asked`, in `moment`.
    pub(crate) fn now(asked: Instant, moment: Moment) -> Arrival {
        let at = Instant::now();
        Arrival { at, since: SystemTime::now(), took: at.saturating_duration_since(asked), moment }
    }
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
        let mut kept = kept_fields(fields, &plan.directives, arrival.since);
        if plan.whole.is_some() {
            // The 206 is kept as the 200 that it has the whole body of.
            kept.retain(|name, _| !name.eq_ignore_ascii_case(b"content-range"));
        }
        Stored {
            status,
            codable: is_codable(status, &kept, &body),
            last_modified: last_modified(&kept),
            head: Head::new(kept),
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
            route: OnceLock::new(),
        }
    }

    /// Returns the response with the fields of a 304 (RFC 9111 section 3.2). `plan` is derived from the new
    /// fields.
    pub(crate) fn validated(&self, fields: &Fields, plan: &Plan, arrival: Arrival) -> Stored {
        let kept = kept_fields(fields, &plan.directives, arrival.since);
        Stored {
            status: self.status,
            codable: is_codable(self.status, &kept, &self.body),
            last_modified: last_modified(&kept),
            head: Head::new(kept),
            body: self.body.clone(),
            forms: self.forms.clone(),
            lifetime: plan.lifetime.duration(),
            initial_age: initial_age(fields, arrival.since, arrival.took),
            arrived: arrival.at,
            since: arrival.since,
            selection: self.selection.clone(),
            rules: Rules::of(&plan.directives),
            tags: Some(tags(fields)).filter(|tags| !tags.is_empty()).unwrap_or_else(|| self.tags.clone()),
            took: arrival.took,
            hits: AtomicU64::new(self.hits.load(Ordering::Relaxed)),
            route: self.route.clone(),
        }
    }

    /// Returns the fields, with those of a 304 replacing fields of the same name.
    pub(crate) fn merged(&self, update: &Fields) -> Fields {
        // These describe the body, which a 304 does not have.
        const OF_BODY: [&str; 3] = ["content-length", "content-encoding", "content-range"];
        let is_new = |name: &[u8]| {
            !OF_BODY.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
                && update.iter().any(|(new, _)| new.eq_ignore_ascii_case(name))
        };
        let mut merged = self.head.fields();
        // A 304 without Date was generated now, so the old Date must not count for its age (RFC 9110 section
        // 6.6.1).
        merged.retain(|name, _| !is_new(name) && !name.eq_ignore_ascii_case(b"date"));
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

    /// Returns a response that another process has kept. Its age is computed from the wall clock.
    pub(crate) fn from_parts(parts: StoredParts) -> Stored {
        let resident = SystemTime::now().duration_since(parts.since).unwrap_or(Duration::ZERO);
        let now = Instant::now();
        // A monotonic clock that started after the response arrived cannot express its arrival.
        let (arrived, before) = match now.checked_sub(resident) {
            Some(arrived) => (arrived, Duration::ZERO),
            None => (now, resident),
        };
        Stored {
            status: parts.status,
            codable: is_codable(parts.status, &parts.fields, &parts.body),
            last_modified: last_modified(&parts.fields),
            head: Head::new(parts.fields),
            body: parts.body,
            forms: Arc::default(),
            lifetime: parts.lifetime,
            initial_age: parts.initial_age + before,
            arrived,
            since: parts.since,
            selection: parts.selection,
            rules: parts.rules,
            tags: parts.tags,
            took: parts.took + before,
            hits: AtomicU64::new(0),
            route: OnceLock::new(),
        }
    }

    pub(crate) fn age(&self, now: Instant) -> Duration {
        self.initial_age + now.saturating_duration_since(self.arrived)
    }

    /// Returns the time of the request to the origin.
    pub(crate) fn asked(&self) -> Option<Instant> {
        self.arrived.checked_sub(self.took)
    }

    /// Returns the entity tag.
    pub(crate) fn tag(&self) -> Option<Tag<'_>> {
        Tag::parse(self.head.get("etag")?)
    }

    /// Returns the language of its content.
    pub(crate) fn language(&self) -> Option<&[u8]> {
        // Used only for selection by language.
        self.head.get("content-language")
    }

    /// Returns the number of bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        let tags: usize = self.tags.iter().map(|tag| tag.len() + size_of::<Box<[u8]>>()).sum();
        let (forms, count) = self.forms.bytes();
        // The fields of each coding, identity with Vary among them.
        let heads = 1 + if self.codable { 1 + count } else { 0 };
        size_of::<Stored>()
            + size_of::<EncodedForms>()
            + heads * self.head.bytes()
            + self.body.len()
            + forms
            + self.selection.bytes()
            + tags
    }

    /// Returns a fresh response.
    #[cfg(test)]
    pub(crate) fn kept_for_tests(lifetime: Duration) -> Stored {
        let rules = Rules {
            no_cache: false,
            must_revalidate: false,
            may_be_stale: true,
            stale_while_revalidate: None,
            stale_if_error: None,
        };
        Stored::for_tests(lifetime, rules)
    }

    #[cfg(test)]
    pub(crate) fn for_tests(lifetime: Duration, rules: Rules) -> Stored {
        Stored {
            status: 200,
            head: Head::default(),
            last_modified: None,
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
            route: OnceLock::new(),
        }
    }
}

/// Returns whether a response may be encoded (RFC 9110 section 8.4), apart from its length.
fn is_codable(status: u16, fields: &Fields, body: &Bytes) -> bool {
    coding::may_encode(&Response::new(status, fields.clone(), Body::Bytes(body.clone())), 0, false)
}

fn last_modified(fields: &Fields) -> Option<SystemTime> {
    date::parse(fields.get("last-modified")?)
}

/// Fields that name tags, for purges. The client does not see them.
pub(crate) const TAG_FIELDS: [&str; 2] = ["surrogate-key", "cache-tag"];

/// Returns the tags: separated by blanks in Surrogate-Key, by commas in Cache-Tag.
fn tags(fields: &Fields) -> Box<[Box<[u8]>]> {
    let of =
        |name: &'static str| fields.all(name).flat_map(|value| value.split(|byte| b" ,\t".contains(byte)));
    TAG_FIELDS.iter().flat_map(|name| of(name)).filter(|tag| !tag.is_empty()).map(Box::from).collect()
}

/// Returns the fields to keep: without those of the connection (RFC 9111 section 3.1) or of one request, and
/// without those that the directives exclude. Adds Date, which a kept response must have.
fn kept_fields(fields: &Fields, directives: &ResponseDirectives, since: SystemTime) -> Fields {
    const LEFT_OUT: [&str; 17] = [
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
    ];
    let excluded = |name: &[u8]| {
        let named = |list: &[Box<[u8]>]| list.iter().any(|known| name.eq_ignore_ascii_case(known));
        LEFT_OUT.iter().chain(&TAG_FIELDS).any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
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
    use handler::testing::request;

    fn stored(all: &[(&str, &str)]) -> Stored {
        let mut fields = Fields::default();
        fields.push(b"Cache-Control", b"max-age=60");
        all.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
        let request = request("GET", "/", &[]);
        let response = Response::new(200, fields, Body::Bytes("body".into()));
        let plan = judge(&request, &response, &Policy::default(), SystemTime::now()).unwrap();
        let arrival = Arrival::now(Instant::now(), Moment::default());
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

    /// The confirmed response is as old as the 304, and has its tags, with and without a Date in either of them.
    #[test]
    fn a_304_makes_a_response_young() {
        let then = SystemTime::now();
        let later = then + Duration::from_secs(100);
        let dates = [0, 100, 90].map(|seconds| date::format(then + Duration::from_secs(seconds)));
        let [old, new, aged] = dates.each_ref().map(|date| ("Date", &**date));
        let tag = ("Cache-Tag", "new");
        for (first, update, age, tags) in [
            (&[][..], &[][..], 0, 1),
            (&[old], &[], 0, 1),
            (&[], &[new], 0, 1),
            (&[old], &[new, tag, ("Surrogate-Key", "newer")], 0, 2),
            (&[old, ("Age", "5")], &[], 0, 1),
            (&[], &[aged], 10, 1),
            (&[], &[("Age", "7")], 7, 1),
        ] {
            let stored = stored(&[first, &[("Cache-Tag", "old")]].concat());
            let mut fields = Fields::default();
            update.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
            let arrival = Arrival { since: later, ..Arrival::now(Instant::now(), Moment::default()) };
            let response = Response::new(200, stored.merged(&fields), Body::Empty);
            let plan = judge(&request("GET", "/", &[]), &response, &Policy::default(), later).unwrap();
            let confirmed = stored.validated(&response.fields, &plan, arrival);
            assert_eq!(confirmed.age(arrival.at).as_secs(), age, "{first:?} {update:?}");
            assert_eq!(confirmed.tags.len(), tags, "{update:?}");
            assert!(confirmed.tags[0].starts_with(if tags == 2 { b"newer" } else { b"old" }));
            assert!(confirmed.head.get("date").is_some() && confirmed.head.get("cache-tag").is_none());
        }
    }
}
