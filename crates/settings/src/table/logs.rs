//! Where log lines go.

use super::entry::{Category, Flag, bare, entries, long};
use crate::kind::texts::{Choice, PathOr};
use crate::value::log::LogFormat;

entries! { Category::Logs;
    ACCESS_LOG: PathOr = PathOr(&["off", "-"]), {
        key: "log.access",
        flags: &[
            long("access-log", "PATH|-|off"),
            Flag { short: Some('v'), ..bare("log-requests", "-") },
        ],
        default: "off",
        doc: "Where a line per request goes; - is standard output",
        more: "-v is short for --access-log -. HUP reopens the file.",
        known_as: &["access_log", "log_requests", "stdout_redirect", "accesslog"],
    }
    LOG_FORMAT: Choice<LogFormat> = Choice(&[
        ("combined", LogFormat::Combined),
        ("common", LogFormat::Common),
        ("json", LogFormat::Json),
    ]), {
        key: "log.format",
        flags: &[long("log-format", "FORMAT")],
        default: "combined",
        doc: "Shape of those lines: combined, common or json",
        more: "combined and json say how long the request waited, how long the app took and how long it took in all.",
        known_as: &["log_format", "log_formatter"],
    }
    ERROR_LOG: PathOr = PathOr(&["-"]), {
        key: "log.error",
        flags: &[long("error-log", "PATH|-")],
        default: "-",
        default_shown: Some("-, standard error"),
        doc: "Where errors and notices go",
        more: "HUP reopens the file.",
        known_as: &["error_log", "stderr_redirect", "errorlog"],
    }
}
