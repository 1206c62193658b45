//! `firebrick routes`: what each route of the app takes, as a table of at most 100 columns.

use crate::client::{ControlClient, ask, explain, order, show, value};
use crate::table::span;
use serde_json::Value;
use stats::{Finding, RouteOrder, RouteSnapshot, RoutesSnapshot};
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use text::people::{grouped, wrapped};

/// The widest table, in columns.
const WIDTH: usize = 100;
/// The interval of `--watch`.
const INTERVAL: Duration = Duration::from_secs(2);
/// The most routes in the table, if `--limit` does not say otherwise.
const SHOWN: usize = 30;
/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The options of `firebrick routes`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RoutesOrder {
    pub sort: RouteOrder,
    /// The most routes; `None`: as many as are usual.
    pub limit: Option<usize>,
    pub json: bool,
    /// Show the figures of each interval, until interrupted.
    pub watch: bool,
    /// Forget the figures instead.
    pub reset: bool,
    pub price: Option<RoutePrice>,
}

/// The price of the server, which its routes share.
#[derive(Debug, Clone, PartialEq)]
pub struct RoutePrice {
    pub per_month: f64,
    /// `€`, `$`, `EUR`, or empty.
    pub currency: String,
}

impl RoutePrice {
    fn text(&self, amount: f64) -> String {
        match self.currency.len() {
            0 => short(Some(amount)),
            3 if self.currency.is_ascii() => format!("{} {}", short(Some(amount)), self.currency),
            _ => format!("{}{}", self.currency, short(Some(amount))),
        }
    }
}

/// Runs `firebrick routes` for the server in `dir`.
pub fn routes_command(dir: &Path, client: &ControlClient, wish: &RoutesOrder) -> ExitCode {
    if wish.reset {
        return show(
            order(dir, client, "/routes/reset", &()).map(|_: Value| "the routes count anew\n".to_owned()),
        );
    }
    if wish.watch {
        return show(watch(dir, client, wish));
    }
    // The table tells how many it leaves out.
    let limit = wish.limit.filter(|_| wish.json).map(|limit| format!("&limit={limit}")).unwrap_or_default();
    let target = format!("/routes?sort={}&advice{limit}", name(wish.sort));
    show(ask(dir, client, &target, wish.json, |routes: RoutesSnapshot| table(&routes, wish)))
}

fn name(order: RouteOrder) -> &'static str {
    RouteOrder::ALL.iter().find(|(_, one)| *one == order).map_or("time", |(name, _)| name)
}

/// Shows each interval's figures until the server is gone.
fn watch(dir: &Path, client: &ControlClient, wish: &RoutesOrder) -> Result<String, String> {
    let mut before: RoutesSnapshot = value(dir, client, "/routes?buckets")?;
    loop {
        std::thread::sleep(INTERVAL);
        let text = client.get("/routes?buckets").map_err(|error| explain(&error, dir))?;
        let now: RoutesSnapshot = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let new = now.since(&before).sorted(wish.sort).without_buckets();
        before = now;
        if wish.json {
            let line = serde_json::to_string(&new).map_err(|error| error.to_string())?;
            output::print(line + "\n");
        } else {
            let clear = if std::io::stdout().is_terminal() { CLEAR } else { "" };
            output::print(format!("{clear}{}\n", table(&new, wish)));
        }
    }
}

