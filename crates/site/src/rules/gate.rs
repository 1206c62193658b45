//! What comes before everything else: `https_only`, then `canonical_host`.

use super::location::{host, request_uri, scheme};
use super::{Asked, Because, Redirect, Rule, Rules};

/// The redirect that a request must follow first, and the rule it comes from.
pub(super) fn gate(rules: &Rules, asked: &Asked<'_>) -> Option<(Redirect, Because)> {
    if rules.https_only && !is_https(rules, asked) {
        let because = Because { rule: Rule::HttpsOnly, line: Some(rules.places.https_only.line) };
        return Some((to(b"https", &host(asked.host), asked), because));
    }
    let canonical = rules.canonical_host.as_deref()?;
    if is_host(canonical, asked.host) {
        return None;
    }
    let scheme = if rules.compat { forwarded_proto(asked) } else { scheme(is_https(rules, asked)).to_vec() };
    let because = Because { rule: Rule::CanonicalHost, line: Some(rules.places.canonical_host.line) };
    Some((to(&scheme, &super::escape::visible(canonical.as_bytes()), asked), because))
}

/// Whether the client used `https`. Who sends `X-Forwarded-Proto: https` without being a trusted proxy only spares itself a redirect.
fn is_https(rules: &Rules, asked: &Asked<'_>) -> bool {
    let claimed = asked.forwarded_proto;
    if rules.compat {
        return claimed == Some(b"https");
    }
    // Several proxies in a row make a list, the client's side first.
    let first = claimed.and_then(|value| value.split(|&byte| byte == b',').next()).unwrap_or_default();
    asked.https || first.trim_ascii().eq_ignore_ascii_case(b"https")
}

/// The header as far as it can be a scheme: nginx puts it in front of `://` as it is.
fn forwarded_proto(asked: &Asked<'_>) -> Vec<u8> {
    let value = asked.forwarded_proto.unwrap_or_default();
    if value.iter().all(u8::is_ascii_alphanumeric) { value.to_vec() } else { Vec::new() }
}

/// Compared without port, as nginx's `$host`, unless the rule names one.
fn is_host(canonical: &str, asked: &[u8]) -> bool {
    let name = host(canonical.as_bytes());
    if name.len() < canonical.len() {
        asked.eq_ignore_ascii_case(canonical.as_bytes())
    } else {
        !asked.is_empty() && host(asked) == name
    }
}

fn to(scheme: &[u8], host: &[u8], asked: &Asked<'_>) -> Redirect {
    Redirect { status: 301, location: [scheme, b"://", host, &request_uri(asked)].concat() }
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
    // A fragment cannot stand in a request: a `#` there would end the query in another place than ours.
    let query: Vec<u8> = super::escape::visible(query);
    location.splice(fragment..fragment, [joint, &query].concat());
}
