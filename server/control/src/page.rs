//! The dashboard: one page that requests nothing but this server's statistics.
//!
//! The page itself contains no figures, so it is served without the token; its requests need the token. The
//! content security policy names its script and style by their hashes and allows nothing else.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::Full;
use hyper::Response;
use hyper::body::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

const HTML: &str = include_str!("dashboard/page.html");
/// The common head of both pages.
const HEAD: &str = include_str!("dashboard/head.html");
const STYLE: &str = include_str!("dashboard/style.css");
const SCRIPT: &str = concat!(
    include_str!("dashboard/draw.js"),
    include_str!("dashboard/ask.js"),
    include_str!("dashboard/live.js")
);
const FLEET_HTML: &str = include_str!("dashboard/fleet.html");
const FLEET_SCRIPT: &str = concat!(
    include_str!("dashboard/draw.js"),
    include_str!("dashboard/ask.js"),
    include_str!("dashboard/fleet.js")
);

struct Page {
    html: Bytes,
    policy: HeaderValue,
}

static PAGE: LazyLock<Page> = LazyLock::new(|| Page::new(HTML, SCRIPT));
static FLEET: LazyLock<Page> = LazyLock::new(|| Page::new(FLEET_HTML, FLEET_SCRIPT));

impl Page {
    fn new(html: &str, script: &str) -> Page {
        let policy = format!(
            "default-src 'none'; style-src '{}'; script-src '{}'; connect-src 'self'; img-src data:; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'",
            hash(STYLE),
            hash(script),
        );
        let policy = HeaderValue::from_str(&policy).expect("hashes in base64 are printable");
        let html = html.replace("{{head}}", HEAD).replace("{{style}}", STYLE).replace("{{script}}", script);
        Page { html: Bytes::from(html), policy }
    }

    fn response(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.html.clone()));
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        fields.insert(CONTENT_SECURITY_POLICY, self.policy.clone());
        response
    }
}

fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

/// Returns the page of one server.
pub(crate) fn dashboard() -> Response<Full<Bytes>> {
    PAGE.response()
}

/// Returns the page of several servers.
pub(crate) fn fleet() -> Response<Full<Bytes>> {
    FLEET.response()
}

/// Adds header fields for browsers to a response: no other page may embed, read or cache it.
pub(crate) fn guard(response: &mut Response<Full<Bytes>>) {
    let fields = response.headers_mut();
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        fields.insert(name, HeaderValue::from_static(value));
    }
    if !fields.contains_key(CONTENT_SECURITY_POLICY) {
        fields.insert(
            CONTENT_SECURITY_POLICY,
            HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_complete_and_request_nothing_elsewhere() {
        for (page, script) in [(&PAGE, SCRIPT), (&FLEET, FLEET_SCRIPT)] {
            let html = std::str::from_utf8(&page.html).unwrap();
            assert!(!html.contains("{{") && html.contains(STYLE) && html.contains(script));
            // The only address in it is the SVG name space, which is never requested.
            let outside = html.replace("http://www.w3.org/2000/svg", "");
            assert!(
                !outside.contains("http://") && !outside.contains("https://") && !outside.contains("@import")
            );
            // The policy would refuse these.
            assert!(
                !html.contains(" style=\"") && !html.contains(" onclick=") && !script.contains("innerHTML")
            );
            // A closing tag would end the element early.
            assert!(!script.contains("</") && !STYLE.contains("</"));
        }
    }

    #[test]
    fn what_is_hashed_is_what_stands_between_the_tags() {
        for page in [&PAGE, &FLEET] {
            let html = std::str::from_utf8(&page.html).unwrap();
            let between =
                |open: &str, close: &str| html.split_once(open).unwrap().1.split_once(close).unwrap().0;
            let policy = page.policy.to_str().unwrap();
            assert!(policy.contains(&hash(between("<style>", "</style>"))));
            assert!(policy.contains(&hash(between("<script>", "</script>"))));
        }
    }
}
