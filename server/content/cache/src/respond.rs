//! Builds the response to a request from a kept one: conditions, ranges, codings, Age (RFC 9111 section 4,
//! RFC 9110 sections 13 and 14).

use crate::policy::Policy;
use crate::status::CacheStatus;
use crate::stored::Stored;
use crate::summary::FieldSummary;
use handler::{Body, Fields, Request, Response};
use representation::byteranges;
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
    summary: FieldSummary,
    policy: &Policy,
    status: CacheStatus,
    now: Instant,
) -> Answered {
    stored.hits.fetch_add(1, Ordering::Relaxed);
    let mark = |mut fields: Fields| {
        fields.push(b"Age", itoa::Buffer::new().format(stored.age(now).as_secs()).as_bytes());
        if policy.status_field {
            status.write(&mut fields);
        }
        fields
    };
    if stored.status == 200 && (summary.condition || summary.range) {
        let tag = stored.tag();
        let validators = Validators {
            tag: tag.map(|tag| tag.quoted),
            weak: tag.is_some_and(|tag| tag.weak),
            modified: stored.last_modified.or(Some(stored.since)),
            genuine: stored.last_modified.is_some(),
            now: request.received,
        };
        if validators.evaluate(&request.fields) == ConditionResult::NotModified {
            return plain(not_modified(mark(stored.head.fields()), stored, request, policy));
        }
        if request.method() == b"GET"
            && let Some(range) = only_range(&request.fields)
            && validators.range_counts(&request.fields)
        {
            let (content, len) = (stored.body.clone().into(), stored.body.len() as u64);
            let whole = |fields| Response::new(200, fields, Body::Bytes(stored.body.clone()));
            return plain(byteranges::respond(range, &content, len, mark(stored.head.fields()), whole));
        }
    }
    encoded(stored, request, policy, mark)
}

fn plain(mut response: Response) -> Answered {
    response.negotiated = true;
    Answered { response, wanted: None }
}

/// Returns the whole response in the best coding that is ready.
fn encoded(stored: &Stored, request: &Request, policy: &Policy, mark: impl Fn(Fields) -> Fields) -> Answered {
    let whole = |fields: Fields| {
        let body = if stored.body.is_empty() { Body::Empty } else { Body::Bytes(stored.body.clone()) };
        Response::new(stored.status, mark(fields), body)
    };
    if !is_encoded(stored, policy) {
        let mut fields = stored.head.fields();
        if stored.body.is_empty() && stored.status != 204 {
            fields.push(b"Content-Length", b"0");
        }
        return plain(whole(fields));
    }
    let preferences = Preferences::read(request.fields.all("accept-encoding"));
    let best = preferences
        .best(|coding| !matches!(stored.forms.get(coding), Some(None)))
        .unwrap_or(Coding::Identity);
    match (best, stored.forms.get(best)) {
        (Coding::Identity, _) => plain(whole(stored.head.coded(Coding::Identity))),
        (coding, Some(Some(form))) => {
            let fields = mark(stored.head.coded(coding));
            plain(Response::new(stored.status, fields, Body::Bytes(form.clone())))
        }
        // The pipeline encodes this response while it is sent.
        (coding, _) => Answered { response: whole(stored.head.fields()), wanted: Some(coding) },
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
        !["content-type", "content-encoding", "content-range", "content-language", "last-modified"]
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
