//! Builds the response to a request for a file: conditions, ranges and codings (RFC 9110 sections 8.4,
//! 12.5.3, 13 and 14).
//!
//! In this order: Accept-Encoding selects the representation, the conditions decide whether it is sent, the
//! range selects the part. A request with a range gets the uncompressed file or a precompressed one, never
//! one compressed on the fly.

use super::compression_cache::CompressionCache;
use super::document::Document;
use super::presentation::{FileOptions, Presentation, VersionFields};
use super::requested::{RequestedRepresentation, preferences};
use super::store::{FileStore, Lookup, MAX_IN_MEMORY};
use handler::{Body, Fields, FileRegion, Request, Response};
use representation::byteranges;
use representation::coding::Coding;
use representation::conditions::{ConditionResult, Validators};
use std::rc::Rc;

/// The file has changed since the lookup: look it up again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Changed;

#[derive(Debug)]
pub(crate) struct Responder {
    pub store: FileStore,
    pub compressed: CompressionCache,
    pub options: FileOptions,
}

impl Responder {
    /// Gives back what is kept only to save work.
    pub(crate) fn give_back(&self) {
        self.store.give_back();
        self.compressed.give_back();
    }

    /// Returns a 200 with the whole uncompressed file, for requests without conditions, ranges or codings.
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
        if (1..=MAX_IN_MEMORY).contains(&document.len()) && request.method() != b"HEAD" {
            let kept = self.store.hot(presentation.id, document, request.arrived).map_err(|_| Changed)?;
            if let Some(kept) = kept {
                return Ok(Response::new(200, fields, Body::Kept(kept)));
            }
        }
        Ok(whole(document, fields))
    }

    /// Returns the response to a GET or HEAD. The response to a HEAD has a body too, so that its length is known.
    ///
    /// # Errors
    /// [`Changed`].
    pub(crate) async fn respond(
        &self,
        request: &Request,
        document: &Rc<Document>,
        presentation: &Presentation,
    ) -> Result<Response, Changed> {
        let requested = RequestedRepresentation::of(request);
        if requested.is_plain(presentation.codable) {
            return self.plain(request, document, presentation);
        }
        let (coding, side_car) = self.choose(request, document, presentation, &requested);
        let document = side_car.as_ref().unwrap_or(document);
        let on_the_fly = coding != Coding::Identity && side_car.is_none();
        let version_fields = VersionFields::of(document, on_the_fly);
        let validators = Validators {
            tag: Some(version_fields.tag.as_bytes()),
            weak: version_fields.weak,
            modified: document.modified,
            genuine: document.version.is_genuine(),
            now: request.received,
        };
        if requested.conditional {
            match validators.evaluate(&request.fields) {
                ConditionResult::PreconditionFailed => return Ok(bare(412, presentation.bare())),
                ConditionResult::NotModified => {
                    return Ok(bare(304, presentation.not_modified(&version_fields)));
                }
                ConditionResult::Proceed => {}
            }
        }
        if on_the_fly {
            if let Some(bytes) = self.compressed.get(document, coding).await {
                let fields = presentation.fields(&version_fields, coding, false);
                return Ok(Response::new(200, fields, bytes.body()));
            }
            return self.plain(request, document, presentation);
        }
        let fields = presentation.fields(&version_fields, coding, true);
        Ok(match requested.range.filter(|_| validators.range_counts(&request.fields)) {
            Some(range) => part(document, fields, range),
            None => whole(document, fields),
        })
    }

    /// Returns a page for another status than 200, such as an error page. Only the request's codings count,
    /// not its conditions or ranges.
    pub(crate) async fn page(
        &self,
        request: &Request,
        document: &Rc<Document>,
        presentation: &Presentation,
        status: u16,
    ) -> Response {
        let requested = RequestedRepresentation {
            range: None,
            conditional: false,
            ..RequestedRepresentation::of(request)
        };
        let (coding, side_car) = self.choose(request, document, presentation, &requested);
        let (coding, body) = match side_car {
            Some(side_car) => (coding, body(&side_car, 0, side_car.len())),
            None if coding == Coding::Identity => (coding, body(document, 0, document.len())),
            None => match self.compressed.get(document, coding).await {
                Some(encoded) => (coding, encoded.body()),
                None => (Coding::Identity, body(document, 0, document.len())),
            },
        };
        Response::new(status, presentation.page(coding), body)
    }

    /// Returns the coding, and the precompressed file if there is one; without it, the document is compressed
    /// on the fly.
    fn choose(
        &self,
        request: &Request,
        document: &Document,
        presentation: &Presentation,
        requested: &RequestedRepresentation<'_>,
    ) -> (Coding, Option<Rc<Document>>) {
        if !requested.coding || !presentation.codable {
            return (Coding::Identity, None);
        }
        for coding in preferences(request).ranked() {
            if coding == Coding::Identity {
                break;
            }
            if self.options.precompressed.contains(&coding)
                && let Lookup::File(side_car) = self.store.find(
                    &format!("{}{}", document.path, coding.suffix()),
                    request.arrived,
                    request.received,
                )
            {
                return (coding, Some(side_car));
            }
            let may = !self.options.compat || coding == Coding::Gzip;
            if self.options.compress
                && may
                && requested.range.is_none()
                && self.compressed.accepts(document.len())
            {
                return (coding, None);
            }
        }
        (Coding::Identity, None)
    }
}

fn whole(document: &Document, mut fields: Fields) -> Response {
    let body = body(document, 0, document.len());
    if matches!(body, Body::Empty) {
        // An empty body alone would not give a Content-Length in the response to a HEAD.
        fields.push(b"Content-Length", b"0");
    }
    Response::new(200, fields, body)
}

fn part(document: &Document, fields: Fields, range: &[u8]) -> Response {
    let content = document.file.clone().into();
    byteranges::respond(range, &content, document.len(), fields, |fields| whole(document, fields))
}

/// Returns a part of a document as a body.
pub(crate) fn body(document: &Document, offset: u64, len: u64) -> Body {
    if len == 0 {
        return Body::Empty;
    }
    Body::File(FileRegion { file: document.file.clone(), offset, len })
}

fn bare(status: u16, fields: Fields) -> Response {
    Response::new(status, fields, Body::Empty)
}
