//! Applies a site's rules to responses of an origin or the app.

use super::{COMPRESS_FROM, Forwarding, Site, SiteResult, view};
use crate::files::presentation::apply;
use crate::files::requested::{RequestedRepresentation, preferences};
use handler::{Peer, Request, Response};
use representation::coding::{self, Coding, Encoding, Preferences};
use std::rc::Rc;

/// The changes that the rules make to a response of an origin or the app.
#[derive(Default)]
pub struct ResponseEdits {
    fields: Rc<[(String, String)]>,
    proxy: Option<usize>,
    codings: Option<Preferences>,
    /// The client's connection, if the response may be encoded.
    connection: Option<Rc<Peer>>,
}

impl ResponseEdits {
    /// Returns whether the response comes from an origin.
    pub fn is_proxied(&self) -> bool {
        self.proxy.is_some()
    }

    /// Returns the changes to a response of the app.
    pub(super) fn app(fields: &Rc<[(String, String)]>) -> ResponseEdits {
        ResponseEdits { fields: fields.clone(), ..ResponseEdits::default() }
    }
}

impl Site {
    /// Prepares a request for a proxy.
    pub(super) fn forward(
        &self,
        request: &Request,
        path: &str,
        id: usize,
        fields: &Rc<[(String, String)]>,
    ) -> SiteResult {
        let encoded = self.rules.compress() && RequestedRepresentation::of(request).coding;
        let codings = encoded.then(|| preferences(request));
        let connection = self.rules.compress().then(|| request.peer.clone());
        let edits = ResponseEdits { fields: fields.clone(), proxy: Some(id), codings, connection };
        let target = self.rules.upstream_target(id, &view(request, path));
        SiteResult::Proxy(Forwarding { id, target, edits })
    }

    /// Applies the rules to a response of an origin or the app.
    pub fn finish(&self, edits: &ResponseEdits, response: &mut Response) {
        if let Some(id) = edits.proxy {
            self.map_location(id, response);
            if self.may_encode(response) {
                let codings = edits.codings.map_or([Coding::Identity; 3], |codings| self.quick(&codings));
                if let Some(connection) = &edits.connection {
                    coding::encode_response(response, &Encoding::plain(&codings), connection);
                }
            }
        }
        apply(&mut response.fields, edits.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    }

    /// Maps a Location of an origin to a path of this site.
    fn map_location(&self, id: usize, response: &mut Response) {
        if !matches!(response.status, 201 | 300..=399) {
            return;
        }
        let back =
            response.fields.get("location").and_then(|location| self.rules.location_back(id, location));
        if let Some(back) = back {
            response.fields.retain(|name, _| !name.eq_ignore_ascii_case(b"location"));
            response.fields.push(b"Location", &back);
        }
    }

    /// Returns whether an origin's response may be compressed.
    pub(super) fn may_encode(&self, response: &Response) -> bool {
        let options = &self.responder.options;
        let min = if options.compat { COMPRESS_FROM } else { coding::MIN_LENGTH };
        let fits = |content_type: &[u8]| {
            std::str::from_utf8(content_type).is_ok_and(|text| options.compresses(text))
        };
        options.compress
            && response.fields.get("content-type").is_some_and(fits)
            && coding::may_encode(response, min, false)
    }

    /// Returns the codings for responses that are encoded for each request, the best one first.
    pub(super) fn quick(&self, codings: &Preferences) -> [Coding; 3] {
        coding::live(codings, !self.responder.options.compat)
    }
}
