//! What may wait where: tries every construct of Ruby in which a call that waits could stand, and keeps
//! `docs/mruby-waiting.md` to what was found.
//!
//! A page that promises what the library does not do is worse than none: so it is made by this test, and a difference fails.
//! The page is of one release of mruby; with another only the outcomes are judged.
#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

use script::{Limits, Source};
use std::fmt::Write;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use support::{Server, Visitor, on_a_loop, text};

/// Which mruby the page is of.
const PAGE_IS_OF: &str = "3.1.";

/// One construct, and what became of it.
struct Row {
    group: String,
    name: String,
    code: String,
    outcome: String,
    said: String,
}

fn limits() -> Limits {
    Limits {
        request_heap: 32 << 20,
        step_time: Some(Duration::from_secs(5)),
        // So long may a row take: what hangs is told as such.
        deadline: Some(Duration::from_secs(2)),
        max_tasks: 1_000,
        max_body: 0,
        reproxy: false,
    }
}

/// Tries the row with this number in a VM of its own; `None` behind the last.
async fn row(source: &Source, number: usize) -> Option<Row> {
    let server = Server::open(source.clone(), limits()).await;
    let client = Rc::new(Visitor::default());
    let named = server.get(&format!("/{number}/name"), &client).await;
    if named.status != 200 {
        return None;
    }
    let named = text(named);
    let [group, name, code] = named.splitn(3, '\t').collect::<Vec<_>>()[..] else {
        panic!("not a row: {named}")
    };
    let response = server.get(&format!("/{number}"), &client).await;
    let (outcome, said) = match response.status {
        200 => {
            let said = text(response);
            let (outcome, said) = said.split_once('\t').expect("an outcome and a text");
            (outcome.to_owned(), said.to_owned())
        }
        _ => ("odd".to_owned(), server.said()),
    };
    Some(Row { group: group.into(), name: name.into(), code: code.into(), outcome, said })
}

const HEAD: &str = "\
# What may wait inside an mruby handler

<!-- Made by `FIREBRICK_REGENERATE=1 cargo test -p script --test waiting`. -->

`sleep`, Redis, HTTP requests, `task { }.join`, `Channel#shift`: whatever waits suspends its own request and leaves the thread to
others. mruby can suspend a method only while nothing but Ruby stands between the method and the start of the request. When mruby
itself called you, as it does for `to_s` inside `\"#{ }\"`, it cannot be left in the middle. Then the call raises
a `FiberError` that says who called; nothing is lost, and the handler may rescue it.

The way out is always the same: wait first, then use what came.

    greeting = redis.get(\"greeting\")     # not inside to_s, not in the block of Hash.new
    \"#{greeting}, world\"

Tried, all of it, by a test with a wait inside each construct";

fn page(rows: &[Row]) -> String {
    let mut page = format!("{HEAD} ({}).\n", script::about());
    let mut group = "";
    for row in rows {
        if row.group != group {
            group = &row.group;
            let _ = write!(page, "\n## {group}\n\n| construct | may wait |\n|---|---|\n");
        }
        let verdict = match row.outcome.as_str() {
            "waits" => "yes".to_owned(),
            "refused" => format!("no: {}", cell(&row.said)),
            "absent" => format!("this mruby has none: {}", cell(&row.said)),
            "unused" => "mruby does not call it".to_owned(),
            other => format!("{other}: {}", cell(&row.said)),
        };
        let _ = writeln!(page, "| {} | {verdict} |", cell(&row.name));
    }
    page
}

/// Text as a table of Markdown takes it.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*").replace('_', "\\_")
}

#[test]
fn every_construct_waits_or_says_clearly_that_it_cannot() {
    on_a_loop(async {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/waiting/constructs.rb");
        let source = Source {
            file: "constructs.rb".into(),
            code: std::fs::read_to_string(file).expect("it is there"),
        };
        let mut rows = Vec::new();
        while let Some(row) = row(&source, rows.len()).await {
            rows.push(row);
        }
        assert!(rows.len() >= 56, "only {} constructs were tried", rows.len());
        let unclear: Vec<String> = rows
            .iter()
            .filter(|row| match row.outcome.as_str() {
                "waits" | "absent" | "unused" => false,
                "refused" => !row.said.starts_with("cannot wait here: "),
                _ => true,
            })
            .map(|row| format!("{} ({}): {} {}", row.name, row.code, row.outcome, row.said))
            .collect();
        assert!(unclear.is_empty(), "{}", unclear.join("\n"));
        if script::version().is_some_and(|version| version.starts_with(PAGE_IS_OF)) {
            compare(&page(&rows));
        }
    });
}

fn compare(made: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mruby-waiting.md");
    if std::env::var_os("FIREBRICK_REGENERATE").is_some() {
        std::fs::write(&path, made).expect("docs/mruby-waiting.md can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == made,
        "docs/mruby-waiting.md is old: FIREBRICK_REGENERATE=1 cargo test -p script --test waiting"
    );
}
