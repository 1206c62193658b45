//! What is sent when there is no page to send: a status in words.

use handler::{Body, Fields, Response, reason_phrase};

/// A page that says the status; `HEAD` gets its length too.
pub(crate) fn status_page(status: u16) -> Response {
    let phrase = reason_phrase(status);
    let text = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{status} {phrase}</title>\n\
         <style>:root{{color-scheme:light dark}}body{{font:1.1rem system-ui,sans-serif;text-align:center;padding:4rem 1rem}}</style>\n\
         </head>\n<body>\n<h1>{status} {phrase}</h1>\n</body>\n</html>\n"
    );
    let mut fields = Fields::default();
    fields.push(b"Content-Type", b"text/html; charset=utf-8");
    Response { status, fields, body: Body::Bytes(text.into()), close: false }
}

/// A redirect with a page for those who do not follow it.
pub(crate) fn redirect(status: u16, location: &[u8]) -> Response {
    let mut response = status_page(status);
    response.fields.push(b"Location", location);
    response
}
