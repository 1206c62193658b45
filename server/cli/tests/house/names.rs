//! Checks that no type has a name that says nothing without its file.
//!
//! 1. [`VAGUE`] are words that had several meanings in this program, or are not the field's. A type with such a name is named after what it
//!    is instead: `CertificateFacts`, `FrameKind`, `OnDemandOrders`.
//! 2. [`KNOWN`] lists those that exist, by crate. It is exact: one that is renamed leaves the list.
//! 3. Tests may name their types as they like.

use crate::workspace::{before_tests, sources};
use std::collections::BTreeSet;

const VAGUE: &[&str] = &[
    "Asked", "Begun", "Board", "Carried", "Door", "Facts", "Found", "Given", "Held", "Keeper", "Kind",
    "Known", "Life", "Mark", "Marks", "Piece", "Place", "Promised", "Said", "Seen", "Settled", "Taken",
    "Thing", "Turned", "Ward", "Way", "Wish",
];

/// The folder of a crate's sources, and the type.
const KNOWN: &[(&str, &str)] = &[
    // A waiting client's place in a queue; the place of a worker in its process; the wish of the reconciler.
    ("auth", "Place"),
    ("worker/native", "Place"),
    ("workers", "Wish"),
];

/// Returns the names of the types that a source defines before its tests.
fn types(text: &str) -> impl Iterator<Item = &str> {
    before_tests(text).lines().filter_map(|line| {
        let line = line.trim_start();
        let line = match line.strip_prefix("pub") {
            Some(rest) => rest.trim_start_matches(|c| c != ' ').trim_start(),
            None => line,
        };
        let name = ["struct ", "enum ", "trait ", "type ", "union "]
            .iter()
            .find_map(|word| line.strip_prefix(word))?;
        name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
    })
}

#[test]
fn types_are_named_after_what_they_are() {
    let mut found = BTreeSet::new();
    for (name, file) in sources() {
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if stem == "tests" || stem.ends_with("_tests") {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("a source");
        found
            .extend(types(&text).filter(|one| VAGUE.contains(one)).map(|one| (name.clone(), one.to_owned())));
    }
    let known: BTreeSet<(String, String)> =
        KNOWN.iter().map(|(name, one)| ((*name).to_owned(), (*one).to_owned())).collect();
    let new: Vec<_> = found.difference(&known).collect();
    assert!(new.is_empty(), "name these types after what they are: {new:?}");
    let gone: Vec<_> = known.difference(&found).collect();
    assert!(gone.is_empty(), "take these out of KNOWN, they are renamed: {gone:?}");
}

#[test]
fn definitions_are_found() {
    let text = "pub(crate) struct Kind<T> {\n    pub enum Seen;\ntype Place = u8;\nstructure Door\n// struct Board\nfn struct_Mark() {}\n#[cfg(test)]\nmod tests {\n    struct Found;\n}";
    assert_eq!(types(text).collect::<Vec<_>>(), ["Kind", "Seen", "Place"]);
}
