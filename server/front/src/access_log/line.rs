//! Formats the lines of the access log:
//!
//! - common: Apache's common format and the total time in seconds, as Rack's and Puma's loggers write it;
//! - combined: Apache's combined format and three times in seconds: total, in the queue (and before it, during a pause), in the app;
//! - json: one object.
//!
//! In the first two formats, a hijacked connection has `HIJACKED -1` in place of status and length.

use super::clock::Moment;
use super::escape;
use handler::{Ending, Request};
use settings::LogFormat;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use text::route::Buffer;

/// The status that is logged if the client has gone before the response.
const CLIENT_GONE: u16 = 499;

/// The facts for a line.
pub(super) struct LogEntry<'a> {
    pub ending: &'a Ending<'a>,
    pub total: Duration,
    pub time: Moment<'a>,
}

/// The format of a line.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub format: LogFormat,
    pub request_id_header: Option<Arc<str>>,
}

impl Layout {
    /// Appends the line of `entry`, with its line break.
    pub(super) fn write(&self, out: &mut Vec<u8>, entry: &LogEntry<'_>) {
        match self.format {
            LogFormat::Common => entry.common(out),
            LogFormat::Combined => entry.combined(out),
            LogFormat::Json => entry.json(out, self.request_id_header.as_deref()),
        }
        out.push(b'\n');
    }
}

impl LogEntry<'_> {
    fn common(&self, out: &mut Vec<u8>) {
        self.apache(out);
        seconds(out, self.total_us());
    }

    fn combined(&self, out: &mut Vec<u8>) {
        self.apache(out);
        for name in ["referer", "user-agent"] {
            out.extend_from_slice(b" \"");
            escape::apache(out, self.field(name).unwrap_or(b"-"));
            out.push(b'"');
        }
        let trace = self.ending.trace;
        let waited = u64::from(trace.paused_us.get()) + u64::from(trace.queue_us.get());
        for us in [self.total_us(), waited, trace.app_us.get().into()] {
            seconds(out, us);
        }
    }

    /// Writes Apache's common format: host, identity (always `-`), `REMOTE_USER`, time, request line, status, length.
    fn apache(&self, out: &mut Vec<u8>) {
        match self.ending.peer.remote_text.as_bytes() {
            [] => out.push(b'-'),
            host => escape::apache(out, host),
        }
        out.extend_from_slice(b" - ");
        match self.user() {
            None | Some([]) => out.push(b'-'),
            // A blank would end the name.
            Some(user) => user.split(|byte| *byte == b' ').enumerate().for_each(|(number, word)| {
                out.extend_from_slice(if number == 0 { b"" } else { b"\\x20" });
                escape::apache(out, word);
            }),
        }
        put(out, format_args!(" [{}] \"", self.time.apache));
        match self.ending.request {
            Some(request) => request_line(out, request),
            None => out.push(b'-'),
        }
        out.extend_from_slice(b"\" ");
        match (self.ending.hijacked, self.ending.body_bytes) {
            (true, _) => out.extend_from_slice(b"HIJACKED -1"),
            (false, 0) => put(out, format_args!("{} -", self.status())),
            (false, bytes) => put(out, format_args!("{} {bytes}", self.status())),
        }
    }

    fn json(&self, out: &mut Vec<u8>, request_id_header: Option<&str>) {
        let (ending, request) = (self.ending, self.ending.request);
        put(out, format_args!("{{\"time\":\"{}.{:03}Z\"", self.time.utc, self.time.millis));
        text(out, "method", request.map(Request::method));
        text(out, "path", request.map(Request::path));
        text(out, "query", request.map(Request::query));
        text(out, "protocol", request.map(|request| request.version.name().as_bytes()));
        text(out, "host", request.map(Request::authority));
        match ending.hijacked && ending.status == 0 {
            true => out.extend_from_slice(b",\"status\":null"),
            false => put(out, format_args!(",\"status\":{}", self.status())),
        }
        put(out, format_args!(",\"bytes\":{}", ending.body_bytes));
        text(out, "remote_addr", Some(ending.peer.remote_text.as_bytes()));
        if let Some(user) = self.user() {
            text(out, "remote_user", Some(user));
        }
        if let Some(session) = &ending.peer.session {
            text(out, "tls_version", Some(session.version.as_bytes()));
            text(out, "tls_cipher", Some(session.cipher.as_bytes()));
            if let Some(client) = request.and_then(|request| request.variable("SSL_CLIENT_S_DN")) {
                text(out, "tls_client", Some(client));
            }
        }
        text(out, "request_id", request_id_header.and_then(|name| self.field(name)));
        text(out, "user_agent", self.field("user-agent"));
        text(out, "referer", self.field("referer"));
        self.json_route(out);
        self.json_times(out);
        self.json_env(out);
        put(out, format_args!(",\"hijacked\":{},\"broken\":{}}}", ending.hijacked, ending.broken));
    }

    /// Writes the variables that handlers have set, if any.
    fn json_env(&self, out: &mut Vec<u8>) {
        let variables = self.ending.request.map_or(&[][..], |request| &request.variables);
        // Facts about the connection have their own fields.
        let own = |name: &[u8]| name == b"REMOTE_USER" || name.starts_with(b"SSL_");
        let mut others = variables.iter().filter(|(name, _)| !own(name)).peekable();
        if others.peek().is_none() {
            return;
        }
        out.extend_from_slice(b",\"env\":{");
        for (number, (name, value)) in others.enumerate() {
            out.extend_from_slice(if number == 0 { b"" } else { b"," });
            escape::json(out, name);
            out.push(b':');
            escape::json(out, value);
        }
        out.push(b'}');
    }

    /// Writes the app's name for the route, or else the method and the path without its ids; null if the app was not asked.
    fn json_route(&self, out: &mut Vec<u8>) {
        let trace = self.ending.trace;
        let (name, mut buffer) = (trace.route.borrow(), Buffer::default());
        let asked = self.ending.request.filter(|_| trace.worker.get() != 0);
        let route = match name.as_deref() {
            Some(name) => Some(name),
            None => asked.map(|request| buffer.of_request(request.method(), request.path())),
        };
        text(out, "route", route.map(str::as_bytes));
    }

    fn json_times(&self, out: &mut Vec<u8>) {
        let trace = self.ending.trace;
        let (queue, app) = (trace.queue_us.get().into(), trace.app_us.get().into());
        for (name, us) in [("queue_ms", queue), ("app_ms", app), ("total_ms", self.total_us())] {
            put(out, format_args!(",\"{name}\":{}.{:03}", us / 1_000, us % 1_000));
        }
        // Pauses are rare.
        if let us @ 1.. = trace.paused_us.get() {
            put(out, format_args!(",\"pause_ms\":{}.{:03}", us / 1_000, us % 1_000));
        }
        match trace.worker.get().checked_sub(1) {
            Some(worker) => put(out, format_args!(",\"worker\":{worker}")),
            None => out.extend_from_slice(b",\"worker\":null"),
        }
    }

    /// Returns `REMOTE_USER`, if a handler has set it.
    fn user(&self) -> Option<&[u8]> {
        self.ending.request.and_then(|request| request.variable("REMOTE_USER"))
    }

    fn total_us(&self) -> u64 {
        u64::try_from(self.total.as_micros()).unwrap_or(u64::MAX)
    }

    fn status(&self) -> u16 {
        if self.ending.status == 0 { CLIENT_GONE } else { self.ending.status }
    }

    fn field(&self, name: &str) -> Option<&[u8]> {
        self.ending.request.and_then(|request| request.fields.get(name)).filter(|value| !value.is_empty())
    }
}

