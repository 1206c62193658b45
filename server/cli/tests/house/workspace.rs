//! Reads the crates of the workspace and their dependencies from `cargo metadata`.

use crate::map::IN_TESTS;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each crate of the workspace with its dependencies in the workspace; dependencies of tests alone end in [`IN_TESTS`].
pub type Dependencies = BTreeMap<String, BTreeSet<String>>;

/// The crates with a folder of each, relative to the root.
pub type Folders = BTreeMap<String, PathBuf>;

/// Reads the metadata of the workspace in `root`. Crates are named after the last part of their folders,
/// because a package may need another name (`http` is taken on crates.io); the worker is `worker/native`.
pub fn crates(root: &Path) -> (Dependencies, Folders) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--locked", "--offline"])
        .current_dir(root)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON of cargo metadata");

    let root = Path::new(text(&metadata["workspace_root"]));
    let folder = |path: &Path| path.strip_prefix(root).expect("a crate inside the workspace").to_owned();
    let name = |path: &Path| {
        let path = folder(path);
        let name =
            if path.starts_with("worker") { path.as_os_str() } else { path.file_name().expect("a folder") };
        name.to_string_lossy().into_owned()
    };
    let mut folders = Folders::new();
    let packages = list(&metadata["packages"]).iter().map(|package| {
        let manifest = Path::new(text(&package["manifest_path"]));
        let (mut used, mut tested) = (BTreeSet::new(), BTreeSet::new());
        for dependency in list(&package["dependencies"]) {
            let Some(path) = dependency["path"].as_str() else { continue };
            let crates = if dependency["kind"] == "dev" { &mut tested } else { &mut used };
            crates.insert(name(Path::new(path)));
        }
        let tested: Vec<_> = tested.difference(&used).map(|name| format!("{name}{IN_TESTS}")).collect();
        used.extend(tested);
        let path = manifest.parent().expect("a folder");
        folders.insert(name(path), folder(path));
        (name(path), used)
    });
    (packages.collect(), folders)
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text in cargo's metadata")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list in cargo's metadata")
}

/// Returns the sources of all crates, each with the name of its crate.
pub fn sources() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = crates(&root).1.into_iter();
    let all = |(name, folder): (String, PathBuf)| {
        let files = rust_files(&root.join(folder).join("src")).into_iter();
        files.map(move |file| (name.clone(), file)).collect::<Vec<_>>()
    };
    folders.flat_map(all).collect()
}

/// Returns the Rust files below a folder.
pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    files(folder, &["rs"])
}

/// Returns the files below a folder whose names end in one of these, except what a build has made.
pub fn files(folder: &Path, ends: &[&str]) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder of sources");
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    paths
        .flat_map(|path| match path.extension().and_then(|end| end.to_str()) {
            _ if path.ends_with("target") => Vec::new(),
            _ if path.is_dir() => files(&path, ends),
            Some(end) if ends.contains(&end) => vec![path],
            _ => Vec::new(),
        })
        .collect()
}

/// Returns the part of a source before the heading of its tests.
pub fn before_tests(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}
