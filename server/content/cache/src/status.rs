//! The Cache-Status field (RFC 9211): how this cache has handled a request.

use handler::Fields;
use smallvec::SmallVec;
use std::time::Duration;

/// The name of this cache in the field.
const NAME: &str = "Firebrick";

/// Why a request went to the origin (RFC 9211 section 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forwarded {
    /// The method, or a body, excludes a kept response.
    Method,
    /// No response is kept for this URL.
    UriMiss,
    /// Another variant is kept.
    VaryMiss,
    /// The kept response is stale.
    Stale,
    /// The client asked for a newer response.
    Request,
    /// The requested part is not kept.
    Partial,
}

impl Forwarded {
    fn token(self) -> &'static str {
        match self {
            Forwarded::Method => "method",
            Forwarded::UriMiss => "uri-miss",
            Forwarded::VaryMiss => "vary-miss",
            Forwarded::Stale => "stale",
            Forwarded::Request => "request",
            Forwarded::Partial => "partial",
        }
    }
}

/// How a request was handled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CacheStatus {
    /// Sent from the store, with the time for which the response is still fresh; negative if it is stale.
    pub(crate) hit: Option<i64>,
    pub(crate) forwarded: Option<Forwarded>,
    /// The status of the origin, if it differs from the response's.
    pub(crate) origin_status: Option<u16>,
    pub(crate) stored: bool,
    pub(crate) collapsed: bool,
    /// Why the response was not kept.
    pub(crate) detail: Option<&'static str>,
}

impl CacheStatus {
    pub(crate) fn hit(lifetime: Duration, age: Duration) -> CacheStatus {
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        CacheStatus { hit: Some(seconds(lifetime) - seconds(age)), ..CacheStatus::default() }
    }

    pub(crate) fn forwarded(why: Forwarded) -> CacheStatus {
        CacheStatus { forwarded: Some(why), ..CacheStatus::default() }
    }

    /// Adds the field. Downstream caches have added their entries before (section 2).
    pub(crate) fn write(&self, fields: &mut Fields) {
        let mut text: SmallVec<[u8; 96]> = SmallVec::from_slice(NAME.as_bytes());
        let mut digits = itoa::Buffer::new();
        let mut add = |name: &str, value: &[u8]| {
            text.extend_from_slice(b"; ");
            text.extend_from_slice(name.as_bytes());
            if !value.is_empty() {
                text.push(b'=');
                text.extend_from_slice(value);
            }
        };
        if let Some(ttl) = self.hit {
            add("hit", b"");
            add("ttl", digits.format(ttl).as_bytes());
        }
        if let Some(why) = self.forwarded {
            add("fwd", why.token().as_bytes());
        }
        if let Some(status) = self.origin_status {
            add("fwd-status", digits.format(status).as_bytes());
        }
        if self.stored {
            add("stored", b"");
        }
        if self.collapsed {
            add("collapsed", b"");
        }
        if let Some(detail) = self.detail {
            add("detail", detail.as_bytes());
        }
        fields.push(b"Cache-Status", &text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(status: CacheStatus) -> String {
        let mut fields = Fields::default();
        status.write(&mut fields);
        String::from_utf8(fields.get("cache-status").unwrap().to_vec()).unwrap()
    }

    #[test]
    fn fields_are_structured_items() {
        let seconds = Duration::from_secs;
        assert_eq!(written(CacheStatus::hit(seconds(60), seconds(20))), "Firebrick; hit; ttl=40");
        assert_eq!(written(CacheStatus::hit(seconds(60), seconds(70))), "Firebrick; hit; ttl=-10");
        let miss = CacheStatus { stored: true, ..CacheStatus::forwarded(Forwarded::UriMiss) };
        assert_eq!(written(miss), "Firebrick; fwd=uri-miss; stored");
        let refused = CacheStatus { detail: Some("private"), ..CacheStatus::forwarded(Forwarded::Stale) };
        assert_eq!(written(refused), "Firebrick; fwd=stale; detail=private");
    }
}
