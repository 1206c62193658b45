//! The final output of siege (4.0 and 4.1), label for label: as text, and as JSON with the same names.

use crate::document::Document;
use crate::figures::{ms, per_second};

struct Figures {
    transactions: u64,
    availability: f64,
    elapsed: f64,
    megabytes: f64,
    response_time: f64,
    rate: f64,
    throughput: f64,
    concurrency: f64,
    successful: u64,
    failed: u64,
    longest: f64,
    shortest: f64,
}

impl Figures {
    fn of(document: &Document) -> Figures {
        let outcome = &document.outcome;
        // siege counts every complete response as a transaction, and a status below 400 (or 401 and 407,
        // which it retries) as a success.
        let transactions: u64 = outcome.statuses.values().sum();
        let good = |status: u16| status < 400 || status == 401 || status == 407;
        let successful =
            outcome.statuses.iter().filter(|(status, _)| good(**status)).map(|(_, count)| count).sum();
        let errors = &outcome.errors;
        let failed = errors.total() - errors.status - errors.length - errors.body;
        let attempts = transactions + failed;
        let megabytes = outcome.bytes.bodies as f64 / 1_048_576.0;
        let latency = &outcome.latency;
        let (mean, shortest) =
            if latency.is_empty() { (0.0, 0.0) } else { (latency.mean() / 1e6, ms(latency.min()) / 1e3) };
        let per = |amount: f64| if outcome.seconds > 0.0 { amount / outcome.seconds } else { 0.0 };
        Figures {
            transactions,
            availability: if attempts > 0 { 100.0 * transactions as f64 / attempts as f64 } else { 0.0 },
            elapsed: outcome.seconds,
            megabytes,
            response_time: mean,
            rate: per_second(transactions, outcome.seconds),
            throughput: per(megabytes),
            concurrency: per(mean * latency.len() as f64),
            successful,
            failed,
            longest: ms(latency.max()) / 1e3,
            shortest,
        }
    }
}

pub(super) fn report(document: &Document) -> String {
    let found = Figures::of(document);
    let whole =
        |label: &str, tabs: &str, value: u64, unit: &str| format!("{label}:{tabs}{value:>12}{unit}\n");
    let part =
        |label: &str, tabs: &str, value: f64, unit: &str| format!("{label}:{tabs}{value:>12.2}{unit}\n");
    [
        whole("Transactions", "\t\t", found.transactions, " hits"),
        part("Availability", "\t\t", found.availability, " %"),
        part("Elapsed time", "\t\t", found.elapsed, " secs"),
        part("Data transferred", "\t", found.megabytes, " MB"),
        part("Response time", "\t\t", found.response_time, " secs"),
        part("Transaction rate", "\t", found.rate, " trans/sec"),
        part("Throughput", "\t\t", found.throughput, " MB/sec"),
        part("Concurrency", "\t\t", found.concurrency, ""),
        whole("Successful transactions", "", found.successful, ""),
        whole("Failed transactions", "\t", found.failed, ""),
        part("Longest transaction", "\t", found.longest, ""),
        part("Shortest transaction", "\t", found.shortest, ""),
        " \n".to_owned(),
    ]
    .concat()
}

pub(super) fn json(document: &Document) -> String {
    let found = Figures::of(document);
    let whole = |value: u64| format!("{value:>12}");
    let part = |value: f64| format!("{value:>12.2}");
    let fields = [
        ("transactions", "\t\t\t", whole(found.transactions)),
        ("availability", "\t\t\t", part(found.availability)),
        ("elapsed_time", "\t\t\t", part(found.elapsed)),
        ("data_transferred", "\t\t", part(found.megabytes)),
        ("response_time", "\t\t", part(found.response_time)),
        ("transaction_rate", "\t\t", part(found.rate)),
        ("throughput", "\t\t\t", part(found.throughput)),
        ("concurrency", "\t\t\t", part(found.concurrency)),
        ("successful_transactions", "\t", whole(found.successful)),
        ("failed_transactions", "\t\t", whole(found.failed)),
        ("longest_transaction", "\t\t", part(found.longest)),
        ("shortest_transaction", "\t\t", part(found.shortest)),
    ];
    let lines: Vec<String> =
        fields.iter().map(|(name, tabs, value)| format!("\t\"{name}\":{tabs}{value}")).collect();
    format!("{{{}\n}}\n", lines.join(",\n"))
}
