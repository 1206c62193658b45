//! Pages that are not simply a file: directory listings and error pages.

use super::{Outcome, Site};
use crate::files::document::Document;
use crate::files::path::SitePath;
use crate::files::respond::body;
use crate::files::store::Lookup;
use crate::listing;
use crate::page::status_page;
use handler::{Fields, Request, Response};

/// Most names in a listing.
const MAX_LISTED: usize = 10_000;

impl Site {
    pub(super) fn listing(&self, directory: &str, path: &str) -> std::io::Result<Response> {
        let found = self.responder.store.root.list(directory, MAX_LISTED)?;
        let at_top = directory == ".";
        let entries = found
            .into_iter()
            .filter(|(name, _)| !(at_top && self.private.contains(name)))
            .map(|(name, metadata)| listing::Entry {
                name,
                directory: metadata.is_dir(),
                size: metadata.len(),
                modified: metadata.modified().ok(),
            })
            .collect();
        let path = if path.ends_with('/') { path.to_owned() } else { format!("{path}/") };
        Ok(Response::text(200, "text/html; charset=utf-8", listing::page(&path, entries)))
    }

    /// A response with the site's own error page, if it has one.
    pub(super) fn error_page(&self, request: &Request, path: &SitePath, status: u16) -> Outcome {
        let own = self.rules.error_page().filter(|_| matches!(status, 404 | 500));
        let default = (status == 404 && !self.rules.compat()).then_some("404.html");
        let name = own.or(default).map(|name| name.trim_start_matches('/'));
        let page = name.and_then(|name| match self.find(request, name) {
            Lookup::File(document) => Some(self.page(status, &document)),
            _ => None,
        });
        self.with_headers(path.as_str(), page.unwrap_or_else(|| status_page(status)))
    }

    fn page(&self, status: u16, document: &Document) -> Response {
        let body = body(document, 0, document.len());
        let options = &self.responder.options;
        let content_type =
            crate::media_type::content_type(&document.path, options.charset.as_deref(), options.compat);
        let mut fields = Fields::default();
        fields.push(b"Content-Type", content_type.as_bytes());
        Response::new(status, fields, body)
    }

    pub(super) fn failed(&self, request: &Request, path: &SitePath, status: u16, why: &str) -> Outcome {
        (self.log_error)(&format!("{status} for {}: {why}", path.as_str().escape_debug()));
        self.error_page(request, path, status)
    }
}
