//! One line per second. Times in milliseconds, of successful responses; 0 in a second without any.

use std::fmt::Write as _;

use crate::document::Document;
use crate::figures::ms;

pub(crate) fn seconds(document: &Document) -> String {
    let mut out = String::from("second,sent,ok,errors,p50_ms,p95_ms,p99_ms,max_ms\n");
    for (index, second) in document.outcome.course.iter().enumerate() {
        let (p50, p95, p99, max) = (ms(second.p50), ms(second.p95), ms(second.p99), ms(second.max));
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{index},{},{},{},{p50:.3},{p95:.3},{p99:.3},{max:.3}",
            second.sent, second.ok, second.errors
        );
    }
    out
}
