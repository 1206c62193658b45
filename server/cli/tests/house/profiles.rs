//! Compares two lists of optimization levels in the workspace's Cargo.toml: each crate in the list of the
//! `release` profile must also be in the list of the `dist` profile, with which packages are built.

use std::collections::BTreeSet;
use std::path::Path;

/// Returns the crates to which a section of Cargo.toml gives an `opt-level`.
fn listed<'a>(manifest: &'a str, section: &str) -> BTreeSet<&'a str> {
    let (_, rest) =
        manifest.split_once(section).unwrap_or_else(|| panic!("Cargo.toml has no section {section}"));
    let lines = rest.lines().take_while(|line| !line.starts_with('['));
    lines.filter_map(|line| line.split_once(".opt-level = ")).map(|(name, _)| name).collect()
}

#[test]
fn packages_say_how_they_compile_what_everyday_builds_do_not_optimise() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).expect("the workspace has a Cargo.toml");
    let everyday = listed(&manifest, "\n[profile.release.package]\n");
    let packed = listed(&manifest, "\n[profile.dist.package]\n");
    assert!(
        everyday.contains("certs") && packed.contains("certs"),
        "the lists are read: {everyday:?} {packed:?}"
    );
    let missing: Vec<_> = everyday.difference(&packed).collect();
    assert!(
        missing.is_empty(),
        "add to [profile.dist.package] of Cargo.toml, or packages have the everyday level: {missing:?}"
    );
}
