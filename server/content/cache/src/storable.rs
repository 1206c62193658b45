//! Decides whether a response is kept (RFC 9111 section 3).
//!
//! Contract: a response that may hold data of one client is not kept. That is: `private`; Set-Cookie, or a
//! Vary by Cookie or Authorization, unless the response says `public` and [`Policy::cookies`] allows it; a
//! request with Authorization, unless [`Policy::authorization`] allows it and the response says `public`,
//! `s-maxage` or `must-revalidate` (section 3.5).

use crate::directives::{RequestDirectives, ResponseDirectives};
use crate::freshness::{Lifetime, lifetime};
use crate::policy::Policy;
use crate::summary::FieldSummary;
use crate::targeted;
use crate::vary::Vary;
use handler::{Body, Fields, Request, Response};
use net::memory::{self, Level};
use representation::media_type::essence;
use std::time::SystemTime;

/// Why a response is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// A status that is not final for the whole resource: 206, 304, 101, or one that `must-understand` needs
    /// to be known.
    Status,
    /// `no-store` in the response or the request.
    NoStore,
    /// `private`.
    Private,
    /// Set-Cookie, or Vary by Cookie.
    Cookie,
    /// The request has Authorization, or the response varies by it.
    Authorization,
    /// The request has `X-Forwarded-Host` or the like, and its client is no trusted proxy.
    Forwarded,
    /// Vary by anything.
    Vary,
    /// Neither a lifetime nor a validator: it could never be used.
    NoLifetime,
    /// Longer than the limit.
    TooLong,
    /// A file that the app has named: the front sends it without Ruby as it is.
    File,
    /// A stream of events, or a stream without a lifetime: other requests would wait for its end.
    Stream,
    /// The body broke off, or was cut off by its client.
    Incomplete,
    /// It was invalidated or purged while it was generated.
    Invalidated,
    /// Memory is scarce.
    Memory,
}

impl Refusal {
    /// All of them, in the order of their numbers.
    pub const ALL: [Refusal; 14] = [
        Refusal::Status,
        Refusal::NoStore,
        Refusal::Private,
        Refusal::Cookie,
        Refusal::Authorization,
        Refusal::Forwarded,
        Refusal::Vary,
        Refusal::NoLifetime,
        Refusal::TooLong,
        Refusal::File,
        Refusal::Stream,
        Refusal::Incomplete,
        Refusal::Invalidated,
        Refusal::Memory,
    ];

    /// Returns the name in statistics.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Status => "status",
            Refusal::NoStore => "no-store",
            Refusal::Private => "private",
            Refusal::Cookie => "cookie",
            Refusal::Authorization => "authorization",
            Refusal::Forwarded => "forwarded",
            Refusal::Vary => "vary",
            Refusal::NoLifetime => "no-lifetime",
            Refusal::TooLong => "too-long",
            Refusal::File => "file",
            Refusal::Stream => "stream",
            Refusal::Incomplete => "incomplete",
            Refusal::Invalidated => "invalidated",
            Refusal::Memory => "memory",
        }
    }
}

/// Why a response is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) why: Refusal,
    /// The refusal comes from the request. A response to another client may be kept, and a kept response
    /// stays.
    pub(crate) by_request: bool,
}

impl From<Refusal> for Refused {
    fn from(why: Refusal) -> Refused {
        Refused { why, by_request: false }
    }
}

/// The plan for a response that is kept.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) directives: ResponseDirectives,
    pub(crate) lifetime: Lifetime,
    /// The names of Vary.
    pub(crate) vary: Vec<Box<[u8]>>,
    /// The length of the whole body that a 206 is, in bytes (RFC 9111 section 3.3).
    pub(crate) whole: Option<u64>,
}

/// Returns the reason why no response to this request may be kept, whatever the response says.
pub(crate) fn of_one_client(request: &Request, summary: FieldSummary, policy: &Policy) -> Option<Refusal> {
    if summary.forwarding && !policy.trusted.trusts(request.peer.remote.ip()) {
        return Some(Refusal::Forwarded);
    }
    if summary.authorization && !policy.authorization {
        return Some(Refusal::Authorization);
    }
    let no_store = summary.directives && RequestDirectives::of(&request.fields).no_store;
    no_store.then_some(Refusal::NoStore)
}

/// Returns the length of the whole body if a 206 has all of it: `bytes 0-9/10`.
fn whole_of_part(response: &Response) -> Option<u64> {
    let mut values = response.fields.all("content-range");
    let only = values.next().filter(|_| values.next().is_none())?;
    let text = std::str::from_utf8(only).ok()?.trim();
    let (last, length) = text.strip_prefix("bytes 0-")?.split_once('/')?;
    let (last, length): (u64, u64) = (last.parse().ok()?, length.parse().ok()?);
    (last.checked_add(1) == Some(length)).then_some(length)
}

/// Statuses that this cache understands (`must-understand`, RFC 9111 section 5.2.2.3).
fn is_understood(status: u16) -> bool {
    matches!(status, 200 | 203 | 206 | 204 | 300..=303 | 307 | 308 | 400..=426 | 428 | 429 | 431 | 451 | 500..=511)
}

