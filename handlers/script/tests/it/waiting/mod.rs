//! Tests where a handler can wait: tries a wait in every construct of Ruby, and compares the results with
//! `docs/mruby-waiting.md`.
//!
//! The test generates the page, and a difference fails. The page describes one release of mruby; with another
//! release only the outcomes are checked.
#![cfg(test)]

use crate::support;

use script::{HandlerSource, RouteLimits};
use std::fmt::Write;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use support::{Server, Visitor, on_event_loop, text};

/// The release that the page describes.
const PAGE_VERSION: &str = "3.1.";

/// One construct with its result.
struct Row {
    group: String,
    name: String,
    code: String,
    outcome: String,
    message: String,
}

fn limits() -> RouteLimits {
    RouteLimits {
        request_heap: 32 << 20,
        step_time: Some(Duration::from_secs(5)),
        // The limit for one row; a row that hangs is reported.
        deadline: Some(Duration::from_secs(2)),
        max_tasks: 1_000,
        max_body: 0,
        reproxy: false,
    }
}

/// Tries the row with this number in a VM of its own; `None` after the last row.
async fn row(source: &HandlerSource, number: usize) -> Option<Row> {
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
    let (outcome, message) = match response.status {
        200 => {
            let message = text(response);
            let (outcome, message) = message.split_once('\t').expect("an outcome and a text");
            (outcome.to_owned(), message.to_owned())
        }
        _ => ("odd".to_owned(), server.log_text()),
    };
    Some(Row { group: group.into(), name: name.into(), code: code.into(), outcome, message })
}

const HEAD: &str = "\
# Where a handler on mruby can wait

<!-- Made by `FIREBRICK_REGENERATE=1 cargo test -p script --test it waiting`. -->

`sleep`, Redis, HTTP requests, `task { }.join`, `Channel#shift`: each wait suspends its own request, and the thread serves
others meanwhile. mruby can suspend a method only if all callers up to the start of the request are Ruby code. If mruby
itself called the method in C, as it does for `to_s` inside `\"#{ }\"`, it cannot suspend it. Then the call raises
a `FiberError` that names the caller; nothing is lost, and the handler may rescue it.

The solution is always the same: wait first, then use the result.

    greeting = redis.get(\"greeting\")     # not inside to_s, not in the block of Hash.new
    \"#{greeting}, world\"

A test tries each construct with a wait inside";

fn page(rows: &[Row]) -> String {
    let mut page = format!("{HEAD} ({}).\n", script::about());
    let mut group = "";
    for row in rows {
        if row.group != group {
            group = &row.group;
            let _ = write!(page, "\n## {group}\n\n| construct | can wait |\n|---|---|\n");
        }
        let verdict = match row.outcome.as_str() {
            "waits" => "yes".to_owned(),
            "refused" => format!("no: {}", cell(&row.message)),
            "absent" => format!("not in this version: {}", cell(&row.message)),
            "unused" => "mruby does not call it".to_owned(),
            other => format!("{other}: {}", cell(&row.message)),
        };
        let _ = writeln!(page, "| {} | {verdict} |", cell(&row.name));
    }
    page
}

/// Escapes text for a table in Markdown.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*").replace('_', "\\_")
}

#[test]
fn every_construct_waits_or_raises_a_clear_error() {
    on_event_loop(async {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/waiting/constructs.rb");
        let source = HandlerSource {
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
                "refused" => !row.message.starts_with("cannot wait here: "),
                _ => true,
            })
            .map(|row| format!("{} ({}): {} {}", row.name, row.code, row.outcome, row.message))
            .collect();
        assert!(unclear.is_empty(), "{}", unclear.join("\n"));
        if script::version().is_some_and(|version| version.starts_with(PAGE_VERSION)) {
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
        "docs/mruby-waiting.md is old: FIREBRICK_REGENERATE=1 cargo test -p script --test it waiting"
    );
}
