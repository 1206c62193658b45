//! A file and a request to a response: conditions, ranges and codings (RFC 9110 sections 8.4, 12.5.3, 13 and 14).
//!
//! The order: which representation, by Accept-Encoding; whether it is sent at all, by the conditions; how much of it, by
//! the range. A request with a range gets the file as it is or a side-car, never what is compressed on the fly.

use super::coder::Coder;
use super::conditions::{Validators, Verdict};
use super::document::Document;
use super::presentation::{Labels, Presentation, Style};
use super::store::{Found, READ_BELOW, Store};
use super::wishes::{Wishes, preferences};
use crate::byteranges::{self, Ranges};
use crate::coding::Coding;
use handler::{Body, Fields, FileRegion, Request, Response};
use std::rc::Rc;

/// The file has changed since it was looked up: look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changed;

/// What answers a request for a file with its bytes.
#[derive(Debug)]
pub(crate) struct Responder {
    pub store: Store,
    pub coder: Coder,
    pub style: Style,
}

impl Responder {
    /// 200 with all of the file as it is; for requests that wish for nothing else.
    ///
    /// # Errors
    /// [`Changed`].
    #[inline]
    pub(crate) fn plain(
        &self,
        request: &Request,
        document: &Rc<Document>,
        presentation: &Presentation,
    ) -> Result<Response, Changed> {
        let fields = presentation.whole.clone();
        if (1..=READ_BELOW).contains(&document.len()) && request.method() != b"HEAD" {
            let kept = self.store.hot(presentation.id, document, request.arrived).map_err(|_| Changed)?;
            if let Some(kept) = kept {
                return Ok(Response { status: 200, fields, body: Body::Kept(kept), close: false });
            }
        }
        Ok(whole(document, fields))
    }

    /// The answer to a GET or HEAD. That to a HEAD has its body, too, so that its length is known.
    ///
    /// # Errors
    /// [`Changed`].
    pub(crate) async fn respond(
        &self,
        request: &Request,
        document: &Rc<Document>,
        presentation: &Presentation,
    ) -> Result<Response, Changed> {
        let wishes = Wishes::of(request);
        if wishes.are_plain(presentation.codable) {
            return self.plain(request, document, presentation);
        }
        let (coding, side_car) = self.choose(request, document, presentation, &wishes);
        let document = side_car.as_ref().unwrap_or(document);
        let on_the_fly = coding != Coding::Identity && side_car.is_none();
        let labels = Labels::of(document, on_the_fly);
        let validators = Validators {
            tag: &labels.tag,
            weak: labels.weak,
            modified: document.modified,
            now: request.received,
        };
        if wishes.conditional {
            match validators.judge(&request.fields) {
                Verdict::PreconditionFailed => return Ok(bare(412, presentation.bare())),
                Verdict::NotModified => {
                    return Ok(bare(304, presentation.not_modified(&labels)));
                }
                Verdict::Proceed => {}
            }
        }
        if on_the_fly {
            if let Some(bytes) = self.coder.code(document, coding).await {
                let fields = presentation.fields(&labels, coding, false);
                return Ok(Response { status: 200, fields, body: Body::Bytes(bytes), close: false });
            }
            return self.plain(request, document, presentation);
        }
        let fields = presentation.fields(&labels, coding, true);
        Ok(match wishes.range.filter(|_| validators.range_counts(&request.fields)) {
            Some(range) => part(document, presentation, fields, range),
            None => whole(document, fields),
        })
    }

    /// Which coding, and the side-car that holds it; without one it is to be made.
    fn choose(
        &self,
        request: &Request,
        document: &Document,
        presentation: &Presentation,
        wishes: &Wishes<'_>,
    ) -> (Coding, Option<Rc<Document>>) {
        if !wishes.coding || !presentation.codable {
            return (Coding::Identity, None);
        }
        for coding in preferences(request).ranked() {
            if coding == Coding::Identity {
                break;
            }
            if self.style.precompressed
                && let Found::File(side_car) = self.store.find(
                    &format!("{}{}", document.path, coding.suffix()),
                    request.arrived,
                    request.received,
                )
            {
                return (coding, Some(side_car));
            }
            let may = !self.style.compat || coding == Coding::Gzip;
            if self.style.compress && may && wishes.range.is_none() && self.coder.takes(document.len()) {
                return (coding, None);
            }
        }
        (Coding::Identity, None)
    }
}

fn whole(document: &Document, mut fields: Fields) -> Response {
    let body = body(document, 0, document.len());
    if matches!(body, Body::Empty) {
        // No body would say nothing about the length in the answer to a HEAD.
        fields.push(b"Content-Length", b"0");
    }
    Response { status: 200, fields, body, close: false }
}

fn part(document: &Document, presentation: &Presentation, mut fields: Fields, range: &[u8]) -> Response {
    let len = document.len();
    match byteranges::parse(range, len) {
        Ranges::Whole => whole(document, fields),
        Ranges::Unsatisfiable => {
            fields.retain(|name, _| {
                !name.eq_ignore_ascii_case(b"content-type") && !name.eq_ignore_ascii_case(b"content-encoding")
            });
            fields.push(b"Content-Range", format!("bytes */{len}").as_bytes());
            bare(416, fields)
        }
        Ranges::One(range) => {
            let place = format!("bytes {}-{}/{len}", range.start, range.end - 1);
            fields.push(b"Content-Range", place.as_bytes());
            let body = body(document, range.start, range.end - range.start);
            Response { status: 206, fields, body, close: false }
        }
        Ranges::Several(ranges) => {
            let (content_type, length, stream) =
                byteranges::multipart(&ranges, document.file.clone(), len, &presentation.content_type);
            fields.retain(|name, _| !name.eq_ignore_ascii_case(b"content-type"));
            fields.push(b"Content-Type", content_type.as_bytes());
            fields.push(b"Content-Length", length.to_string().as_bytes());
            Response { status: 206, fields, body: Body::Stream(stream), close: false }
        }
    }
}

/// A part of a document.
pub(crate) fn body(document: &Document, offset: u64, len: u64) -> Body {
    if len == 0 {
        return Body::Empty;
    }
    Body::File(FileRegion { file: document.file.clone(), offset, len })
}

fn bare(status: u16, fields: Fields) -> Response {
    Response { status, fields, body: Body::Empty, close: false }
}
