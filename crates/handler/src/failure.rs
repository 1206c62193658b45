//! What can go wrong with a request, whose fault it is, and what becomes of it: status, text, retry.

use crate::{Body, BodyError, Fields, Response};

/// Whose fault a failure is: decides its place in the log and the statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The request is wrong.
    Client,
    /// The app or its worker broke.
    App,
    /// We are at a limit of our own.
    Server,
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The message can be read in two ways or not at all (400).
    BadRequest,
    /// The head or body came too slowly (408).
    RequestTimeout,
    /// The body is larger than `max_body` (413).
    ContentTooLarge,
    /// The target is longer than `max_uri` (414).
    UriTooLong,
    /// An expectation other than 100-continue (417).
    ExpectationFailed,
    /// More or larger header fields than allowed (431).
    FieldsTooLarge,
    /// A method or transfer coding that we do not know (501).
    NotImplemented,
    /// Not HTTP/1.0 or HTTP/1.1 (505).
    VersionNotSupported,
    /// `max_connections` are open (503).
    TooManyConnections,
    /// `max_queue` requests are waiting (503).
    QueueFull,
    /// The request waited `queue_timeout` (503).
    QueueTimeout,
    /// No worker is there and none will come soon (503).
    NoWorker,
    /// The worker died while it served the request (502).
    WorkerDied,
    /// The worker served the request for longer than `worker_timeout` (504).
    WorkerStuck,
    /// The app's response makes no sense (502).
    BadResponse,
    /// No connection to an upstream could be made (502).
    UpstreamUnreachable,
    /// What the upstream answered makes no sense, or it closed without an answer (502).
    BadUpstream,
    /// The upstream took longer than its timeouts allow (504).
    UpstreamTimeout,
    /// Health checks say that no upstream can answer (503).
    NoUpstream,
    /// The client went away before it was served (499, as nginx logs it; nobody reads it).
    ClientGone,
    /// We failed ourselves (500).
    Internal,
}

/// A failure with its reason, which goes to the log and never to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong.
    pub kind: Kind,
    /// Details for the log.
    pub reason: std::borrow::Cow<'static, str>,
}

impl Failure {
    /// A failure with its reason for the log.
    pub fn new(kind: Kind, reason: impl Into<std::borrow::Cow<'static, str>>) -> Failure {
        Failure { kind, reason: reason.into() }
    }

    /// The status that the client sees (RFC 9110 section 15, RFC 6585).
    pub fn status(&self) -> u16 {
        match self.kind {
            Kind::BadRequest => 400,
            Kind::RequestTimeout => 408,
            Kind::ContentTooLarge => 413,
            Kind::UriTooLong => 414,
            Kind::ExpectationFailed => 417,
            Kind::FieldsTooLarge => 431,
            Kind::ClientGone => 499,
            Kind::Internal => 500,
            Kind::NotImplemented => 501,
            Kind::WorkerDied | Kind::BadResponse | Kind::UpstreamUnreachable | Kind::BadUpstream => 502,
            Kind::TooManyConnections
            | Kind::QueueFull
            | Kind::QueueTimeout
            | Kind::NoWorker
            | Kind::NoUpstream => 503,
            Kind::WorkerStuck | Kind::UpstreamTimeout => 504,
            Kind::VersionNotSupported => 505,
        }
    }

    /// Whose fault it is.
    pub fn fault(&self) -> Fault {
        match self.status() {
            400..=499 | 501 | 505 => Fault::Client,
            502 | 504 => Fault::App,
            _ => Fault::Server,
        }
    }

    /// Whether the client may send the same request again at once: nothing has been done for it.
    pub fn may_retry(&self) -> bool {
        // These are the reasons for 503.
        self.status() == 503
    }

    /// The response that tells the client. The only place where a failure becomes one.
    pub fn into_response(self) -> Response {
        let status = self.status();
        let mut fields = Fields::default();
        fields.push(b"Content-Type", b"text/plain; charset=utf-8");
        if self.may_retry() {
            fields.push(b"Retry-After", b"1");
        }
        let text = format!("{status} {}\n", reason_phrase(status));
        // What follows a request that was refused as a message cannot be told from its body: never read on.
        Response { status, fields, body: Body::Bytes(text.into()), close: self.fault() == Fault::Client }
    }
}

impl From<BodyError> for Failure {
    /// What a client is told whose body did not arrive whole.
    fn from(error: BodyError) -> Failure {
        match error {
            BodyError::Gone => Failure::new(Kind::BadRequest, "the client ended inside the body"),
            BodyError::TooSlow => {
                Failure::new(Kind::RequestTimeout, "the body came slower than body_min_rate")
            }
            BodyError::TooLarge => Failure::new(Kind::ContentTooLarge, "the body is larger than max_body"),
            BodyError::Malformed(reason) => Failure::new(Kind::BadRequest, reason),
        }
    }
}

/// Reason phrase of a status (RFC 9110 section 15 and the IANA registry); empty for unknown ones.
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
    fn a_failure_knows_its_status_fault_and_retry() {
        let full = Failure::new(Kind::QueueFull, "10000 requests are waiting");
        assert_eq!((full.status(), full.fault(), full.may_retry()), (503, Fault::Server, true));
        let response = full.into_response();
        assert_eq!(response.fields.get("retry-after"), Some(&b"1"[..]));
        assert!(!response.close);
        let bad = Failure::new(Kind::BadRequest, "two lengths").into_response();
        assert!(bad.close && bad.fields.get("retry-after").is_none());
    }

    #[test]
    fn the_reason_stays_in_the_log() {
        let response = Failure::new(Kind::WorkerDied, "secret").into_response();
        let Body::Bytes(text) = response.body else { panic!("a body in memory") };
        assert_eq!(&text[..], b"502 Bad Gateway\n");
    }
}
