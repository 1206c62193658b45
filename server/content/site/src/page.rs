//! Renders minimal HTML pages for a status.

use handler::{Body, Fields, Response, reason_phrase};

/// Returns a page that shows the status. A response to HEAD gets the same Content-Length.
pub(crate) fn status_page(status: u16) -> Response {
    let phrase = reason_phrase(status);
    let text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{status} {phrase}</title>\n\
         <style>:root{{color-scheme:light dark}}body{{font:1.1rem system-ui,sans-serif;text-align:center;padding:4rem 1rem}}</style>\n\
         </head>\n<body>\n<h1>{status} {phrase}</h1>\n</body>\n</html>\n"
    );
    let mut fields = Fields::default();
    fields.push(b"Content-Type", b"text/html; charset=utf-8");
    Response::new(status, fields, Body::Bytes(text.into()))
}

/// Returns a redirect with a page for clients that do not follow it.
pub(crate) fn redirect(status: u16, location: &[u8]) -> Response {
    let mut response = status_page(status);
    response.fields.push(b"Location", location);
    response
}
