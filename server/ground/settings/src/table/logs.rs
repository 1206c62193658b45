//! Logs, and timings in responses.

use super::entry::{Category, Flag, bare, long};
use super::section::section;
use crate::kind::texts::{Choice, LogTarget};
use crate::value::log::{AccessLog, ErrorLog, LogFormat};
use crate::value::server_timing::ServerTiming;

section! { Category::Logs;
    /// Targets and formats of logs.
    Logs:

    /// Access log: a file, - for standard output, or off
    access: AccessLog = LogTarget(&["off", "-"]), {
        key: "log.access",
        flags: &[
            long("access-log", "PATH|-|off"),
            Flag { short: Some('v'), ..bare("log-requests", "-") },
        ],
        default: "off",
        default_shown: Some("off; standard output for an app in development"),
        more: "-v is short for --access-log -. HUP reopens the file.",
        known_as: &["access_log", "log_requests", "stdout_redirect", "accesslog"],
    }
    /// Format of the access log: combined, common or json
    format: LogFormat = Choice(&[
        ("combined", LogFormat::Combined),
        ("common", LogFormat::Common),
        ("json", LogFormat::Json),
    ]), {
        key: "log.format",
        flags: &[long("log-format", "FORMAT")],
        default: "combined",
        more: "combined and json include the time in the queue, the time in the app and the total time. With json the error log is JSON, too: \
               time, level, pid, request_id and message.",
        known_as: &["log_format", "log_formatter"],
    }
    /// Error log: a file, or - for standard error
    error: ErrorLog = LogTarget(&["-"]), {
        key: "log.error",
        flags: &[long("error-log", "PATH|-")],
        default: "-",
        default_shown: Some("standard error"),
        more: "HUP reopens the file. The app's exceptions are logged there, too.",
        known_as: &["error_log", "stderr_redirect", "errorlog"],
    }
    /// Clients that can request timings of a response: local, always or off
    server_timing: ServerTiming = Choice(&[
        ("local", ServerTiming::Local),
        ("always", ServerTiming::Always),
        ("off", ServerTiming::Off),
    ]), {
        key: "server_timing",
        flags: &[long("server-timing", "WHO")],
        default: "local",
        more: "The response to a request with Firebrick-Timing: 1 has a Server-Timing header: the time in the queue, the time in the app, and \
               how much of it was CPU time and waiting for Ruby's global lock. firebrick bench and tune use it. local \
               means clients on this machine whose requests did not come through a proxy.",
    }
}
