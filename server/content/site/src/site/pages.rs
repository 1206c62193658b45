//! Renders directory listings and error pages.

use super::{Site, SiteResult};
use crate::files::path::SitePath;
use crate::files::presentation::Presentation;
use crate::files::requested::{RequestedRepresentation, preferences};
use crate::files::store::Lookup;
use crate::listing;
use crate::page::status_page;
use handler::{Request, Response};
use representation::coding::{self, Coding, Encoding};

impl Site {
    pub(super) fn listing(
        &self,
        request: &Request,
        directory: &str,
        path: &str,
    ) -> std::io::Result<Response> {
        let at_top = directory == ".";
        let hidden = |name: &str| at_top && self.private.iter().any(|private| private == name);
        let (found, more) = self.responder.store.root.list(directory, listing::MAX_NAMES, hidden)?;
        let entries = found
            .into_iter()
            .map(|(name, metadata)| listing::ListingEntry {
                name,
                directory: metadata.is_dir(),
                size: metadata.len(),
                modified: metadata.modified().ok(),
            })
            .collect();
        let path = if path.ends_with('/') { path.to_owned() } else { format!("{path}/") };
        let page = listing::page_of_some(&path, entries, more);
        let mut response = Response::text(200, "text/html; charset=utf-8", page);
        if self.may_encode(&response) {
            let asked = RequestedRepresentation::of(request).coding;
            let identity = [Coding::Identity; 3];
            let codings = if asked { self.quick(&preferences(request)) } else { identity };
            coding::encode_response(&mut response, &Encoding::plain(&codings), &request.peer);
        }
        Ok(response)
    }

    /// Returns a response with the site's own error page, if it has one.
    pub(super) async fn error_page(&self, request: &Request, path: &SitePath, status: u16) -> SiteResult {
        let own = self.rules.error_page().filter(|_| matches!(status, 404 | 500));
        let default = (status == 404 && !self.rules.compat()).then_some("404.html");
        let page = match own.or(default).map(|name| self.find(request, name.trim_start_matches('/'))) {
            Some(Lookup::File(document)) => {
                let (id, options) = (self.responder.store.next_id(), &self.responder.options);
                let presentation = Presentation::new(id, &document, Vec::new(), options);
                self.responder.page(request, &document, &presentation, status).await
            }
            _ => status_page(status),
        };
        self.with_headers(path.as_str(), page)
    }

    pub(super) async fn failed(
        &self,
        request: &Request,
        path: &SitePath,
        status: u16,
        why: &str,
    ) -> SiteResult {
        (self.log_error)(&format!("{status} for {}: {why}", path.as_str().escape_debug()));
        self.error_page(request, path, status).await
    }
}
