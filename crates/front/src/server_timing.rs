//! `Server-Timing`: tells who asks where the time of a request went.
//!
//! A request with `Firebrick-Timing: 1` is answered with `Server-Timing: queue;dur=0.301, app;dur=64.120, cpu;dur=12.003,
//! gvl;dur=5.120`, milliseconds each. What is not known is left out, so the field may be empty; it is there all the same, because
//! it tells that a Firebrick has answered. Fields of that name from the app stay beside it.

use handler::{Fields, PeerAddr, Request, Trace};
use settings::ServerTiming;
use std::io::Write;

/// Whose questions are answered.
pub(crate) struct Timing(ServerTiming);

impl Timing {
    /// Answers those whom `answered` says.
    pub(crate) fn new(answered: ServerTiming) -> Timing {
        Timing(answered)
    }

    /// Whether the request asks and will be answered.
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

/// Whether the client is on this machine. A proxy on this machine that says for whom it asks is not.
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
    // A worker takes some microseconds for anything, so a request that it has answered has an app time.
    let app = Some(trace.app_us.get()).filter(|&us| us > 0);
    let queue = Some(trace.queue_us.get()).filter(|&us| us > 0 || app.is_some());
    let stages = [("queue", queue), ("app", app), ("cpu", trace.cpu_us.get()), ("gvl", trace.gvl_us.get())];
    let mut text = Vec::with_capacity(80);
    for (name, us) in stages.into_iter().filter_map(|(name, us)| Some((name, us?))) {
        let comma = if text.is_empty() { "" } else { ", " };
        // Writing to a Vec cannot fail.
        let _ = write!(text, "{comma}{name};dur={}.{:03}", us / 1_000, us % 1_000);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log::request_for_tests::{peer, request};
    use handler::Peer;
    use std::rc::Rc;

    fn is_due(whose: ServerTiming, remote: PeerAddr, fields: &[(&str, &str)]) -> bool {
        let request = Request { peer: Rc::new(Peer { remote, ..peer() }), ..request("GET", "/", fields) };
        Timing::new(whose).is_due(&request)
    }

    #[test]
    fn only_those_who_may_ask_are_answered() {
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
    fn what_is_not_known_is_left_out() {
        let trace = Trace::default();
        assert_eq!(text(&trace), b"");
        trace.queue_us.set(301);
        assert_eq!(text(&trace), b"queue;dur=0.301");
        trace.app_us.set(64_120);
        trace.cpu_us.set(Some(12_003));
        assert_eq!(text(&trace), b"queue;dur=0.301, app;dur=64.120, cpu;dur=12.003");
        trace.queue_us.set(0);
        trace.gvl_us.set(Some(5));
        assert_eq!(text(&trace), b"queue;dur=0.000, app;dur=64.120, cpu;dur=12.003, gvl;dur=0.005");
    }
}
