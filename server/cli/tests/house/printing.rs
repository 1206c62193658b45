//! Tests that no code of the program or of a worker uses the macros that panic when standard output or
//! standard error cannot be written; crate `output` has replacements. Examples, tests and build scripts may
//! use them.

use crate::workspace::{before_tests, sources};

const MACROS: [&str; 4] = ["println!(", "eprintln!(", "print!(", "eprint!("];

/// Returns the lines of a source that print, without comments and the part after the tests' heading.
fn prints(text: &str) -> Vec<usize> {
    let says = |line: &str| {
        let line = line.trim_start();
        !line.starts_with("//") && MACROS.iter().any(|name| is_macro(line, name))
    };
    before_tests(text)
        .lines()
        .enumerate()
        .filter(|(_, line)| says(line))
        .map(|(number, _)| number + 1)
        .collect()
}

fn is_macro(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

#[test]
fn nothing_panics_because_nobody_reads() {
    let files = sources();
    assert!(files.len() > 100);
    let faults: Vec<String> = files
        .iter()
        .flat_map(|(_, path)| {
            let text = std::fs::read_to_string(path).expect("a source");
            prints(&text).into_iter().map(move |line| format!("{}:{line}", path.display()))
        })
        .collect();
    assert_eq!(faults, Vec::<String>::new(), "use output::print and output::complain");
}

#[test]
fn what_prints_is_found() {
    assert_eq!(
        prints("a\n    println!(\"x\");\n// eprintln!(\nlet x = |y| eprint!(\"{y}\");\nmy_print!(1)"),
        [2, 4]
    );
    assert_eq!(prints("#[cfg(test)]\nmod tests {\n println!()\n}"), Vec::<usize>::new());
}
