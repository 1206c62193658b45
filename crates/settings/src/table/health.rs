//! Health probes at the app's own addresses.

use super::entry::{Category, long, section};
use crate::kind::texts::RequestPath;
use crate::kind::wrappers::Maybe;

section! { Category::Listen;
    /// Paths of the app's addresses that the server answers itself.
    Health:

    /// Path at which the server itself says that it responds
    live_path: Option<String> = Maybe(RequestPath), {
        key: "health.live_path",
        flags: &[long("live-path", "PATH")],
        default_shown: Some("none"),
        more: "The same as GET /live of the control server, at the app's own addresses, for probes that cannot reach that one: 200, or \
               503 with the reason. The app does not see these requests.",
        known_as: &["live_path", "liveness_path", "monitor_uri"],
    }
    /// Path at which the server itself says that it wants requests
    ready_path: Option<String> = Maybe(RequestPath), {
        key: "health.ready_path",
        flags: &[long("ready-path", "PATH")],
        default_shown: Some("none"),
        more: "The same as GET /ready of the control server, at the app's own addresses: 200 while at least one worker is \
               ready and the server stays, else 503 with the reason.",
        known_as: &["ready_path", "readiness_path", "health_path", "health_check_path"],
    }
}