/// Decides about the head of a response to `request`.
///
/// # Errors
/// The reason for not keeping it.
pub(crate) fn judge(
    request: &Request,
    response: &Response,
    policy: &Policy,
    now: SystemTime,
) -> Result<Plan, Refused> {
    let by_request = |why| Err(Refused { why, by_request: true });
    let refused = |why: Refusal| Err(why.into());
    if memory::level() >= Level::Files {
        return refused(Refusal::Memory);
    }
    let fields = &response.fields;
    let whole = whole_of_part(response).filter(|_| response.status == 206);
    // 304, 412 and 416 concern one request. A 206 concerns a part, unless it holds the whole resource.
    let of_request = matches!(response.status, 206 | 304 | 412 | 416) && whole.is_none();
    if of_request || !matches!(response.status, 200..=599) || matches!(response.body, Body::Tunnel { .. }) {
        return refused(Refusal::Status);
    }
    let summary = FieldSummary::of(&request.fields);
    if let Some(why) = of_one_client(request, summary, policy) {
        return by_request(why);
    }
    let (directives, targeted) = match targeted::read(fields) {
        Some(directives) => (directives, true),
        None => (ResponseDirectives::of(fields), false),
    };
    if directives.must_understand && !is_understood(response.status) {
        return refused(Refusal::Status);
    }
    // A cache that understands the status ignores no-store beside must-understand (section 5.2.2.3).
    let no_store = directives.no_store && !directives.must_understand;
    if no_store {
        return refused(Refusal::NoStore);
    }
    if directives.private {
        return refused(Refusal::Private);
    }
    let shared = directives.public && policy.cookies;
    let sets_cookie = ["set-cookie", "set-cookie2"].iter().any(|name| {
        fields.get(name).is_some()
            && !directives.private_fields.iter().any(|field| **field == *name.as_bytes())
    });
    let vary = Vary::of(fields);
    if (sets_cookie || vary.has("cookie")) && !shared {
        return refused(Refusal::Cookie);
    }
    let shared_by_users = directives.public || directives.must_revalidate || directives.s_maxage.is_some();
    if summary.authorization && !shared_by_users {
        return by_request(Refusal::Authorization);
    }
    if vary.has("authorization") && !(directives.public && policy.authorization) {
        return refused(Refusal::Authorization);
    }
    let Vary::By(vary) = vary else { return refused(Refusal::Vary) };
    let lifetime = lifetime(response.status, fields, &directives, targeted, policy.heuristic, now);
    // Apply the heuristic only without cookies: a cookie suggests a personal page. An app that sends an
    // entity tag wants to validate each request (`fresh_when`).
    let by_cookie = matches!(lifetime, Lifetime::Heuristic(_)) && request.fields.get("cookie").is_some();
    let lifetime = match lifetime {
        Lifetime::Heuristic(_) if by_cookie || fields.get("etag").is_some() => Lifetime::Unknown,
        other => other,
    };
    let validator = fields.get("etag").is_some() || fields.get("last-modified").is_some();
    // A validator alone does not make a page shareable.
    let revalidates = validator && (directives.no_cache || directives.public || directives.must_revalidate);
    match lifetime {
        Lifetime::Explicit(time) if !time.is_zero() || validator => {}
        Lifetime::Heuristic(time) if !time.is_zero() => {}
        _ if revalidates => {}
        _ => return Err(Refused { why: Refusal::NoLifetime, by_request: by_cookie }),
    }
    if request.method() != b"GET" && !matches!(lifetime, Lifetime::Explicit(_)) {
        return refused(Refusal::NoLifetime);
    }
    match &response.body {
        Body::File(region) if !region.file.is_made() => return refused(Refusal::File),
        Body::File(region) if region.len > policy.max_object => return refused(Refusal::TooLong),
        Body::Stream(_) if is_event_stream(fields) || is_endless(response, &directives, lifetime) => {
            return refused(Refusal::Stream);
        }
        Body::Bytes(bytes) if bytes.len() as u64 > policy.max_object => return refused(Refusal::TooLong),
        Body::Stream(_) if declared(response).is_some_and(|length| length > policy.max_object) => {
            return refused(Refusal::TooLong);
        }
        _ => {}
    }
    Ok(Plan { directives, lifetime, vary, whole })
}

/// Returns whether the body is a stream of server-sent events.
fn is_event_stream(fields: &Fields) -> bool {
    let content_type = fields.get("content-type").and_then(|value| std::str::from_utf8(value).ok());
    content_type.and_then(essence).is_some_and(|essence| essence.as_str() == "text/event-stream")
}

/// Returns whether a stream may be endless: it has neither a length nor a lifetime.
fn is_endless(response: &Response, directives: &ResponseDirectives, lifetime: Lifetime) -> bool {
    let stated = matches!(lifetime, Lifetime::Explicit(time) if !time.is_zero()) && !directives.no_cache;
    !stated && declared(response).is_none()
}

