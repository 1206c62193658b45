//! Tests that no code of the program or of a worker uses the macros that panic when standard output or standard error cannot be written; crate
//! `output` has replacements. Examples, tests and build scripts may use them.

use std::path::{Path, PathBuf};

const MACROS: [&str; 4] = ["println!(", "eprintln!(", "print!(", "eprint!("];

pub fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Returns the lines of a source that print, without comments and the part after the tests' heading.
fn prints(text: &str) -> Vec<usize> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let says = |line: &str| {
        let line = line.trim_start();
        !line.starts_with("//") && MACROS.iter().any(|name| is_macro(line, name))
    };
    code.lines().enumerate().filter(|(_, line)| says(line)).map(|(number, _)| number + 1).collect()
}

fn is_macro(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

#[test]
fn nothing_panics_because_nobody_reads() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in crate::workspace::crates(&root).1.values() {
        sources(&root.join(folder).join("src"), &mut files);
    }
    assert!(files.len() > 100);
    let faults: Vec<String> = files
        .iter()
        .flat_map(|path| {
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