fn request_line(out: &mut Vec<u8>, request: &Request) {
    escape::apache(out, request.method());
    out.push(b' ');
    escape::apache(out, request.target());
    put(out, format_args!(" {}", request.version.name()));
}

/// Writes a blank and `us` in seconds with four decimals.
fn seconds(out: &mut Vec<u8>, us: u64) {
    put(out, format_args!(" {}.{:04}", us / 1_000_000, us / 100 % 10_000));
}

/// Writes `,"name":"value"`, or null.
fn text(out: &mut Vec<u8>, name: &str, value: Option<&[u8]>) {
    put(out, format_args!(",\"{name}\":"));
    match value {
        Some(value) => escape::json(out, value),
        None => out.extend_from_slice(b"null"),
    }
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a Vec cannot fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log::clock::Clock;
    use handler::Trace;
    use handler::testing::{peer, request};
    use jiff::tz::TimeZone;
    use proptest::prelude::*;
    use std::time::{Instant, UNIX_EPOCH};

    /// Returns the line of an exchange that `change` has modified.
    fn line(format: LogFormat, request: Option<&Request>, change: impl FnOnce(&mut Ending<'_>)) -> String {
        let (peer, trace) = (peer(), Trace::default());
        trace.queue_us.set(1_250);
        trace.app_us.set(20_099);
        trace.worker.set(3);
        let mut ending = Ending {
            request,
            failure: None,
            peer: &peer,
            trace: &trace,
            status: 200,
            body_bytes: 2_326,
            started: Instant::now(),
            ended: Instant::now(),
            broken: false,
            hijacked: false,
        };
        change(&mut ending);
        let mut clock = Clock::in_zone(TimeZone::UTC);
        let time = clock.at(UNIX_EPOCH + Duration::from_millis(1_769_860_800_042));
        let entry = LogEntry { ending: &ending, total: Duration::from_micros(1_021_500), time };
        let mut out = Vec::new();
        Layout { format, request_id_header: Some("X-Request-Id".into()) }.write(&mut out, &entry);
        String::from_utf8(out).unwrap()
    }

    fn json(request: Option<&Request>, change: impl FnOnce(&mut Ending<'_>)) -> serde_json::Value {
        serde_json::from_str(&line(LogFormat::Json, request, change)).unwrap()
    }

    fn page() -> Request {
        let fields =
            [("Referer", "http://x/\"a"), ("User-Agent", "Mozilla/5.0 (é)"), ("X-Request-Id", "abc-1")];
        request("GET", "/a%20b?q=1", &fields)
    }

    #[test]
    fn apache_lines() {
        assert_eq!(
            line(LogFormat::Common, Some(&page()), |_| {}),
            "192.0.2.1 - - [31/Jan/2026:12:00:00 +0000] \"GET /a%20b?q=1 HTTP/1.1\" 200 2326 1.0215\n"
        );
        assert_eq!(
            line(LogFormat::Combined, Some(&page()), |_| {}),
            "192.0.2.1 - - [31/Jan/2026:12:00:00 +0000] \"GET /a%20b?q=1 HTTP/1.1\" 200 2326 \
             \"http://x/\\\"a\" \"Mozilla/5.0 (\\xc3\\xa9)\" 1.0215 0.0012 0.0200\n"
        );
    }

    #[test]
    fn unusual_requests() {
        let common = |request, change: fn(&mut Ending<'_>)| line(LogFormat::Common, request, change);
        assert!(common(None, |e| (e.status, e.body_bytes) = (400, 16)).contains("] \"-\" 400 16 "));
        let page = page();
        assert!(common(Some(&page), |e| (e.status, e.body_bytes) = (304, 0)).contains("\" 304 - "));
        assert!(common(Some(&page), |e| (e.status, e.body_bytes) = (0, 0)).contains("\" 499 - "));
        assert!(common(Some(&page), |e| e.hijacked = true).contains("\" HIJACKED -1 "));
    }

    #[test]
    fn remote_users() {
        for (user, common) in [("ann", " - ann ["), ("ann b", " - ann\\x20b ["), ("a\"\n", " - a\\\"\\x0a [")]
        {
            let mut page = page();
            page.set_variable(b"REMOTE_USER", user.as_bytes());
            let line = line(LogFormat::Common, Some(&page), |_| {});
            assert!(line.starts_with(&format!("192.0.2.1{common}")), "{line}");
            assert_eq!(json(Some(&page), |_| {})["remote_user"], user);
        }
    }

    #[test]
    fn variables_of_handlers() {
        let mut page = page();
        page.set_variable(b"REMOTE_USER", b"ann");
        assert!(json(Some(&page), |_| {}).get("env").is_none());
        page.set_variable(b"PLAN", b"go\"ld");
        page.set_variable(b"SEEN", b"");
        assert_eq!(json(Some(&page), |_| {})["env"], serde_json::json!({"PLAN": "go\"ld", "SEEN": ""}));
    }

    #[test]
    fn json_lines() {
        let found = json(Some(&page()), |ending| ending.broken = true);
        let wanted = serde_json::json!({
            "time": "2026-01-31T12:00:00.042Z", "method": "GET", "path": "/a%20b", "query": "q=1",
            "protocol": "HTTP/1.1", "host": "example.org", "status": 200, "bytes": 2326, "remote_addr": "192.0.2.1",
            "request_id": "abc-1", "user_agent": "Mozilla/5.0 (é)", "referer": "http://x/\"a",
            "route": "GET /a%20b", "queue_ms": 1.25, "app_ms": 20.099, "total_ms": 1_021.5, "worker": 2, "hijacked": false, "broken": true,
        });
        assert_eq!(found, wanted);
        let bad = json(None, |ending| ending.status = 400);
        assert!(["method", "path", "host", "user_agent"].iter().all(|name| bad[name].is_null()));
        assert_eq!(bad["status"], 400);
        assert!(json(Some(&page()), |e| (e.hijacked, e.status) = (true, 0))["status"].is_null());
        assert_eq!(json(Some(&page()), |e| e.status = 0)["status"], 499);
    }

    proptest! {
        #[test]
        fn clients_cannot_write_lines_of_their_own(target: Vec<u8>, agent: Vec<u8>, host: Vec<u8>) {
            let mut request = request("GET", "/", &[]);
            request.fields.push(b"User-Agent", &agent);
            request.fields.push(b"X-Request-Id", &host);
            request.fields.push(b"x", &target);
            let start = request.fields.text().len() - target.len();
            request.target = handler::Span { start: start as u32, len: target.len() as u32 };
            request.path = request.target;
            for format in [LogFormat::Common, LogFormat::Combined, LogFormat::Json] {
                let line = line(format, Some(&request), |_| {});
                let (end, text) = line.as_bytes().split_last().unwrap();
                prop_assert_eq!(*end, b'\n');
                prop_assert!(text.iter().all(|&byte| byte >= 0x20 && byte != 0x7f));
                if format == LogFormat::Json {
                    prop_assert!(serde_json::from_str::<serde_json::Value>(&line).is_ok());
                }
            }
        }
    }
}