fn declared(response: &Response) -> Option<u64> {
    std::str::from_utf8(response.fields.get("content-length")?).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::One;
    use handler::testing::request;

    fn response(status: u16, all: &[(&str, &str)]) -> Response {
        let mut fields = Fields::default();
        all.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
        Response::new(status, fields, Body::Bytes("body".into()))
    }

    fn of(asked: &[(&str, &str)], all: &[(&str, &str)], policy: &Policy) -> Result<(), Refusal> {
        let plan = judge(&request("GET", "/", asked), &response(200, all), policy, SystemTime::now());
        plan.map(|_| ()).map_err(|refused| refused.why)
    }

    const FRESH: (&str, &str) = ("Cache-Control", "max-age=60");

    #[test]
    fn data_of_one_client_is_not_kept() {
        let policy = Policy::default();
        assert_eq!(of(&[], &[FRESH], &policy), Ok(()));
        for (more, why) in [
            (("Cache-Control", "private"), Refusal::Private),
            (("Cache-Control", "no-store"), Refusal::NoStore),
            (("Set-Cookie", "a=1"), Refusal::Cookie),
            (("Vary", "Accept, Cookie"), Refusal::Cookie),
            (("Vary", "Authorization"), Refusal::Authorization),
            (("Vary", "*"), Refusal::Vary),
            (("CDN-Cache-Control", "private"), Refusal::Private),
        ] {
            assert_eq!(of(&[], &[FRESH, more], &policy), Err(why), "{more:?}");
        }
        assert_eq!(
            of(&[("Authorization", "x")], &[("Cache-Control", "public, max-age=60")], &policy),
            Err(Refusal::Authorization)
        );
        assert_eq!(of(&[("Cache-Control", "no-store")], &[FRESH], &policy), Err(Refusal::NoStore));
    }

    #[test]
    fn a_setting_and_the_response_together_allow_it() {
        let policy = Policy { cookies: true, authorization: true, ..Policy::default() };
        let public = ("Cache-Control", "public, max-age=60");
        for more in [("Set-Cookie", "a=1"), ("Vary", "Cookie"), ("Vary", "Authorization")] {
            assert_eq!(of(&[], &[public, more], &policy), Ok(()), "{more:?}");
            assert!(of(&[], &[FRESH, more], &policy).is_err(), "{more:?}");
        }
        let asked = [("Authorization", "x")];
        assert!(of(&asked, &[FRESH], &policy).is_err() && of(&asked, &[public], &policy).is_ok());
        assert!(of(&asked, &[("Cache-Control", "s-maxage=60")], &policy).is_ok());
    }

    #[test]
    fn what_could_never_be_used_is_not_kept() {
        let policy = Policy::default();
        assert_eq!(of(&[], &[], &policy), Err(Refusal::NoLifetime));
        assert_eq!(of(&[], &[("ETag", "\"a\"")], &policy), Err(Refusal::NoLifetime));
        assert_eq!(of(&[], &[("Cache-Control", "max-age=0")], &policy), Err(Refusal::NoLifetime));
        assert_eq!(of(&[], &[("Cache-Control", "no-cache"), ("ETag", "\"a\"")], &policy), Ok(()));
        let modified = ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(of(&[], &[modified], &policy), Ok(()));
        assert_eq!(of(&[("Cookie", "a=1")], &[modified], &policy), Err(Refusal::NoLifetime));
        let asked = [modified, ("ETag", "\"a\""), ("Cache-Control", "public")];
        let plan =
            judge(&request("GET", "/", &[]), &response(200, &asked), &policy, SystemTime::now()).unwrap();
        assert_eq!(plan.lifetime, Lifetime::Unknown);
    }

    #[test]
    fn must_understand_overrides_no_store_for_known_statuses() {
        let policy = Policy::default();
        let all = [("Cache-Control", "must-understand, no-store, max-age=60")];
        let judged = |status| {
            judge(&request("GET", "/", &[]), &response(status, &all), &policy, SystemTime::now())
                .err()
                .map(|refused| refused.why)
        };
        assert_eq!((judged(200), judged(299)), (None, Some(Refusal::Status)));
    }

    #[test]
    fn streams_that_others_would_wait_for_are_not_kept() {
        let of = |all: &[(&str, &str)]| {
            let response = Response { body: Body::Stream(Box::new(One(None))), ..response(200, all) };
            judge(&request("GET", "/", &[]), &response, &Policy::default(), SystemTime::now())
                .err()
                .map(|refused| refused.why)
        };
        assert_eq!(of(&[FRESH, ("Content-Type", "text/event-stream; charset=utf-8")]), Some(Refusal::Stream));
        let live = [("Cache-Control", "no-cache"), ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")];
        assert_eq!(of(&live), Some(Refusal::Stream));
        assert_eq!(of(&[live[0], live[1], ("Content-Length", "10")]), None);
        assert_eq!(of(&[FRESH]), None);
    }

    #[test]
    fn lengths_are_bounded() {
        let policy = Policy { max_object: 3, ..Policy::default() };
        assert_eq!(of(&[], &[FRESH], &policy), Err(Refusal::TooLong));
    }
}
