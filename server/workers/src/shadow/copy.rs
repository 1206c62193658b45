//! Copies of clients' requests: which are copied, and what is left out of a copy.

use crate::own_request;
use wire::request::{Body, Encoder, Head, Put, Request};

/// The key of the env that marks a copy: `old` or `new`. It is a variable, not a field, so no client can set it.
pub(crate) const MARK: &[u8] = b"firebrick.shadow";
/// The longest head that is copied, in bytes.
const LONGEST: usize = 16 << 10;

/// Fields that make a request another one than its copy is to be.
const REFUSED: [&[u8]; 4] = [b"range", b"if-range", b"upgrade", b"expect"];
/// Fields that a copy does not have: conditions and codings hide the body; the ids are the client's.
const LEFT_OUT: [&[u8]; 10] = [
    b"accept-encoding",
    b"authorization",
    b"if-match",
    b"if-modified-since",
    b"if-none-match",
    b"if-unmodified-since",
    b"referer",
    b"traceparent",
    b"tracestate",
    b"x-request-id",
];

/// The worker that a copy is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Old,
    New,
}

impl Side {
    fn word(self) -> &'static str {
        match self {
            Side::Old => "old",
            Side::New => "new",
        }
    }
}

/// A request of a client without its secrets.
#[derive(Debug, Clone)]
pub(crate) struct RequestCopy {
    payload: Vec<u8>,
    /// Whether it is sent as HEAD instead.
    head_only: bool,
    /// Distinguishes the copies of a request in logs from others.
    number: u32,
}

impl RequestCopy {
    /// Returns the copy of a REQUEST payload; `None` if this request is not copied.
    pub(crate) fn of(payload: &[u8]) -> Option<RequestCopy> {
        if payload.len() > LONGEST {
            return None;
        }
        let request = Request::decode(payload).ok()?;
        let head = &request.head;
        let safe = matches!(head.method, b"GET" | b"HEAD") && request.body == Body::None && !head.switch;
        // A link in a mail works once, or for one person.
        let has_secret = text::secret::is_in_target(request.path(), request.query());
        if !safe || has_secret {
            return None;
        }
        for field in request.fields() {
            let name = field.lowercase_name();
            let streams = name == b"accept" && field.value.starts_with(b"text/event-stream");
            if streams || REFUSED.contains(&name.as_slice()) {
                return None;
            }
        }
        Some(RequestCopy { payload: payload.to_vec(), head_only: false, number: fastrand::u32(..) })
    }

    /// Returns a request of the server's own for this target.
    pub(crate) fn of_target(target: &str) -> Option<RequestCopy> {
        let frame = own_request::frame(target, true, 0);
        RequestCopy::of(frame.get(wire::frame::HEADER..)?)
    }

    /// Returns the same request with the method HEAD.
    pub(crate) fn head(&self) -> RequestCopy {
        RequestCopy { head_only: true, ..self.clone() }
    }

    /// Returns the REQUEST frame for a worker, which asks at this time.
    pub(crate) fn frame(&self, side: Side, asked_us: u64) -> Option<Vec<u8>> {
        let request = Request::decode(&self.payload).ok()?;
        let method = self.method(&request.head);
        let head = Head { method, measure: true, asked_us, ..request.head };
        let mut frame = Vec::with_capacity(self.payload.len() + 128);
        let mut encoder = Encoder::new(&mut frame, &head);
        for field in request.fields().filter(|field| field.variable().is_none()) {
            let name = field.lowercase_name();
            if !LEFT_OUT.contains(&name.as_slice()) && !text::secret::is_secret(&name) {
                encoder.field(&name, field.value);
            }
        }
        // Rails and others write it to each line of the log.
        encoder.field(
            b"x-request-id",
            format!("firebrick-shadow-{}-{:08x}", side.word(), self.number).as_bytes(),
        );
        encoder.variable(MARK, side.word().as_bytes());
        encoder.finish(Put::None);
        Some(frame)
    }

