//! `x-reproxy-url`: a field of a handler's response that sends the request to another target.

use crate::chain::{Chain, Hops, Position};
use crate::failure::bad_delegation;
use crate::fetch::request::{self, NoDeparture, RequestParts};
use crate::fetch::{FetchState, Url};
use handler::{Exchange, Incoming, Request, Response};
use std::borrow::Cow;
use std::rc::Rc;

/// Sends a request to the URL of the handler's response: another server, or another path of this one.
pub(crate) async fn delegate(
    chain: &dyn Chain,
    fetch: &FetchState,
    position: Position,
    status: u16,
    url: &[u8],
    exchange: Exchange,
) -> Response {
    let Some(delegations) = position.hops.delegations.checked_sub(1) else {
        let failure = bad_delegation("a request was delegated too often: a loop?");
        return chain.fail(failure);
    };
    let hops = Hops { delegations, ..position.hops };
    let own = own_target(url, &exchange.request);
    let is_own = own.is_some();
    let url = own.as_deref().unwrap_or(url);
    let keep_method = matches!(status, 307 | 308);
    let parsed = match is_own {
        true => Ok(None),
        false if chain.may_reproxy(position.route) => Url::parse(url).map(Some),
        false => Err(format!(
            "\"{}\" is not a path of this server; to allow handlers to name other servers, set reproxy = true for the route or below \
             [mruby]",
            url.escape_ascii()
        )),
    };
    let made = parsed.and_then(|other| {
        let old = exchange.request.authority();
        let (target, authority) = other.as_ref().map_or((url, old), |url| (&url.target, &url.authority));
        Ok((redirected(&exchange, target, authority, keep_method)?, other))
    });
    let (made, other) = match made {
        Ok(made) => made,
        Err(why) => {
            let failure = bad_delegation(format!("x-reproxy-url: {why}"));
            return chain.fail(failure);
        }
    };
    match other {
        None => position.next.reprocess(made, hops).await,
        Some(url) => match fetch.forward(url, made).await {
            Ok(response) => response,
            Err(failure) => chain.fail(failure),
        },
    }
}

/// Returns path and query of a URL of this server: a path alone, or a URL of the host that the client addressed.
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

/// Returns the same request for another target: a GET without a body unless the method is kept.
fn redirected(
    exchange: &Exchange,
    target: &[u8],
    authority: &[u8],
    keep_method: bool,
) -> Result<Exchange, String> {
    let old = &exchange.request;
    let target = target.split(|byte| *byte == b'#').next().unwrap_or_default();
    let mut halves = target.splitn(2, |byte| *byte == b'?');
    let (path, query) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
    let about_body = |name: &[u8]| {
        [&b"content-length"[..], b"content-type", b"transfer-encoding", b"expect"]
            .iter()
            .any(|field| name.eq_ignore_ascii_case(field))
    };
    let parts = RequestParts {
        method: if keep_method || old.method() == b"HEAD" { old.method() } else { b"GET" },
        path,
        query,
        authority,
        https: old.https,
        fields: old
            .fields
            .iter()
            .filter(|(name, _)| keep_method || !about_body(name))
            .map(|(name, value)| (name.to_vec(), value))
            .collect(),
        variables: old.variables.clone(),
        peer: old.peer.clone(),
    };
    let body = match &exchange.incoming {
        Incoming::Ready(bytes) if keep_method => Some(bytes.clone()),
        _ => None,
    };
    let client = Rc::new(NoDeparture(Some(exchange.client.clone())));
    Ok(request::exchange(parts.request()?, body, client, exchange.trace.clone()))
}

#[cfg(test)]
mod tests {
    use super::super::env::tests::request;
    use super::*;

    #[test]
    fn a_url_of_the_addressed_host_is_a_path() {
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
