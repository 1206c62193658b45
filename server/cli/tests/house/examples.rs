//! `make unit` skips rustdoc's run of examples in comments, which would take a second or two per crate and
//! find none. So there must be no such examples: a block of code in a comment names its language, and that is
//! not Rust.

use crate::workspace::sources;

/// Returns the lines where rustdoc would find an example to run.
fn examples(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut fenced = false;
    let mut after_blank = true;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_start();
        let Some(words) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            (fenced, after_blank) = (false, true);
            continue;
        };
        if let Some(language) = words.trim_start().strip_prefix("```") {
            let runs = matches!(language.trim(), "" | "rust" | "no_run" | "should_panic" | "compile_fail");
            if !fenced && runs {
                found.push(number);
            }
            fenced = !fenced;
        } else if !fenced && after_blank && words.starts_with("     ") {
            found.push(number);
        }
        after_blank = words.trim().is_empty();
    }
    found
}

#[test]
fn comments_have_no_examples_that_only_rustdoc_runs() {
    let found: Vec<String> = sources()
        .into_iter()
        .flat_map(|(_, file)| {
            let text = std::fs::read_to_string(&file).expect("a source file");
            examples(&text)
                .into_iter()
                .map(move |line| format!("{}:{line}", file.display()))
                .collect::<Vec<_>>()
        })
        .collect();
    assert!(
        found.is_empty(),
        "write ```text, or a unit test: make unit runs no examples\n{}",
        found.join("\n")
    );
}

#[test]
fn examples_are_found() {
    assert_eq!(examples("/// Words.\n/// ```\n/// one()\n/// ```\nfn f() {}\n"), [2]);
    assert_eq!(examples("//! ```rust\n//! one()\n//! ```\n//! ```text\n//! a\n//! ```\n"), [1]);
    assert_eq!(examples("//! Words.\n//!\n//!     one()\n"), [3]);
    assert_eq!(examples("/// - an item\n///      goes on\nfn f() {}\n"), [0; 0]);
}