    fn method<'a>(&self, head: &Head<'a>) -> &'a [u8] {
        if self.head_only { b"HEAD" } else { head.method }
    }

    /// Returns whether it is a GET, which can be sent as HEAD, too.
    pub(crate) fn is_get(&self) -> bool {
        self.with_head(|head| self.method(head) == b"GET").unwrap_or(false)
    }

    /// Returns method and target for people.
    pub(crate) fn describe(&self) -> String {
        let text = |bytes: &[u8]| bytes[..bytes.len().min(200)].escape_ascii().to_string();
        let described = self.with_head(|head| format!("{} {}", text(self.method(head)), text(head.target)));
        described.unwrap_or_default()
    }

    /// Returns method and folded path: what tells it apart before its route is known.
    pub(crate) fn folded(&self) -> String {
        let folded = |head: &Head<'_>| {
            text::route::Buffer::default().of_request(self.method(head), head.path()).to_owned()
        };
        self.with_head(folded).unwrap_or_default()
    }

    fn with_head<R>(&self, read: impl FnOnce(&Head<'_>) -> R) -> Option<R> {
        wire::request::head_of(&self.payload).ok().map(|head| read(&head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(method: &str, target: &str, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut frame = Vec::new();
        let path = target.split('?').next().unwrap().len() as u32;
        let query = (target.len() as u32).saturating_sub(path + 1);
        let head = Head {
            version: 20,
            https: true,
            remote_port: 4,
            measure: false,
            switch: false,
            asked_us: 7,
            method: method.as_bytes(),
            target: target.as_bytes(),
            path: (0, path),
            query: (if query > 0 { path + 1 } else { 0 }, query),
            remote_addr: b"10.0.0.1",
            server_name: b"a",
            server_port: b"443",
        };
        let mut encoder = Encoder::new(&mut frame, &head);
        fields.iter().for_each(|(name, value)| encoder.field(name.as_bytes(), value.as_bytes()));
        encoder.variable(b"REMOTE_USER", b"ann");
        encoder.finish(Put::None);
        frame.split_off(wire::frame::HEADER)
    }

    fn copied(method: &str, target: &str, fields: &[(&str, &str)]) -> bool {
        RequestCopy::of(&payload(method, target, fields)).is_some()
    }

    #[test]
    fn only_what_should_change_nothing_is_copied() {
        assert!(copied("GET", "/posts?page=2", &[("accept", "text/html")]) && copied("HEAD", "/", &[]));
        for method in ["POST", "DELETE", "OPTIONS", "QUERY"] {
            assert!(!copied(method, "/", &[]), "{method}");
        }
        for field in ["Range", "Upgrade", "If-Range", "Expect"] {
            assert!(!copied("GET", "/", &[(field, "x")]), "{field}");
        }
        assert!(!copied("GET", "/", &[("Accept", "text/event-stream")]));
        assert!(!copied("GET", "/reset?token=k3j5h2g5", &[]));
    }

    #[test]
    fn a_copy_has_a_mark_and_no_secrets() {
        let fields = [
            ("Cookie", "a=b"),
            ("Authorization", "Basic x"),
            ("X-Api-Key", "x"),
            ("If-None-Match", "x"),
            ("Accept-Encoding", "gzip"),
            ("X-Request-Id", "x"),
            ("Accept", "text/html"),
            ("firebrick.shadow", "x"),
        ];
        let copy = RequestCopy::of(&payload("GET", "/posts/12", &fields)).unwrap();
        let frame = copy.frame(Side::New, 99).unwrap();
        let request = Request::decode(&frame[wire::frame::HEADER..]).unwrap();
        let left: Vec<_> =
            request.fields().map(|field| String::from_utf8(field.lowercase_name()).unwrap()).collect();
        assert_eq!(left, ["accept", "firebrick.shadow", "x-request-id", "=firebrick.shadow"]);
        assert!(request.head.measure && request.head.asked_us == 99);
        let id = request.fields().nth(2).unwrap().value.to_vec();
        assert!(id.starts_with(b"firebrick-shadow-new-"), "{}", id.escape_ascii());
        assert_eq!((copy.describe().as_str(), copy.folded().as_str()), ("GET /posts/12", "GET /posts/:id"));
    }

    #[test]
    fn a_get_can_be_sent_as_head() {
        let copy = RequestCopy::of_target("/up?x=1").unwrap();
        assert!(copy.is_get() && !copy.head().is_get());
        assert_eq!(copy.head().describe(), "HEAD /up?x=1");
        let frame = copy.head().frame(Side::Old, 0).unwrap();
        assert_eq!(Request::decode(&frame[wire::frame::HEADER..]).unwrap().head.method, b"HEAD");
    }
}
