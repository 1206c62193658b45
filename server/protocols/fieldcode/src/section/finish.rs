//! Completes a request's section: the checks that need the whole section, and the head.

use super::Section;
use crate::request::{RequestHead, SectionRefusal};
use crate::syntax::{is_target, is_token};
use handler::{Fields, Span};

/// The longest method, as in HTTP/1.
const MAX_METHOD: usize = 32;
/// The protocol that an Extended CONNECT may ask for, in any case (RFC 8441 section 5, RFC 9220 section 3).
const WEBSOCKET: &[u8] = b"websocket";

impl Section {
    /// Returns the request of a complete section. `end`: it has no body.
    ///
    /// # Errors
    /// The section is malformed or beyond a limit.
    pub fn finish_request(mut self, end: bool) -> Result<RequestHead, SectionRefusal> {
        if self.refusal.is_none()
            && let Err((status, reason)) = self.check(end)
        {
            if status == 400 { self.malformed(reason) } else { self.refuse(status, reason) }
        }
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        if self.more_cookies {
            self.join_cookies();
        }
        if self.protocol.is_some() {
            self.connect_as_get();
        }
        let (method, scheme, target) = (self.method, self.scheme, self.path);
        let target = target.unwrap_or_default();
        let bytes = target.slice(&self.text);
        let (path, query) = match memchr::memchr(b'?', bytes) {
            Some(at) => {
                let (at, after) = (at as u32, at as u32 + 1);
                (
                    Span { start: target.start, len: at },
                    Span { start: target.start + after, len: target.len - after },
                )
            }
            None => (target, Span { start: target.start + target.len, len: 0 }),
        };
        Ok(RequestHead {
            method: method.unwrap_or_default(),
            scheme: scheme.unwrap_or_default(),
            authority: self.authority.or(self.host).unwrap_or_default(),
            target,
            path,
            query,
            priority: self.priority,
            websocket: self.protocol.is_some(),
            content_length: self.content_length,
            expect: self.expect,
            fields: Fields::from_parts(self.text, self.slots),
        })
    }

    /// Runs the checks that need the whole section (RFC 9113 sections 8.1.1, 8.3.1 and 8.5).
    fn check(&self, end: bool) -> Result<(), (u16, &'static str)> {
        let Some(method) = self.method else { return Err((400, "no :method")) };
        let method = method.slice(&self.text);
        if !is_token(method) {
            return Err((400, "a :method that is not a token"));
        }
        let extended = method == b"CONNECT" && self.protocol.is_some();
        if self.protocol.is_some() && !extended {
            return Err((400, "a :protocol without CONNECT"));
        }
        if method == b"CONNECT" && !extended {
            return if self.scheme.is_none() && self.path.is_none() && self.authority.is_some() {
                Err((501, "CONNECT: this is not a proxy"))
            } else {
                Err((400, "a CONNECT has :authority, and neither :scheme nor :path"))
            };
        }
        let Some(scheme) = self.scheme else { return Err((400, "no :scheme")) };
        let Some(path) = self.path else { return Err((400, "no :path")) };
        let (scheme, path) = (scheme.slice(&self.text), path.slice(&self.text));
        if !scheme.eq_ignore_ascii_case(b"https") && !scheme.eq_ignore_ascii_case(b"http") {
            return Err((400, "a :scheme other than http and https"));
        }
        if !(path.first() == Some(&b'/') || path == b"*" && method == b"OPTIONS") {
            return Err((400, "a :path begins with /, or is * for OPTIONS"));
        }
        if !is_target(path) {
            return Err((400, "a :path has visible bytes only, and no fragment"));
        }
        if self.authority.or(self.host).is_none() {
            return Err((400, "neither :authority nor Host"));
        }
        if end && self.content_length.is_some_and(|length| length > 0) {
            return Err((400, "a Content-Length without a body"));
        }
        if let Some(protocol) = self.protocol {
            return self.check_protocol(protocol.slice(&self.text));
        }
        if method.len() > MAX_METHOD {
            return Err((501, "a method of more than 32 bytes"));
        }
        Ok(())
    }

    /// Checks what is special about an Extended CONNECT. It has a scheme and a path, as other requests have.
    fn check_protocol(&self, protocol: &[u8]) -> Result<(), (u16, &'static str)> {
        if !is_token(protocol) {
            return Err((400, "a :protocol that is not a token"));
        }
        // RFC 9110 section 9.3.6: what follows the section is the tunnel.
        if self.content_length.is_some_and(|length| length > 0) {
            return Err((400, "a CONNECT with a Content-Length"));
        }
        if !protocol.eq_ignore_ascii_case(WEBSOCKET) {
            return Err((501, "a :protocol other than websocket"));
        }
        Ok(())
    }

    /// Handlers see an Extended CONNECT as the GET that opens a WebSocket in HTTP/1.1 (RFC 6455 section 4.1).
    #[cold]
    fn connect_as_get(&mut self) {
        self.method = Some(Span { start: self.text.len() as u32, len: 3 });
        self.text.extend_from_slice(b"GET");
        self.content_length = None;
    }

    /// Joins cookies: handlers see one Cookie field (RFC 9113 section 8.2.3).
    fn join_cookies(&mut self) {
        let Some(first) = self.cookie else { return };
        let Section { text, slots, .. } = self;
        let is_cookie = |text: &[u8], name: Span| name.slice(text) == b"cookie";
        let start = text.len() as u32;
        text.extend_from_slice(b"cookie");
        for (at, &(name, value)) in slots.iter().enumerate().skip(first) {
            if is_cookie(text, name) {
                if at > first {
                    text.extend_from_slice(b"; ");
                }
                text.extend_from_within(value.start as usize..(value.start + value.len) as usize);
            }
        }
        let name = Span { start, len: 6 };
        let value = Span { start: start + 6, len: text.len() as u32 - start - 6 };
        let mut at = 0;
        slots.retain(|(name, _)| {
            at += 1;
            at - 1 <= first || !is_cookie(text, *name)
        });
        slots[first] = (name, value);
    }
}
