//! Describes why a request failed: the status for the client, the party at fault, whether a retry may help,
//! and the reason for the log.
//!
//! Contract:
//! 1. A failure is created where it occurs, with all information that is available there. Nothing is derived
//!    from the status.
//! 2. It becomes a response in one place: [`Failure::into_response`].
//! 3. It is passed in [`Response::failure`], or as the error of a body stream, to `Ending::failure`. Only the
//!    pipeline counts and logs it.

use crate::{After, Body, Fields, Response};
use std::borrow::Cow;
use std::time::Duration;

/// The party that caused a failure. Decides where it is counted and whether it is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The request is invalid.
    Client,
    /// The app, its worker or an origin failed.
    App,
    /// The server failed or has reached a limit.
    Server,
}

/// Why a request has no regular response, or why its response was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The status for the client (RFC 9110 section 15, RFC 6585).
    pub status: u16,
    pub fault: Fault,
    /// Set if the request had no effect and the client may repeat it after this many seconds.
    pub retry: Option<u32>,
    /// Details for the log. Never sent to the client.
    pub reason: Cow<'static, str>,
}

impl Failure {
    /// Creates the failure of an invalid request, or of a client that has gone.
    pub fn client(status: u16, reason: impl Into<Cow<'static, str>>) -> Failure {
        Failure { status, fault: Fault::Client, retry: None, reason: reason.into() }
    }

    /// Creates a failure of the app, its worker or an origin.
    pub fn app(status: u16, reason: impl Into<Cow<'static, str>>) -> Failure {
        Failure { status, fault: Fault::App, retry: None, reason: reason.into() }
    }

    pub fn server(status: u16, reason: impl Into<Cow<'static, str>>) -> Failure {
        Failure { status, fault: Fault::Server, retry: None, reason: reason.into() }
    }

    /// Creates the failure of a server that has temporarily reached a limit (503). The client may try again.
    pub fn busy(reason: impl Into<Cow<'static, str>>) -> Failure {
        Failure { status: 503, fault: Fault::Server, retry: Some(1), reason: reason.into() }
    }

    /// Creates a failure like [`Failure::busy`], for a limit that lasts for `wait`. `Retry-After` is rounded
    /// up to seconds.
    pub fn busy_for(wait: Duration, reason: impl Into<Cow<'static, str>>) -> Failure {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Failure { retry: Some(u32::try_from(seconds.max(1)).unwrap_or(u32::MAX)), ..Failure::busy(reason) }
    }

    /// Creates the failure of a client that went away before its response (499, as in nginx's logs; no client
    /// reads this response).
    pub fn client_gone(reason: impl Into<Cow<'static, str>>) -> Failure {
        Failure::client(499, reason)
    }

    /// Returns the response for the client.
    pub fn into_response(self) -> Response {
        let status = self.status;
        let mut fields = Fields::default();
        fields.push(b"Content-Type", b"text/plain; charset=utf-8");
        if let Some(seconds) = self.retry {
            fields.push(b"Retry-After", seconds.to_string().as_bytes());
        }
        let text = format!("{status} {}\n", reason_phrase(status));
        // The rest of an invalid request is not read.
        let after = if self.fault == Fault::Client { After::EndStream } else { After::Reuse };
        Response {
            after,
            failure: Some(Box::new(self)),
            ..Response::new(status, fields, Body::Bytes(text.into()))
        }
    }
}

/// Returns the reason phrase of a status (RFC 9110 section 15 and the IANA registry); empty for unknown ones.
pub fn reason_phrase(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        418 => "I'm a teapot",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        511 => "Network Authentication Required",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_becomes_a_response_that_carries_it() {
        let full = Failure::busy("10000 requests are waiting");
        let response = full.clone().into_response();
        assert_eq!((response.status, response.fields.get("retry-after")), (503, Some(&b"1"[..])));
        assert_eq!((response.after, response.failure.as_deref()), (After::Reuse, Some(&full)));
        let bad = Failure::client(400, "two lengths").into_response();
        assert!(bad.after == After::EndStream && bad.fields.get("retry-after").is_none());
    }

    #[test]
    fn the_client_hears_when_to_come_again() {
        let after = |ms| {
            let response =
                Failure::busy_for(Duration::from_millis(ms), "all seats are taken").into_response();
            String::from_utf8(response.fields.get("retry-after").unwrap().to_vec()).unwrap()
        };
        assert_eq!([0, 1, 1_000, 1_001, 90_000].map(after), ["1", "1", "1", "2", "90"]);
    }

    #[test]
    fn the_client_does_not_see_the_reason() {
        let response = Failure::app(502, "secret").into_response();
        let Body::Bytes(text) = response.body else { panic!("a body in memory") };
        assert_eq!(&text[..], b"502 Bad Gateway\n");
    }
}