/// A column of the table: its title, its width, its text. The width is that of the usual values; longer ones shift the rest of their line.
type Column = (&'static str, usize, fn(&RouteSnapshot, f64) -> String);

/// Per request, unless the title says otherwise. The second argument is the time of the figures in seconds.
const COLUMNS: [Column; 14] = [
    ("req/s", 5, |route, seconds| short((seconds > 0.0).then(|| route.requests as f64 / seconds))),
    ("share", 5, |route, _| format!("{:.0}%", 100.0 * route.share)),
    ("p50", 4, |route, _| short(timed(route, route.total_ms.p50))),
    ("p95", 4, |route, _| short(timed(route, route.total_ms.p95))),
    ("p99", 4, |route, _| short(timed(route, route.total_ms.p99))),
    ("queue", 5, |route, _| short(per(Some(route.queue_ms.sum), route.queue_ms.count))),
    ("CPU", 4, |route, _| short(per(route.cpu_ms, route.app_ms.count))),
    ("GVL", 4, |route, _| short(per(route.gvl_ms, route.app_ms.count))),
    ("GC", 4, |route, _| short(per(route.gc_ms, route.app_ms.count))),
    ("alloc", 5, |route, _| short(per(route.allocations.map(|count| count as f64), route.app_ms.count))),
    ("SQL", 4, |route, _| short(per(route.queries.map(|count| count as f64), route.app_ms.count))),
    ("ms", 4, |route, _| short(per(route.queries_ms, route.app_ms.count))),
    ("KiB", 4, |route, _| short(per(Some(route.body_bytes as f64 / 1024.0), route.requests))),
    ("err", 4, |route, _| short(Some(route.failures as f64))),
];

fn timed(route: &RouteSnapshot, ms: f64) -> Option<f64> {
    (route.total_ms.count > 0).then_some(ms)
}

fn per(sum: Option<f64>, count: u64) -> Option<f64> {
    sum.filter(|_| count > 0).map(|sum| sum / count as f64)
}

/// Formats a number in at most four characters, if it is less than a billion; `-` if there is none.
fn short(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let digits = |value: f64| match value {
        _ if value < 9.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    };
    match value {
        0.0 => "0".to_owned(),
        _ if value < 0.095 => format!("{value:.2}").trim_start_matches('0').to_owned(),
        _ if value < 999.5 => digits(value),
        _ if value < 999_500.0 => format!("{}k", digits(value / 1e3)),
        _ => format!("{}M", digits(value / 1e6)),
    }
}

/// Returns the table for people.
fn table(routes: &RoutesSnapshot, wish: &RoutesOrder) -> String {
    if routes.limit == 0 {
        return "no figures by route: stats.routes is 0\n".to_owned();
    }
    let seconds = routes.seconds();
    let requests: u64 = routes.routes.iter().map(|route| route.requests).sum();
    let busy: f64 = routes.routes.iter().map(|route| route.app_sum_ms).sum::<f64>() / 1e3;
    let mut text = format!(
        "{} requests in {}, {} in the app; ms and counts per request\n",
        grouped(requests),
        span(seconds),
        span(busy)
    );
    if routes.routes.is_empty() {
        return text;
    }
    let shown = &routes.routes[..wish.limit.unwrap_or(SHOWN).min(routes.routes.len())];
    lines(shown, seconds, WIDTH).iter().for_each(|line| text.extend([line, "\n"]));
    if shown.len() < routes.routes.len() {
        let _ = writeln!(text, "{} more: --limit, or --json", routes.routes.len() - shown.len());
    }
    if let Some(price) = &wish.price {
        text.push_str(&prices(shown, price, seconds));
    }
    text.push_str(&advice(routes.advice.as_deref().unwrap_or_default()));
    text
}

/// Returns the section of the advice; empty without any.
fn advice(findings: &[Finding]) -> String {
    let sentences = findings.iter().map(|finding| {
        let saves = format!("{:>4} ", format!("{:.0}%", 100.0 * finding.saves));
        wrapped(&format!("{saves} {}", finding.text), WIDTH, 6)
    });
    let lines: Vec<String> = sentences.collect();
    match lines.is_empty() {
        true => String::new(),
        false => format!(
            "\nAdvice, with the part of the requests' time that it saves at most\n{}\n",
            lines.join("\n")
        ),
    }
}

/// Returns the titles, and a line for each route. `seconds`: the time of the figures; `width`: that of a line, in columns.
pub fn lines(routes: &[RouteSnapshot], seconds: f64, width: usize) -> Vec<String> {
    let numbers: usize = COLUMNS.iter().map(|(_, width, _)| width + 1).sum();
    let width = width.saturating_sub(numbers).max(12);
    let titles = COLUMNS.iter().map(|(title, width, _)| format!(" {title:>width$}"));
    let mut all = vec![format!("{:<width$}{}", "route", titles.collect::<String>())];
    all.extend(routes.iter().map(|route| {
        let cells = COLUMNS.iter().map(|(_, width, cell)| format!(" {:>width$}", cell(route, seconds)));
        format!("{:<width$}{}", cut(&route.route, width), cells.collect::<String>())
    }));
    all
}

/// Returns a table of what routes cost. The price is divided by their time in the app.
fn prices(routes: &[RouteSnapshot], price: &RoutePrice, seconds: f64) -> String {
    let (width, month) = (WIDTH - 40, 365.25 / 12.0 * 86_400.0);
    let mut text = format!("\n{:<width$}{:>20}{:>20}\n", "route", "a month", "1,000 requests");
    for route in routes.iter().filter(|route| route.share > 0.0 && seconds > 0.0) {
        let cost = price.per_month * route.share;
        let requests = route.requests as f64 / seconds * month;
        let _ = writeln!(
            text,
            "{:<width$}{:>20}{:>20}",
            cut(&route.route, width),
            price.text(cost),
            price.text(cost / requests * 1e3)
        );
    }
    text
}

/// Cuts a name to so many characters. Its end tells more than its middle.
pub fn cut(name: &str, width: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= width {
        return name.to_owned();
    }
    let (first, last) = (width / 2, width - width / 2 - 1);
    letters[..first].iter().chain(&['…']).chain(&letters[letters.len() - last..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::DurationSummary;
    use std::time::SystemTime;

    fn times(count: u64, ms: f64) -> DurationSummary {
        DurationSummary {
            count,
            sum: count as f64 * ms,
            p50: ms,
            p95: 2.0 * ms,
            p99: 3.0 * ms,
            ..DurationSummary::default()
        }
    }

    fn snapshot() -> RoutesSnapshot {
        let named = RouteSnapshot {
            route: "admin/very_long_controller_names#with_long_actions".into(),
            named: true,
            requests: 12_000,
            failures: 12,
            body_bytes: 12_000 << 10,
            total_ms: times(12_000, 61.2),
            queue_ms: times(12_000, 0.04),
            app_ms: times(12_000, 60.0),
            app_sum_ms: 720_000.0,
            share: 1.0,
            cpu_ms: Some(360_000.0),
            gc_ms: Some(12_345.0),
            allocations: Some(12_000 * 41_000),
            queries: Some(12_000 * 37),
            queries_ms: Some(120_000.0),
            ..RouteSnapshot::default()
        };
        let file = RouteSnapshot { route: "(file)".into(), requests: 1, ..RouteSnapshot::default() };
        let since = SystemTime::UNIX_EPOCH;
        RoutesSnapshot {
            since,
            taken_at: since + Duration::from_secs(100),
            limit: 200,
            routes: vec![named, file],
            advice: None,
        }
    }

    #[test]
    fn a_table_fits_100_columns() {
        let text = table(&snapshot(), &RoutesOrder::default());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert!(lines[1].starts_with("route ") && lines[1].ends_with(" err"), "{text}");
        let cells: Vec<&str> = lines[2].split_whitespace().collect();
        let wanted =
            ["120", "100%", "61", "122", "184", ".04", "30", "-", "1.0", "41k", "37", "10", "1.0", "12"];
        assert_eq!(cells[1..], wanted, "{text}");
        assert!(cells[0].contains('…') && cells[0].ends_with("long_actions"), "{text}");
    }

    #[test]
    fn a_price_is_shared_by_the_time() {
        let price = Some(RoutePrice { per_month: 100.0, currency: "€".into() });
        let text = table(&snapshot(), &RoutesOrder { price, ..RoutesOrder::default() });
        assert!(text.contains("€100") && text.lines().last().unwrap().ends_with('0'), "{text}");
        assert!(!text.lines().last().unwrap().contains("(file)"));
    }

    #[test]
    fn what_is_left_out_is_told() {
        let few = table(&snapshot(), &RoutesOrder { limit: Some(1), ..RoutesOrder::default() });
        assert!(few.contains("1 more: --limit, or --json"), "{few}");
        let none = table(&RoutesSnapshot { limit: 0, ..snapshot() }, &RoutesOrder::default());
        assert!(none.contains("stats.routes is 0"));
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.004, ".00"),
            (0.04, ".04"),
            (0.1, "0.1"),
            (9.9, "9.9"),
            (9.97, "10"),
            (999.4, "999"),
            (999.6, "1.0k"),
            (12_345.0, "12k"),
            (999_900.0, "1.0M"),
            (123_456_789.0, "123M"),
        ] {
            assert_eq!(short(Some(value)), text);
        }
    }
}
