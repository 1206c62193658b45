//! `firebrick cache`: shows what the cache of responses keeps, and purges it.

use crate::client::{ControlClient, ask, order, show};
use crate::table::{grid, mib, span};
use serde::{Deserialize, Serialize};
use stats::{CacheLookup, CacheReport, CacheSnapshot};
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use text::people::grouped;

/// The most paths and tags of an order.
const MOST_ENTRIES: usize = 1000;

/// An order to remove kept responses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PurgeOrder {
    /// Everything.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Paths such as `/posts/12`, with `*` at the end for everything that follows, or URLs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Tags of Surrogate-Key and Cache-Tag.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

impl PurgeOrder {
    /// Checks the order.
    ///
    /// # Errors
    /// The text names the fault and the expected form.
    pub fn check(&self) -> Result<(), String> {
        if !self.all && self.paths.is_empty() && self.tags.is_empty() {
            return Err("nothing is named: a path such as /posts/12, a tag, or everything (all)".to_owned());
        }
        if self.paths.len() + self.tags.len() > MOST_ENTRIES {
            return Err(format!("an order has at most {MOST_ENTRIES} paths and tags"));
        }
        let is_tag = |tag: &String| !tag.is_empty() && !tag.contains(|c: char| c.is_whitespace() || c == ',');
        match self.tags.iter().find(|tag| !is_tag(tag)) {
            Some(tag) => {
                Err(format!("the tag {tag:?} is empty, or has a blank or comma: name each tag for itself"))
            }
            None => Ok(()),
        }
    }
}

/// The result of a purge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purged {
    /// Resources of this server.
    pub removed: u64,
    /// Whether the purge was published through Redis to the other servers of the group.
    pub shared: bool,
    /// Why they were not.
    pub error: Option<String>,
}

/// A command of `firebrick cache`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheAction {
    Show,
    Purge(PurgeOrder),
}

/// Runs `firebrick cache` for the server in `dir`.
pub fn cache_command(dir: &Path, client: &ControlClient, action: &CacheAction, json: bool) -> ExitCode {
    show(match action {
        CacheAction::Show => ask(dir, client, "/cache", json, |report: Option<CacheReport>| match report {
            Some(report) => table(&report),
            None => OFF.to_owned(),
        }),
        CacheAction::Purge(purge) => order(dir, client, "/cache/purge", purge).and_then(|purged: Purged| {
            let others = if purged.shared {
                "; the purge was published to the other servers of the group"
            } else {
                ""
            };
            let removed = match purged.removed {
                1 => format!("purged: 1 resource{others}"),
                count => format!("purged: {} resources{others}", grouped(count)),
            };
            match purged.error {
                None => Ok(format!("{removed}\n")),
                Some(why) => Err(format!("{removed}, but the other servers were not told: {why}")),
            }
        }),
    })
}

/// Describes what the running server's cache has for a key, for `firebrick explain`. `None` if no server
/// runs, or its cache is off.
pub fn explain_kept(client: &ControlClient, key: &str) -> Option<String> {
    let target = format!("/cache?url={}", text::percent::encode(key.as_bytes(), text::percent::SEGMENT));
    let found: Option<CacheLookup> = serde_json::from_str(&client.get(&target).ok()?).ok()?;
    Some(kept(&found?))
}

fn kept(found: &CacheLookup) -> String {
    let mut told = String::new();
    if found.variants.is_empty() {
        let _ = match &found.refused {
            Some(why) => writeln!(
                told,
                "The cache keeps nothing for {}: the last response of this route was not kept ({why}).",
                found.key
            ),
            None => writeln!(told, "The cache keeps nothing for {} yet.", found.key),
        };
        return told;
    }
    let _ = writeln!(told, "The cache keeps, for the key {}:", found.key);
    for one in &found.variants {
        let left = one.lifetime_s - one.age_s;
        let fresh = match left > 0.0 {
            true => format!("fresh for {} of {}", span(left), span(one.lifetime_s)),
            false => format!("stale since {}", span(-left)),
        };
        let because =
            if one.because.is_empty() { String::new() } else { format!(", because {}", one.because) };
        let varies = match one.varies_by.is_empty() {
            true => "; the same for all clients".to_owned(),
            false => format!("; varies by {}", one.varies_by.join(", ")),
        };
        let tags = if one.tags.is_empty() { String::new() } else { format!("; tags {}", one.tags.join(" ")) };
        let _ = writeln!(
            told,
            "  {}, {:.1} KiB, {fresh}{because}{varies}{tags}",
            one.status,
            one.bytes as f64 / 1024.0
        );
    }
    told
}

const OFF: &str = "the cache is off: set cache.memory, for example --cache 64MiB\n";

