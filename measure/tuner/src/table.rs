//! The table of processes x threads, row by row.

use planner::{Cell, LimitedBy};

use crate::figures::{figure, mebibytes};
use crate::results::Measured;

/// Formats milliseconds without unit.
fn ms(value: f64) -> String {
    if value > 0.0 { figure(value) } else { "-".to_owned() }
}

/// The columns: headings, units, widths.
const COLUMNS: [(&str, &str, usize); 11] = [
    ("workers", "", 7),
    ("threads", "", 7),
    ("duration", "s", 8),
    ("requests", "/s", 9),
    ("p50", "ms", 8),
    ("p95", "ms", 8),
    ("p99", "ms", 8),
    ("PSS", "MiB", 8),
    ("RSS", "MiB", 8),
    ("CPUs", "used", 5),
    ("errors", "", 6),
];

/// The width of the first column, if there is more than one server.
const SERVER: usize = 10;

/// Returns two lines: headings and units.
pub(crate) fn head(servers: bool) -> String {
    let titles = line(servers.then_some("server"), COLUMNS.map(|(title, ..)| title.to_owned()));
    let units = line(servers.then_some(""), COLUMNS.map(|(_, unit, _)| unit.to_owned()));
    format!("{titles}\n{}", units.trim_end())
}

/// Returns a line with right-aligned columns.
fn line<const N: usize>(server: Option<&str>, texts: [String; N]) -> String {
    let columns = texts.iter().zip(COLUMNS).map(|(text, (.., width))| format!("{text:>width$}"));
    let server = server.map(|name| format!("{name:<SERVER$}"));
    server.into_iter().chain(columns).collect::<Vec<_>>().join("  ")
}

/// Returns a measured cell as a line, or the reason why there are no results.
pub(crate) fn row(measured: &Measured, servers: bool) -> String {
    let cell = &measured.cell;
    let name = servers.then_some(measured.server.name());
    let processes = cell.processes.to_string();
    let threads = match cell.fibers {
        0 => cell.threads.to_string(),
        fibers => format!("{}x{fibers}", cell.threads),
    };
    if let Some(why) = &cell.crashed {
        let mut lines = why.lines();
        let first = lines.next().unwrap_or_default();
        let log: String = lines.map(|line| format!("\n          | {line}")).collect();
        return format!("{}  crashed: {first}{log}", line(name, [processes, threads]));
    }
    let times = &cell.latency_ms;
    let figures = [
        processes,
        threads,
        figure(cell.seconds),
        figure(cell.rate_per_s),
        ms(times.p50),
        ms(times.p95),
        ms(times.p99),
        mebibytes(cell.pss_bytes),
        mebibytes(cell.rss_bytes),
        cell.cpu_cores.map_or_else(|| "-".to_owned(), |cores| format!("{cores:.2}")),
        cell.errors.to_string(),
    ];
    let line = line(name, figures);
    let remarks = remarks(measured);
    if remarks.is_empty() { line } else { format!("{line}  {}", remarks.join(", ")) }
}

fn remarks(measured: &Measured) -> Vec<String> {
    let Cell { limited_by, spread, .. } = &measured.cell;
    let mut remarks = Vec::new();
    if measured.cell.fibers > 0 {
        remarks.push("fibers".to_owned());
    }
    if measured.look {
        remarks.push("short look".to_owned());
    } else if *spread > measured.wanted_spread {
        remarks.push(format!("±{:.0} %", spread * 50.0));
    }
    match limited_by {
        Some(LimitedBy::LoadGenerator) => remarks.push("the load generator was the bottleneck".to_owned()),
        Some(LimitedBy::Machine) => remarks.push("other programs used the CPU".to_owned()),
        None => {}
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::size;
    use crate::server::ServerKind;

    fn measured(cell: Cell) -> Measured {
        Measured {
            server: ServerKind::Firebrick,
            undisturbed: cell.clone(),
            cell,
            look: false,
            wanted_spread: 0.1,
            error_text: None,
            redirects: false,
        }
    }

    #[test]
    fn three_significant_digits() {
        let texts: Vec<String> = [0.0, 0.1234, 1.234, 12.34, 123.4, 1_234.0, 98_765.0].map(figure).to_vec();
        assert_eq!(texts, ["0", "0.123", "1.23", "12.3", "123", "1,230", "98,800"]);
        assert_eq!([figure(f64::NAN), size(3.5 * 1_048_576.0), size(12.0)], ["-", "3.50 MiB", "12 B"]);
    }

    #[test]
    fn columns_are_aligned() {
        let cell = Cell {
            processes: 2,
            threads: 10,
            seconds: 3.9,
            rate_per_s: 156.0,
            pss_bytes: 36 << 20,
            rss_bytes: 90 << 20,
            errors: 7,
            ..Cell::default()
        };
        let (head, row) = (head(false), row(&measured(cell.clone()), false));
        let first = head.lines().next().unwrap();
        let ends = |word: &str| first.find(word).unwrap() + word.len();
        let wanted = [
            ("workers", "2"),
            ("threads", "10"),
            ("requests", "156"),
            ("PSS", "36.0"),
            ("RSS", "90.0"),
            ("errors", "7"),
        ];
        for (column, text) in wanted {
            let end = ends(column);
            assert!(row[..end].ends_with(text), "{column} in\n{head}\n{row}");
        }
        assert_eq!(row.lines().count(), 1);
        let fibers = super::row(&measured(Cell { threads: 1, fibers: 10_000, ..cell.clone() }), false);
        assert!(fibers[..ends("threads")].ends_with(" 1x10000") && fibers.ends_with("  fibers"), "{fibers}");
        let crashed = Cell { crashed: Some("it ended\nwith a line".to_owned()), ..cell };
        assert!(super::row(&measured(crashed), true).contains("crashed: it ended\n          | with a line"));
    }
}
