//! Applies the rules that come before all others: `https_only` and `canonical_host`.
//!
//! Contract: one redirect leads to the final address, and a client that follows it is not redirected again.
//! With `compat` there are two redirects, as in the buildpack.

use super::location::{host, request_uri, scheme};
use super::{Redirect, RequestView, RuleKind, RuleRef, Rules};

/// Returns the redirect that the client must follow first, and its rule.
pub(super) fn gate(rules: &Rules, request: &RequestView<'_>) -> Option<(Redirect, RuleRef)> {
    if rules.https_only && !is_https(rules, request) {
        let from = RuleRef { kind: RuleKind::HttpsOnly, line: Some(rules.spans.https_only.line) };
        let canonical = rules.canonical_host.as_deref().filter(|_| !rules.compat);
        let host = match canonical {
            Some(canonical) if !is_host(canonical, request.host, true) => visible(canonical),
            _ => host(request.host),
        };
        return Some((to(b"https", &host, request), from));
    }
    let canonical = rules.canonical_host.as_deref()?;
    if is_host(canonical, request.host, is_https(rules, request)) {
        return None;
    }
    let scheme =
        if rules.compat { forwarded_proto(request) } else { scheme(is_https(rules, request)).to_vec() };
    let from = RuleRef { kind: RuleKind::CanonicalHost, line: Some(rules.spans.canonical_host.line) };
    Some((to(&scheme, &visible(canonical), request), from))
}

/// Returns whether the client used `https`. A client that forges `X-Forwarded-Proto: https` only avoids a
/// redirect for itself.
fn is_https(rules: &Rules, request: &RequestView<'_>) -> bool {
    let claimed = request.forwarded_proto;
    if rules.compat {
        return claimed == Some(b"https");
    }
    // A chain of proxies makes a list, the client's side first.
    let first = claimed.and_then(|value| value.split(|&byte| byte == b',').next()).unwrap_or_default();
    request.https || first.trim_ascii().eq_ignore_ascii_case(b"https")
}

/// Returns the header field if it can be a scheme. nginx puts it before `://` unchanged.
fn forwarded_proto(request: &RequestView<'_>) -> Vec<u8> {
    let value = request.forwarded_proto.unwrap_or_default();
    if value.iter().all(u8::is_ascii_alphanumeric) { value.to_vec() } else { Vec::new() }
}

/// Compares hosts without the port, as nginx's `$host` does, unless the rule has a port. Clients leave out
/// the scheme's default port.
fn is_host(canonical: &str, request: &[u8], https: bool) -> bool {
    if request.is_empty() {
        return false;
    }
    let name = host(canonical.as_bytes());
    let Some(port) = canonical.as_bytes().get(name.len()..).filter(|port| !port.is_empty()) else {
        return host(request) == name;
    };
    let usual: &[u8] = if https { b":443" } else { b":80" };
    let own = host(request);
    let given = request.get(own.len()..).filter(|port| !port.is_empty()).unwrap_or(usual);
    own == name && given == port
}

fn visible(canonical: &str) -> Vec<u8> {
    super::escape::visible(canonical.as_bytes())
}

fn to(scheme: &[u8], host: &[u8], request: &RequestView<'_>) -> Redirect {
    Redirect { status: 301, location: [scheme, b"://", host, &request_uri(request)].concat() }
}

/// Adds the request's query to a URL: before its fragment, after its own query.
pub(super) fn add_query(location: &mut Vec<u8>, query: &[u8]) {
    if query.is_empty() {
        return;
    }
    let fragment = location.iter().position(|&byte| byte == b'#').unwrap_or(location.len());
    let own = location[..fragment].iter().position(|&byte| byte == b'?');
    let joint: &[u8] = match own {
        None => b"?",
        Some(at) if at + 1 == fragment => b"",
        Some(_) => b"&",
    };
    // A request has no fragment: a `#` in the query would end it early.
    let query: Vec<u8> = super::escape::visible(query);
    location.splice(fragment..fragment, [joint, &query].concat());
}
