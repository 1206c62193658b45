//! Answers health probes at the app's own addresses: `health.live_path` and `health.ready_path`.

use crate::vitals::Vitals;
use handler::{Request, Response};
use std::sync::Arc;

pub(crate) struct Probes {
    live: Option<String>,
    ready: Option<String>,
    vitals: Arc<Vitals>,
}

impl Probes {
    /// Returns `None` without a configured path.
    pub(crate) fn new(settings: &settings::Health, vitals: &Arc<Vitals>) -> Option<Probes> {
        let (live, ready) = (settings.live_path.clone(), settings.ready_path.clone());
        (live.is_some() || ready.is_some()).then(|| Probes { live, ready, vitals: vitals.clone() })
    }

    /// Returns the response if the request is a probe. This thread shows that it is alive by responding; the
    /// other threads are judged by earlier questions.
    pub(crate) fn answer(&self, request: &Request) -> Option<Response> {
        if !matches!(request.method(), b"GET" | b"HEAD") {
            return None;
        }
        let asked =
            |path: &Option<String>| path.as_ref().is_some_and(|path| path.as_bytes() == request.path());
        let verdict = if asked(&self.live) {
            self.vitals.known().live()
        } else if asked(&self.ready) {
            self.vitals.known().ready()
        } else {
            return None;
        };
        let (status, text) = match verdict {
            Ok(()) => (200, "ok\n".to_owned()),
            Err(why) => (503, format!("{why}\n")),
        };
        let mut response = Response::text(status, "text/plain; charset=utf-8", text);
        response.fields.push(b"Cache-Control", b"no-store");
        Some(response)
    }
}
