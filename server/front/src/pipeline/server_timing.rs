//! `Server-Timing`: reports the stages of a request to clients that ask for it.
//!
//! The response to a request with `Firebrick-Timing: 1` has `Server-Timing: queue;dur=0.301, app;dur=64.120,
//! cpu;dur=12.003, gvl;dur=5.120, gc;dur=1.000, sql;desc="7";dur=9.100, route;desc="posts#show"`, each in
//! milliseconds, and `pause` first if the request has waited for the end of a pause. `gc` and `sql` (with the number
//! of queries) are known if the worker has sent the whole response at once. Unknown values are left out. The field is
//! present even if it is empty, so that clients recognise the server. The app's own `Server-Timing` fields are kept.

use handler::{Fields, PeerAddr, Request, Trace};
use settings::ServerTiming;
use std::io::Write;

/// The clients that get the field.
pub(crate) struct Timing(ServerTiming);

impl Timing {
    pub(crate) fn new(answered: ServerTiming) -> Timing {
        Timing(answered)
    }

    /// Whether the request asks for the field and may get it.
    #[inline]
    pub(crate) fn is_due(&self, request: &Request) -> bool {
        self.0 != ServerTiming::Off
            && request.fields.get("firebrick-timing") == Some(b"1")
            && (self.0 == ServerTiming::Always || is_local(request))
    }

    /// Adds the field to a response.
    pub(crate) fn mark(fields: &mut Fields, trace: &Trace) {
        fields.push(b"Server-Timing", text(trace).as_slice());
    }
}

/// Whether the client is on this machine. A local proxy that forwards for another client does not count.
fn is_local(request: &Request) -> bool {
    let near = match request.peer.remote {
        PeerAddr::Inet(address) => address.ip().to_canonical().is_loopback(),
        PeerAddr::Unix => true,
    };
    near && ["x-forwarded-for", "forwarded", "via", "x-real-ip"]
        .iter()
        .all(|name| request.fields.get(name).is_none())
}

fn text(trace: &Trace) -> Vec<u8> {
    // Every request takes a worker some microseconds, so a request that the app has served has a time above 0.
    let app = Some(trace.app_us.get()).filter(|&us| us > 0);
    let queue = Some(trace.queue_us.get()).filter(|&us| us > 0 || app.is_some());
    let paused = Some(trace.paused_us.get()).filter(|&us| us > 0);
    let stages = [
        ("pause", paused),
        ("queue", queue),
        ("app", app),
        ("cpu", trace.cpu_us.get()),
        ("gvl", trace.gvl_us.get()),
    ];
    let mut text = Vec::with_capacity(80);
    for (name, us) in stages.into_iter().filter_map(|(name, us)| Some((name, us?))) {
        let comma = if text.is_empty() { "" } else { ", " };
        // Writing to a Vec cannot fail.
        let _ = write!(text, "{comma}{name};dur={}.{:03}", us / 1_000, us % 1_000);
    }
    let used = trace.used.get();
    if let Some(us) = used.gc_us {
        let _ = write!(text, ", gc;dur={}.{:03}", us / 1_000, us % 1_000);
    }
    if let (Some(queries), Some(us)) = (used.queries, used.queries_us) {
        let _ = write!(text, ", sql;desc=\"{queries}\";dur={}.{:03}", us / 1_000, us % 1_000);
    }
    if let Some(route) = trace.route.borrow().as_deref() {
        // A quoted string (RFC 9110 section 5.6.4).
        let plain = |sign| {
            if matches!(sign, ' '..='~') && !matches!(sign, '"' | '\\' | ',' | ';') { sign } else { '?' }
        };
        let _ = write!(text, ", route;desc=\"{}\"", route.chars().map(plain).collect::<String>());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler::Peer;
    use handler::testing::{peer, request};
    use std::rc::Rc;

    fn is_due(whose: ServerTiming, remote: PeerAddr, fields: &[(&str, &str)]) -> bool {
        let request = Request { peer: Rc::new(Peer { remote, ..peer() }), ..request("GET", "/", fields) };
        Timing::new(whose).is_due(&request)
    }

    #[test]
    fn only_allowed_clients_get_the_field() {
        const ASKS: (&str, &str) = ("Firebrick-Timing", "1");
        let at = |address: &str| PeerAddr::Inet(address.parse().unwrap());
        let (near, far) = (at("127.0.0.1:1"), at("192.0.2.1:1"));
        for local in [near, at("[::1]:1"), at("[::ffff:127.0.0.1]:1"), PeerAddr::Unix] {
            assert!(is_due(ServerTiming::Local, local, &[ASKS]), "{local:?}");
            assert!(!is_due(ServerTiming::Local, local, &[ASKS, ("X-Forwarded-For", "192.0.2.1")]));
            assert!(!is_due(ServerTiming::Local, local, &[]));
            assert!(!is_due(ServerTiming::Off, local, &[ASKS]));
        }
        assert!(!is_due(ServerTiming::Local, far, &[ASKS]));
        assert!(is_due(ServerTiming::Always, far, &[ASKS]));
        assert!(!is_due(ServerTiming::Always, near, &[("Firebrick-Timing", "0")]));
    }

    #[test]
    fn unknown_values_are_left_out() {
        let trace = Trace::default();
        assert_eq!(text(&trace), b"");
        trace.queue_us.set(301);
        assert_eq!(text(&trace), b"queue;dur=0.301");
        trace.app_us.set(64_120);
        trace.cpu_us.set(Some(12_003));
        assert_eq!(text(&trace), b"queue;dur=0.301, app;dur=64.120, cpu;dur=12.003");
        trace.queue_us.set(0);
        trace.gvl_us.set(Some(5));
        trace.paused_us.set(2_000_000);
        let paused = b"pause;dur=2000.000, queue;dur=0.000, app;dur=64.120, cpu;dur=12.003, gvl;dur=0.005";
        assert_eq!(text(&trace), paused);
        trace.paused_us.set(0);
        let plain = Trace::default();
        plain.app_us.set(1_000);
        plain.used.set(handler::Used {
            gc_us: Some(250),
            allocations: None,
            queries: Some(7),
            queries_us: Some(900),
        });
        plain.route.replace(Some("a\"b#\u{e9}".into()));
        let more =
            br#"queue;dur=0.000, app;dur=1.000, gc;dur=0.250, sql;desc="7";dur=0.900, route;desc="a?b#?""#;
        assert_eq!(text(&plain), more);
        assert_eq!(text(&trace), b"queue;dur=0.000, app;dur=64.120, cpu;dur=12.003, gvl;dur=0.005");
    }
}
