//! `x-reproxy-url`: a handler's response that names who answers in its place.

use super::{Hops, Place};
use crate::fetch::Url;
use crate::fetch::request::{self, Parts, Patient};
use crate::script::Script;
use handler::{Exchange, Failure, FailureKind, Incoming, Request, Response};
use std::borrow::Cow;
use std::rc::Rc;

/// Sends a request where the handler's response says: another server, or another path of this one.
pub(crate) async fn delegate(
    script: &Script,
    place: Place,
    status: u16,
    url: &[u8],
    exchange: Exchange,
) -> Response {
    let Some(delegations) = place.hops.delegations.checked_sub(1) else {
        let failure = Failure::new(FailureKind::BadResponse, "a request was delegated too often: a loop?");
        script.tell(&failure, &exchange.request);
        return failure.into_response();
    };
    let hops = Hops { delegations, ..place.hops };
    let own = own_target(url, &exchange.request);
    let inside = own.is_some();
    let url = own.as_deref().unwrap_or(url);
    let keeps = matches!(status, 307 | 308);
    let asked = match inside {
        true => Ok(None),
        false if script.reproxies(place.route) => Url::parse(url).map(Some),
        false => Err(format!(
            "\"{}\" is not a path of this server; to let handlers name other servers set reproxy = true for the route or below \
             [mruby]",
            url.escape_ascii()
        )),
    };
    let made = asked.and_then(|away| {
        let old = exchange.request.authority();
        let (target, authority) = away.as_ref().map_or((url, old), |url| (&url.target, &url.authority));
        Ok((redirected(&exchange, target, authority, keeps)?, away))
    });
    let (made, away) = match made {
        Ok(made) => made,
        Err(why) => {
            let failure = Failure::new(FailureKind::BadResponse, format!("x-reproxy-url: {why}"));
            script.tell(&failure, &exchange.request);
            return failure.into_response();
        }
    };
    match away {
        None => place.next.again(made, hops).await,
        Some(url) => match script.forward(url, made).await {
            Ok(response) => response,
            Err(failure) => {
                script.tell(&failure, &exchange.request);
                failure.into_response()
            }
        },
    }
}

/// The path and query of a URL that is one of this server: a path alone, or below the host that the client has asked.
fn own_target<'a>(url: &'a [u8], request: &Request) -> Option<Cow<'a, [u8]>> {
    if url.starts_with(b"/") && !url.starts_with(b"//") {
        return Some(Cow::Borrowed(url));
    }
    let scheme: &[u8] = if request.https { b"https://" } else { b"http://" };
    let (host, target) = url.strip_prefix(scheme)?.split_at_checked(request.authority().len())?;
    if host.is_empty() || !host.eq_ignore_ascii_case(request.authority()) {
        return None;
    }
    match target.first() {
        Some(b'/') => Some(Cow::Borrowed(target)),
        None | Some(b'?' | b'#') => Some([b"/", target].concat().into()),
        Some(_) => None,
    }
}

/// The same request for another target; a GET without a body unless it keeps its method.
fn redirected(exchange: &Exchange, target: &[u8], authority: &[u8], keeps: bool) -> Result<Exchange, String> {
    let old = &exchange.request;
    let target = target.split(|byte| *byte == b'#').next().unwrap_or_default();
    let mut halves = target.splitn(2, |byte| *byte == b'?');
    let (path, query) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
    let about_body = |name: &[u8]| {
        [&b"content-length"[..], b"content-type", b"transfer-encoding", b"expect"]
            .iter()
            .any(|field| name.eq_ignore_ascii_case(field))
    };
    let parts = Parts {
        method: if keeps || old.method() == b"HEAD" { old.method() } else { b"GET" },
        path,
        query,
        authority,
        https: old.https,
        fields: old
            .fields
            .iter()
            .filter(|(name, _)| keeps || !about_body(name))
            .map(|(name, value)| (name.to_vec(), value))
            .collect(),
        variables: old.variables.clone(),
        peer: old.peer.clone(),
    };
    let body = match &exchange.incoming {
        Incoming::Ready(bytes) if keeps => Some(bytes.clone()),
        _ => None,
    };
    let client = Rc::new(Patient(Some(exchange.client.clone())));
    Ok(request::exchange(parts.request()?, body, client, exchange.trace.clone()))
}

#[cfg(test)]
mod tests {
    use super::super::env::tests::request;
    use super::*;

    #[test]
    fn a_url_of_the_host_that_was_asked_is_a_path() {
        let request = request("").unwrap();
        for (url, target) in [
            ("/a?b", Some("/a?b")),
            ("https://host:82/a?b", Some("/a?b")),
            ("https://HOST:82", Some("/")),
            ("https://host:82?b", Some("/?b")),
            ("https://host:82#c", Some("/#c")),
            ("https://host:820/a", None),
            ("https://host:82.example/a", None),
            ("https://host:82@example/a", None),
            ("https://host/a", None),
            ("http://host:82/a", None),
            ("//host:82/a", None),
            ("a", None),
        ] {
            let found = own_target(url.as_bytes(), &request);
            assert_eq!(found.as_deref(), target.map(str::as_bytes), "{url}");
        }
    }
}
