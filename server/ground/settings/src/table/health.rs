//! Health probes at the app's own addresses.

use super::entry::{Category, long};
use super::section::section;
use crate::kind::texts::RequestPath;
use crate::kind::wrappers::Maybe;

section! { Category::Listen;
    /// Paths of the app's addresses that the server answers itself.
    Health:

    /// Path of a liveness check that the server answers itself
    live_path: Option<String> = Maybe(RequestPath), {
        key: "health.live_path",
        flags: &[long("live-path", "PATH")],
        default_shown: Some("none"),
        more: "Answers like GET /live of the control server, but at the app's addresses, for probes that cannot reach the control server: \
               200, or 503 with the reason. The app does not see these requests.",
        known_as: &["live_path", "liveness_path", "monitor_uri"],
    }
    /// Path of a readiness check that the server answers itself
    ready_path: Option<String> = Maybe(RequestPath), {
        key: "health.ready_path",
        flags: &[long("ready-path", "PATH")],
        default_shown: Some("none"),
        more: "Answers like GET /ready of the control server, but at the app's addresses: 200 while at least one worker is \
               ready and the server is not shutting down, else 503 with the reason. The app does not see these requests.",
        known_as: &["ready_path", "readiness_path", "health_path", "health_check_path"],
    }
}
