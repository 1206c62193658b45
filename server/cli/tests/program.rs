//! Tests of the program: its output and exit codes.

use std::process::{Command, Output};

/// Runs `firebrick` in `dir` with only these variables.
fn firebrick(dir: &std::path::Path, words: &[&str], vars: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_firebrick"))
        .args(words)
        .current_dir(dir)
        .env_clear()
        .envs(vars.iter().copied())
        .output()
        .expect("firebrick runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn check_passes_with_an_app_and_fails_without() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let without = firebrick(folder.path(), &["check"], &[]);
    assert_eq!(without.status.code(), Some(1));
    assert!(text(&without.stderr).contains("error: there is no config.ru"), "{}", text(&without.stderr));

    std::fs::write(folder.path().join("firebrick.toml"), "worker = 1\n[limits]\nmax_body = 'x'\n")
        .expect("a file");
    let wrong = firebrick(folder.path(), &["check"], &[("PORT", "x")]);
    assert_eq!(wrong.status.code(), Some(1));
    let said = text(&wrong.stderr);
    assert!(said.lines().all(|line| line.starts_with("error: ")) && said.lines().count() == 3, "{said}");
}

#[test]
fn completions_and_manual_go_to_standard_output() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    for words in [&["completions", "bash"][..], &["completions", "zsh"], &["completions", "fish"], &["man"]] {
        let output = firebrick(folder.path(), words, &[]);
        assert!(output.status.success() && output.stderr.is_empty(), "{words:?}");
        assert!(text(&output.stdout).contains("firebrick"), "{words:?}");
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    for words in [&["--nonsense"][..], &["-w", "-1"], &["nowhere"], &["stats", "--control", "off"]] {
        let output = firebrick(folder.path(), words, &[]);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output.stderr).starts_with("error: "), "{words:?}: {}", text(&output.stderr));
    }
}
