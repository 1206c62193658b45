//! Writes a `puma.rb` as `firebrick.toml`: settings as keys, the rest as comments.
//!
//! A value under a condition becomes a comment, too: as a key, one machine's value would apply to all machines.

use std::fmt::Write;
use std::path::Path;

use super::{CallDescription, CallEffect, CallOutcome, Mapped};
use crate::origin::ValueSource;
use crate::raw::Raw;
use crate::table;
use crate::written::Written;

/// Returns the text of a `firebrick.toml` that is equivalent to `mapped`, which was read from `shown`.
pub fn toml(mapped: &Mapped, shown: &Path) -> String {
    // A line break would end the comment.
    let shown = shown.display().to_string().replace(char::is_control, "?");
    let mut text = format!(
        "# Made from {shown} by `firebrick check --write`. Values that it took from the environment are those of that moment.\n\
         # With this file, {shown} is read only with -C {shown}; what is written here counts before it.\n"
    );
    let abouts: Vec<_> = table::entries().map(|entry| entry.about()).filter(|about| about.in_file).collect();
    let table_of = |key: &'static str| key.split_once('.').map_or("", |(table, _)| table);
    // Options of one table may be scattered over the list of options, but the file has each table once. Keys
    // without a table come first.
    let mut tables = vec![""];
    for table in abouts.iter().map(|about| table_of(about.key)) {
        if !tables.contains(&table) {
            tables.push(table);
        }
    }
    let in_table = |table| abouts.iter().filter(move |about| table_of(about.key) == table);
    let mut section = "";
    for about in tables.into_iter().flat_map(in_table) {
        let Some((_, written)) = mapped.values.iter().find(|(key, _)| *key == about.key) else { continue };
        let (table, name) = about.key.split_once('.').unwrap_or(("", about.key));
        if table != section {
            section = table;
            append(&mut text, format_args!("\n[{table}]\n"));
        }
        if about.secret {
            append(
                &mut text,
                format_args!("# A token does not belong into a file: set {}.\n", about.env.join(" or ")),
            );
            append(&mut text, format_args!("# {name} = \"\"  # {}\n", place(&written.origin)));
        } else {
            let (literal, place) = (literal(&written.raw), place(&written.origin));
            if is_conditional(mapped, about.key, &written.origin) {
                append(
                    &mut text,
                    format_args!(
                        "# Under a condition in {shown}; this is what it was here and now. Write it without # where it holds.\n"
                    ),
                );
                append(&mut text, format_args!("# "));
            }
            append(&mut text, format_args!("{name} = {literal}  # {place}\n"));
        }
    }
    comments(&mut text, "What happens without a setting:", mapped, |row| match &row.outcome {
        CallOutcome::Is(CallEffect::Always, why) => Some(format!("{}: {why}", row.call)),
        _ => None,
    });
    comments(&mut text, "What has no equivalent:", mapped, |row| match &row.outcome {
        CallOutcome::Is(CallEffect::Ignored, why) => Some(format!("{}: {why}", row.call)),
        CallOutcome::Plugins => Some(format!("{}: it is its plugin's", row.call)),
        _ => None,
    });
    let how = format!(
        "What is Ruby: leave it in {shown} and start with -C {shown}, or move it into config.ru (docs/hooks.md):"
    );
    comments(&mut text, &how, mapped, |row| match &row.outcome {
        CallOutcome::Is(CallEffect::Hook | CallEffect::Request | CallEffect::Background, what) => {
            Some(format!("{}: {what}", row.call))
        }
        CallOutcome::Is(CallEffect::Mapped, what) if row.call.starts_with("app") => {
            Some(format!("{}: {what}", row.call))
        }
        _ => None,
    });
    comments(&mut text, "What is typed: firebrick DIR, or firebrick FILE.ru:", mapped, |row| {
        let typed = ["rackup ", "directory "].iter().any(|name| row.call.starts_with(name));
        typed.then(|| row.call.clone())
    });
    text
}

/// Returns the number of values that are comments because they are under a condition.
pub fn left_out(mapped: &Mapped) -> usize {
    let conditional = |(key, written): &&(&str, Written)| is_conditional(mapped, key, &written.origin);
    mapped.values.iter().filter(conditional).count()
}

/// Returns whether a condition decides that the value's call is made, or with which argument.
fn is_conditional(mapped: &Mapped, key: &str, origin: &ValueSource) -> bool {
    let here = |row: &CallDescription| matches!(origin, ValueSource::Puma { path, line, .. } if row.place == (path.clone(), *line));
    let sets = |row: &CallDescription| matches!(&row.outcome, CallOutcome::Sets(set) if set.iter().any(|(known, _)| *known == key));
    mapped.rows.iter().any(|row| row.conditional && (here(row) || sets(row)))
}

fn comments(
    text: &mut String,
    title: &str,
    mapped: &Mapped,
    line: impl Fn(&CallDescription) -> Option<String>,
) {
    let lines: Vec<String> = mapped
        .rows
        .iter()
        .filter_map(|row| {
            let (path, number) = (row.place.0.display(), row.place.1);
            let line = format!("{} ({path}:{number})", line(row)?);
            Some(format!("#   {}\n", line.replace(char::is_control, "?")))
        })
        .collect();
    if !lines.is_empty() {
        append(text, format_args!("\n# {title}\n{}", lines.concat()));
    }
}

fn place(origin: &ValueSource) -> String {
    // A path may contain a line break, which would end the comment.
    origin.to_string().replace(char::is_control, "?")
}

fn literal(raw: &Raw) -> String {
    match raw {
        Raw::Word(text) if text.parse::<i64>().is_ok_and(|number| number.to_string() == *text) => {
            text.clone()
        }
        Raw::Word(text) if text == "true" || text == "false" => text.clone(),
        Raw::Word(text) | Raw::Text(text) => quoted(text),
        Raw::List(parts) => format!("[{}]", parts.iter().map(literal).collect::<Vec<_>>().join(", ")),
        Raw::Float(number) if number.is_finite() => format!("{number:?}"),
        other @ (Raw::Float(_) | Raw::Other(_)) => quoted(&other.to_string()),
        other => other.to_string(),
    }
}

/// Returns the text as a basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => append(&mut quoted, format_args!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn append(text: &mut String, part: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = text.write_fmt(part);
}