/// Returns the report for people.
fn table(report: &CacheReport) -> String {
    let mut text = headline(&report.cache);
    if !report.routes.is_empty() {
        let titles = ["route", "requests", "from the cache", "last reason for not keeping"];
        let rows = report.routes.iter().map(|route| {
            let (hits, all) = (route.hits, route.hits + route.misses);
            let rate = format!("{:.0} %", 100.0 * hits as f64 / all.max(1) as f64);
            [route.route.clone(), grouped(all), rate, route.refused.clone().unwrap_or_default()]
        });
        text.push('\n');
        text.push_str(&lines(titles, rows));
    }
    if !report.resources.is_empty() {
        let titles = ["resource", "KiB", "requests", "fresh for"];
        let rows = report.resources.iter().map(|one| {
            let fresh = if one.fresh_s > 0.0 { span(one.fresh_s) } else { "stale".to_owned() };
            let variants =
                if one.variants > 1 { format!(" ({} variants)", one.variants) } else { String::new() };
            [
                format!("{}{variants}", one.url),
                format!("{:.1}", one.bytes as f64 / 1024.0),
                grouped(one.hits),
                fresh,
            ]
        });
        text.push('\n');
        text.push_str(&lines(titles, rows));
    }
    text
}

/// Returns a table whose first column is aligned to the left.
fn lines<const N: usize>(titles: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut all: Vec<Vec<String>> = vec![titles.map(str::to_owned).to_vec()];
    all.extend(rows.map(|row| row.to_vec()));
    let width = all.iter().map(|row| row[0].chars().count()).max().unwrap_or(0);
    all.iter_mut().for_each(|row| row[0] = format!("{:<width$}", row[0]));
    grid(&all)
}

fn headline(cache: &CacheSnapshot) -> String {
    let hits = cache.hits + cache.stale + cache.validated + cache.collapsed;
    let all = hits + cache.misses;
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "kept         {} resources, {} of {} MiB; {} evicted",
        grouped(cache.resources),
        mib(cache.used_bytes),
        mib(cache.limit_bytes),
        grouped(cache.evicted)
    );
    if let (Some(files), Some(bytes)) = (cache.disk_files, cache.disk_bytes) {
        let _ = writeln!(text, "on disk      {} resources, {} MiB", grouped(files), mib(bytes));
    }
    let _ = writeln!(
        text,
        "requests     {}: {:.1} % from the cache ({} hits, {} stale, {} confirmed by the app, {} after waiting for an equal one)",
        grouped(all),
        100.0 * hits as f64 / all.max(1) as f64,
        grouped(cache.hits),
        grouped(cache.stale),
        grouped(cache.validated),
        grouped(cache.collapsed)
    );
    let _ = writeln!(
        text,
        "removed      {} by purges, {} by requests that change something",
        grouped(cache.purged),
        grouped(cache.invalidated)
    );
    let reasons: Vec<String> = cache
        .refused
        .iter()
        .filter(|refusal| refusal.count > 0)
        .map(|refusal| format!("{} {}", refusal.reason, grouped(refusal.count)))
        .collect();
    if !reasons.is_empty() {
        let _ = writeln!(text, "not kept     {}", reasons.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::{CacheRefusal, CacheResource, CacheRoute};

    #[test]
    fn the_report_names_rates_and_reasons() {
        let refusal = |reason: &str, count| CacheRefusal { reason: reason.to_owned(), count };
        let report = CacheReport {
            cache: CacheSnapshot {
                limit_bytes: 64 << 20,
                used_bytes: 3 << 20,
                resources: 2,
                hits: 3,
                stale: 0,
                validated: 0,
                collapsed: 0,
                misses: 1,
                stored: 1,
                renewed: 0,
                evicted: 0,
                purged: 0,
                invalidated: 0,
                disk_files: None,
                disk_bytes: None,
                disk_skipped: None,
                refused: vec![refusal("private", 1), refusal("vary", 0)],
            },
            routes: vec![CacheRoute {
                route: "/posts/:id".into(),
                hits: 3,
                misses: 1,
                refused: Some("private".into()),
            }],
            resources: vec![CacheResource {
                url: "http://a/".into(),
                bytes: 2048,
                variants: 2,
                hits: 3,
                fresh_s: 0.0,
            }],
        };
        let text = table(&report);
        assert!(text.contains("2 resources, 3.0 of 64.0 MiB"), "{text}");
        assert!(
            text.contains("75.0 % from the cache") && text.contains("not kept     private 1\n"),
            "{text}"
        );
        assert!(
            text.contains("/posts/:id") && text.contains("75 %") && text.contains("http://a/ (2 variants)"),
            "{text}"
        );
    }

    #[test]
    fn orders_are_checked() {
        let order = |paths: &[&str], tags: &[&str]| PurgeOrder {
            all: false,
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        };
        assert!(
            order(&["/a"], &["b"]).check().is_ok()
                && PurgeOrder { all: true, ..PurgeOrder::default() }.check().is_ok()
        );
        assert!(order(&[], &[]).check().unwrap_err().contains("nothing is named"));
        assert!(order(&[], &["a b"]).check().unwrap_err().contains("\"a b\""));
        assert!(order(&["/a"; 1001], &[]).check().is_err());
    }
}
