//! Checks the English of comments, as far as a program can: the subject of a sentence is a named thing.
//!
//! 1. No sentence begins with a pronoun that stands for a person or for a thing not named yet: [`BEGINNINGS`].
//! 2. No comment has one of the [`PHRASES`], which have a plain word: "is told" is "gets" or "receives", "is
//!    none" is "does not count".
//! 3. The comments of Rust and of Ruby are checked, tests included. Code, and text between backquotes or
//!    quotes, is not.

use crate::workspace::{crates, files};
use std::path::Path;

/// First words of sentences.
const BEGINNINGS: &[&str] = &[
    "Who ",
    "Whoever ",
    "Whose ",
    "Nobody ",
    "Somebody ",
    "One that ",
    "One which ",
    "That of ",
    "Those of ",
    "What is ",
    "What ",
];

/// Phrases at any place.
const PHRASES: &[&str] = &[
    " is told",
    " are told",
    " be told",
    " was told",
    " were told",
    " been told",
    "whoever",
    "nobody",
    "somebody",
    "lies beside",
    " by the word of",
    " is nobody's",
    " to whom ",
];

/// Endings that make a phrase mean something else.
const MEANT: &[&str] = &[" told apart"];

/// Returns the text of a comment without code and quotations; `None` for other lines.
fn comment(line: &str, ruby: bool) -> Option<String> {
    let line = line.trim_start();
    let text = if ruby {
        line.strip_prefix("# ")?
    } else {
        ["//! ", "/// ", "// "].iter().find_map(|mark| line.strip_prefix(mark))?
    };
    let outside = |text: &str, mark| text.split(mark).step_by(2).collect::<Vec<_>>().join("x");
    Some(outside(&outside(text, '`'), '"'))
}

/// Returns the first fault of a comment's line. `begins`: a sentence begins with it.
fn fault(text: &str, begins: bool) -> Option<&'static str> {
    let mut sentences = text.split_inclusive(['.', ':']);
    let first = sentences.next().filter(|_| begins);
    let rest = sentences.filter(|sentence| sentence.starts_with(' '));
    let begun = first.into_iter().chain(rest).map(|sentence| sentence.trim_start_matches([' ', '-', '*']));
    let asks = |sentence: &str| sentence.trim_end().ends_with('?');
    let beginning = begun
        .filter(|sentence| !asks(sentence))
        .find_map(|sentence| BEGINNINGS.iter().find(|word| sentence.starts_with(**word)));
    let padded = format!(" {text}");
    let meant = MEANT.iter().any(|end| padded.contains(end));
    beginning.or_else(|| PHRASES.iter().find(|phrase| !meant && padded.contains(**phrase))).copied()
}

#[test]
fn comments_name_their_subjects() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the root");
    let mut folders: Vec<_> = crates(&root).1.into_values().map(|folder| root.join(folder)).collect();
    folders.extend(["worker/lib", "test", "bench"].map(|folder| root.join(folder)));
    let mut faults = Vec::new();
    for file in folders.iter().flat_map(|folder| files(folder, &["rs", "rb"])) {
        if file.ends_with("house/english.rs") {
            continue;
        }
        let (ruby, mut begins) = (file.extension().is_some_and(|end| end == "rb"), true);
        let source = std::fs::read_to_string(&file).expect("a source");
        for (number, line) in source.lines().enumerate() {
            let Some(text) = comment(line, ruby) else {
                begins = true;
                continue;
            };
            if let Some(found) = fault(&text, begins) {
                let name = file.strip_prefix(&root).unwrap_or(&file).display();
                faults.push(format!("{name}:{}: {found:?} in: {text}", number + 1));
            }
            begins = text.trim_end().ends_with(['.', ':', '?']);
        }
    }
    faults.sort();
    faults.dedup();
    assert!(
        faults.is_empty(),
        "name the subject (the client, the worker, the entry):\n{}",
        faults.join("\n")
    );
}

#[test]
fn faults_are_found() {
    for (text, begins, expected) in [
        ("Who asks later waits.", true, Some("Who ")),
        ("The gate closes. Whoever asks later waits.", false, Some("Whoever ")),
        ("1. What is removed is not found.", true, Some("What is ")),
        ("The worker is told to stop.", true, Some(" is told")),
        ("clients are told apart by address.", false, None),
        ("What is the time?", true, None),
        ("one who waits", false, None),
    ] {
        assert_eq!(fault(text, begins), expected, "{text}");
    }
    assert_eq!(comment("    /// The `Who ` of \"nobody\" here", false).as_deref(), Some("The x of x here"));
    assert_eq!(
        (comment("let x = 1; // no", false), comment("  # Ruby", true).as_deref()),
        (None, Some("Ruby"))
    );
}
