//! What a site does when somebody else makes the response: an origin or the app.

use super::{Answer, COMPRESS_FROM, Forwarding, Site, asked};
use crate::coding::{self, Coding, Preferences};
use crate::files::presentation::apply;
use crate::files::wishes::{Wishes, preferences};
use handler::{Request, Response};
use std::rc::Rc;

/// What is still to be done to a response that somebody else makes.
#[derive(Default)]
pub struct After {
    fields: Rc<[(String, String)]>,
    proxy: Option<usize>,
    codings: Option<Preferences>,
}

impl After {
    /// What is to be done to the app's responses.
    pub(super) fn app(fields: &Rc<[(String, String)]>) -> After {
        After { fields: fields.clone(), ..After::default() }
    }
}

impl Site {
    /// A request handed to a proxy.
    pub(super) fn forward(
        &self,
        request: &Request,
        path: &str,
        id: usize,
        fields: &Rc<[(String, String)]>,
    ) -> Answer {
        let coded = self.rules.compress() && Wishes::of(request).coding;
        let codings = coded.then(|| preferences(request));
        let after = After { fields: fields.clone(), proxy: Some(id), codings };
        let target = self.rules.upstream_target(id, &asked(request, path));
        Answer::Proxy(Forwarding { id, target, after })
    }

    /// Does to a response of an origin or the app what the rules say.
    pub fn finish(&self, after: &After, response: &mut Response) {
        if let Some(id) = after.proxy {
            self.map_location(id, response);
            if self.may_code(response) {
                let coding = after.codings.map_or(Coding::Identity, |codings| self.quick(&codings));
                coding::code_response(response, coding);
            }
        }
        apply(&mut response.fields, after.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    }

    /// A Location of an origin becomes one of ours.
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

    /// Whether what an origin answers may be compressed on its way.
    fn may_code(&self, response: &Response) -> bool {
        let style = &self.responder.style;
        let min = if style.compat { COMPRESS_FROM } else { coding::MIN_LENGTH };
        let fits =
            |content_type: &[u8]| std::str::from_utf8(content_type).is_ok_and(|text| style.compresses(text));
        style.compress
            && response.fields.get("content-type").is_some_and(fits)
            && coding::may_code(response, min)
    }

    /// The coding for what is made anew for each request: brotli, which is slow, only when nothing else is taken.
    fn quick(&self, codings: &Preferences) -> Coding {
        let compat = self.responder.style.compat;
        let quick =
            |coding| matches!(coding, Coding::Gzip | Coding::Identity) || (coding == Coding::Zstd && !compat);
        match codings.best(quick) {
            Some(Coding::Identity) | None
                if !compat && codings.accepts(Coding::Br) && !codings.accepts(Coding::Gzip) =>
            {
                Coding::Br
            }
            best => best.unwrap_or(Coding::Identity),
        }
    }
}
