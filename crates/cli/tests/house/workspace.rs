//! Reads the crates of the workspace and their dependencies from `cargo metadata`.

use crate::map::IN_TESTS;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Each crate of the workspace with its dependencies in the workspace; dependencies of tests alone end in [`IN_TESTS`].
pub type Dependencies = BTreeMap<String, BTreeSet<String>>;

/// Reads the metadata of the workspace in `root`. Crates are named after their folders, because a package may need another name (`http` is taken on
/// crates.io).
pub fn dependencies(root: &Path) -> Dependencies {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--no-deps", "--locked", "--offline"])
        .current_dir(root)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON of cargo metadata");

    let root = Path::new(text(&metadata["workspace_root"]));
    let folder = |path: &Path| {
        let path = path.strip_prefix(root).expect("a crate inside the workspace");
        path.strip_prefix("crates").unwrap_or(path).to_string_lossy().into_owned()
    };
    let packages = list(&metadata["packages"]).iter().map(|package| {
        let manifest = Path::new(text(&package["manifest_path"]));
        let (mut used, mut tested) = (BTreeSet::new(), BTreeSet::new());
        for dependency in list(&package["dependencies"]) {
            let Some(path) = dependency["path"].as_str() else { continue };
            let crates = if dependency["kind"] == "dev" { &mut tested } else { &mut used };
            crates.insert(folder(Path::new(path)));
        }
        let tested: Vec<_> = tested.difference(&used).map(|name| format!("{name}{IN_TESTS}")).collect();
        used.extend(tested);
        (folder(manifest.parent().expect("a folder")), used)
    });
    packages.collect()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text in cargo's metadata")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list in cargo's metadata")
}
