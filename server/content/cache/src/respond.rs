//! Builds the response to a request from a kept one: conditions, ranges, codings, Age (RFC 9111 section 4, RFC 9110 sections 13 and 14).

use crate::policy::Policy;
use crate::status::CacheStatus;
use crate::stored::Stored;
use handler::{Body, Fields, Request, Response};
use representation::byteranges::{self, Ranges};
use representation::coding::{self, Coding, Preferences};
use representation::conditions::{ConditionResult, Validators};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A response from the store, and the coding that should be made for the next request.
pub(crate) struct Answered {
    pub(crate) response: Response,
    pub(crate) wanted: Option<Coding>,
}

/// Responds to GET or HEAD.
pub(crate) fn respond(
    stored: &Arc<Stored>,
    request: &Request,
    policy: &Policy,
    status: CacheStatus,
    now: Instant,
) -> Answered {
    stored.hits.fetch_add(1, Ordering::Relaxed);
    let mut fields = stored.head.fields();
    fields.push(b"Age", itoa(stored.age(now).as_secs()).as_bytes());
    if policy.status_field {
        status.write(&mut fields);
    }
    let tag = stored.tag();
    let validators = Validators {
        tag: tag.map(|tag| tag.quoted),
        weak: tag.is_some_and(|tag| tag.weak),
        modified: stored.last_modified().or(Some(stored.since)),
        genuine: stored.last_modified().is_some(),
        now: request.received,
    };
    if stored.status == 200 {
        match validators.evaluate(&request.fields) {
            ConditionResult::NotModified => return plain(not_modified(fields, stored, request, policy)),
            // The origin decides about what the client expects: it may have a newer version.
            ConditionResult::PreconditionFailed => return plain(Response::new(412, fields, Body::Empty)),
            ConditionResult::Proceed => {}
        }
        if request.method() == b"GET"
            && let Some(range) = only_range(&request.fields)
            && validators.range_counts(&request.fields)
        {
            return plain(part(stored, fields, range));
        }
    }
    encoded(stored, request, policy, fields)
}

fn plain(response: Response) -> Answered {
    Answered { response: Response { negotiated: true, ..response }, wanted: None }
}

/// Returns the whole response in the best coding that is ready.
fn encoded(stored: &Stored, request: &Request, policy: &Policy, mut fields: Fields) -> Answered {
    let whole = |fields| {
        let body = if stored.body.is_empty() { Body::Empty } else { Body::Bytes(stored.body.clone()) };
        Response::new(stored.status, fields, body)
    };
    if !is_encoded(stored, policy) {
        if stored.body.is_empty() && stored.status != 204 {
            fields.push(b"Content-Length", b"0");
        }
        return plain(whole(fields));
    }
    let preferences = Preferences::read(request.fields.all("accept-encoding"));
    let best = preferences
        .best(|coding| !matches!(stored.forms.get(coding), Some(None)))
        .unwrap_or(Coding::Identity);
    coding::vary(&mut fields);
    match (best, stored.forms.get(best)) {
        (Coding::Identity, _) => plain(whole(fields)),
        (coding, Some(Some(form))) => {
            coding::describe(&mut fields, coding.token().unwrap_or_default());
            plain(Response::new(stored.status, fields, Body::Bytes(form.clone())))
        }
        // The pipeline encodes this one while it is sent.
        (coding, _) => Answered { response: whole(fields), wanted: Some(coding) },
    }
}

/// Returns whether the response is encoded for clients that accept it.
fn is_encoded(stored: &Stored, policy: &Policy) -> bool {
    stored.codable && policy.compress_from.is_some_and(|least| stored.body.len() as u64 >= least)
}

/// Returns a 304 with the fields that the 200 would have (RFC 9110 section 15.4.5).
fn not_modified(mut fields: Fields, stored: &Stored, request: &Request, policy: &Policy) -> Response {
    if is_encoded(stored, policy) {
        coding::vary(&mut fields);
        let preferences = Preferences::read(request.fields.all("accept-encoding"));
        if preferences.best(|_| true) != Some(Coding::Identity) {
            coding::weaken(&mut fields);
        }
    }
    fields.retain(|name, _| {
        !["content-type", "content-encoding", "content-language", "last-modified"]
            .iter()
            .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
            || name.eq_ignore_ascii_case(b"last-modified") && stored.tag().is_none()
    });
    Response::new(304, fields, Body::Empty)
}

/// Returns the value of the only Range field.
fn only_range(fields: &Fields) -> Option<&[u8]> {
    let mut all = fields.all("range");
    all.next().filter(|_| all.next().is_none())
}

fn part(stored: &Stored, mut fields: Fields, range: &[u8]) -> Response {
    let len = stored.body.len() as u64;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match byteranges::parse(range, len) {
        Ranges::Whole => Response::new(200, fields, Body::Bytes(stored.body.clone())),
        Ranges::Unsatisfiable => {
            fields.retain(|name, _| !name.eq_ignore_ascii_case(b"content-type"));
            fields.push(b"Content-Range", format!("bytes */{len}").as_bytes());
            Response::new(416, fields, Body::Empty)
        }
        Ranges::One(range) => {
            let value = format!("bytes {}-{}/{len}", range.start, range.end - 1);
            fields.push(b"Content-Range", value.as_bytes());
            Response::new(
                206,
                fields,
                Body::Bytes(stored.body.slice(range.start as usize..range.end as usize)),
            )
        }
        Ranges::Several(ranges) => {
            let content_type = text(stored.head.get("content-type").unwrap_or(b"application/octet-stream"));
            let (content_type, length, stream) =
                byteranges::multipart(&ranges, stored.body.clone(), len, &content_type);
            fields.retain(|name, _| !name.eq_ignore_ascii_case(b"content-type"));
            fields.push(b"Content-Type", content_type.as_bytes());
            fields.push(b"Content-Length", length.to_string().as_bytes());
            Response::new(206, fields, Body::Stream(stream))
        }
    }
}

/// Returns the digits of a number.
fn itoa(number: u64) -> String {
    number.to_string()
}
