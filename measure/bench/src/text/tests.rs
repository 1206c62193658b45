//! Tests of the output formats.

use super::*;
use crate::samples::{description, document, nothing};

fn text(format: Format) -> String {
    render(&document(), format, &[]).unwrap()
}

fn line<'a>(text: &'a str, start: &str) -> &'a str {
    text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no {start:?} in\n{text}"))
}

#[test]
fn ab() {
    let text = text(Format::Ab);
    for wanted in [
        "Server Software:        nginx/1.22.1",
        "Document Length:        1048 bytes",
        "Concurrency Level:      10",
        "Time taken for tests:   2.000 seconds",
        "Complete requests:      1002",
        "   (Connect: 0, Receive: 1, Length: 0, Exceptions: 2)",
        "Non-2xx responses:      2",
        "Requests per second:    501.00 [#/sec] (mean)",
        "Time per request:       19.960 [ms] (mean)",
        "Transfer rate:          1024.00 [Kbytes/sec] received",
        "Connect:        0    0   0.1      0       1",
        "Total:          1  501 288.7    500    1000",
        "  50%    500",
        " 100%   1000 (longest request)",
    ] {
        assert_eq!(line(&text, wanted), wanted);
    }
}

#[test]
fn ab_percentiles() {
    let text = text(Format::AbCsv);
    assert_eq!(text.lines().count(), 102);
    assert!(text.starts_with("Percentage served,Time in ms\n0,1.000\n"), "{text}");
    assert!(text.lines().last().is_some_and(|line| line.starts_with("100,1000.")), "{text}");
}

#[test]
fn siege() {
    let text = text(Format::Siege);
    for wanted in [
        "Transactions:\t\t        1002 hits",
        "Availability:\t\t       99.90 %",
        "Data transferred:\t        1.00 MB",
        "Transaction rate:\t      501.00 trans/sec",
        "Concurrency:\t\t      250.2",
        "Successful transactions:        1000",
        "Failed transactions:\t           1",
        "Longest transaction:\t        1.00",
    ] {
        assert!(line(&text, wanted).starts_with(wanted));
    }
    let json: serde_json::Value =
        serde_json::from_str(&render(&document(), Format::SiegeJson, &[]).unwrap()).unwrap();
    assert_eq!((json["transactions"].as_u64(), json["throughput"].as_f64()), (Some(1_002), Some(0.5)));
}

#[test]
fn wrk() {
    let text = text(Format::Wrk);
    for wanted in [
        "Running 2s test @ http://h:9292/a",
        "  1 threads and 10 connections",
        "    Latency   500.5",
        "    Req/Sec   600.00      0.00   600.00    100.00%",
        "     50%  500.",
        "  1002 requests in 2.00s, 2.00MB read",
        "  Socket errors: connect 0, read 1, write 0, timeout 0",
        "  Non-2xx or 3xx responses: 2",
        "Requests/sec:    501.00",
        "Transfer/sec:      1.00MB",
    ] {
        assert!(line(&text, wanted).starts_with(wanted));
    }
}

#[test]
fn one_line_per_second() {
    assert_eq!(
        text(Format::Csv),
        "second,sent,ok,errors,p50_ms,p95_ms,p99_ms,max_ms\n\
         0,600,600,3,500.000,950.000,990.000,1000.000\n1,400,400,0,500.000,950.000,990.000,1000.000\n"
    );
}

#[test]
fn summary_for_people() {
    let text = render(&document(), Format::Human, &["half of the log was missing".to_owned()]).unwrap();
    for wanted in [
        "GET http://h:9292/a for 2 s",
        "10 users, each sending the next request after the previous response; HTTP/1.1 (closed model)",
        "1,000   500/s",
        "0.299 %",
        "corrected *",
        "p99  990 ms = 297 queue + 149 waiting for the GVL + 149 app + 395 network and sending",
        "status                  2   unexpected status",
        "200: 1,000, 500: 2",
        "1 x connection reset",
        "Note: half of the log was missing.",
        "firebrick tune",
        "by request, slowest first",
        "  400        0      2 ms      2 ms   GET http://h/<b>",
    ] {
        assert!(text.contains(wanted), "{wanted:?} is not in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 98), "{text}");
}

#[test]
fn a_run_without_responses() {
    let document = Document::new(None, description(), nothing(), None);
    for format in [
        Format::Human,
        Format::Json,
        Format::Csv,
        Format::Ab,
        Format::AbCsv,
        Format::Siege,
        Format::SiegeJson,
        Format::Wrk,
    ] {
        let text = render(&document, format, &[]).unwrap();
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
    assert!(render(&document, Format::Human, &[]).unwrap().contains("No successful response"));
}

#[test]
fn handshakes() {
    let mut document = document();
    document.outcome.handshakes = Some(crate::samples::handshakes());
    document.outcome.server.tls = Some("TLSv1.3 TLS13_AES_256_GCM_SHA384".to_owned());
    let document = Document::new(None, document.description, document.outcome, None);
    let human = |document: &Document| render(document, Format::Human, &[]).unwrap();
    for wanted in [
        "TLSv1.3 TLS13_AES_256_GCM_SHA384",
        "TLS handshakes           10   3 full, 7 resumed; p50 5 ms, p95 10 ms, max 10 ms",
        "TLS handshakes that failed:\n         2 x received fatal alert",
    ] {
        assert!(human(&document).contains(wanted), "{wanted}\n{}", human(&document));
    }
    let mut each = document.clone();
    each.description.keep_alive = false;
    assert!(human(&each).contains("10   5/s, 3 full"), "{}", human(&each));
    let json: serde_json::Value =
        serde_json::from_str(&render(&document, Format::Json, &[]).unwrap()).unwrap();
    let found = &json["summary"]["handshakes"];
    assert_eq!((found["count"].as_u64(), found["failed"].as_u64()), (Some(10), Some(2)));
    assert_eq!(found["per_s"].as_f64(), Some(5.0));
    assert!(found["time_ms"]["max"].as_f64().is_some_and(|max| (max - 10.0).abs() < 0.1));
}
