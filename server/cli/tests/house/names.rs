//! Checks that no type has a name that says nothing without its file, and that a public name means one thing.
//!
//! 1. [`VAGUE`] are words that had several meanings in this program, or are not the field's. A type with such
//!    a name is named after what it is instead: `CertificateFacts`, `FrameKind`, `OnDemandOrders`.
//! 2. [`KNOWN`] lists those that exist, by crate. It is exact: one that is renamed leaves the list.
//! 3. No two crates of the server, the handlers and the worker publish a type of one name: a reader of one
//!    request's life crosses their borders. Such types are named after what they are: `RedisClient`,
//!    `TrustStore`. [`PUBLISHED_TWICE`] lists the exceptions, exactly. The measuring half is not compared,
//!    because it meets the server only over HTTP.
//! 4. Tests may name their types as they like.

use crate::workspace::{before_tests, sources};
use std::collections::{BTreeMap, BTreeSet};

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

/// Names that several crates publish, and why.
const PUBLISHED_TWICE: &[(&str, &str)] = &[
    // Every protocol has its own, written with the crate.
    ("Connection", "net, http, http2"),
    ("Encoder", "wire, http3"),
    ("Error", "one for each crate with errors of its own"),
    ("Event", "http2, http3"),
    ("RequestHead", "as parsed by h1, and by fieldcode for HTTP/2 and HTTP/3"),
    // Frames between front and worker, written as `wire::request::Body`, and the thing that they carry.
    ("Body", "wire, handler"),
    ("Hello", "the first message of wire, and of tls"),
    ("Request", "wire, handler"),
    ("Response", "wire, handler"),
    ("Trace", "the backtrace of wire, and the course of a request in handler"),
    // A setting, and the part that it configures.
    ("AccessLog", "settings, front"),
    ("Allocator", "settings, allocator"),
    ("Command", "settings describes it, cli parses it; workers has the orders of the front"),
    ("Options", "settings, workers"),
    ("Site", "settings, site"),
    // The same thing on two floors.
    ("Fault", "stats counts what handler names"),
    // Not yet named apart.
    ("Cache", "the cache of responses, and a protocol's cache in handler"),
    ("Counts", "stats, cache"),
    ("Figures", "the table of stats, and the figures of a worker"),
    ("Health", "a server's in stats, an origin's in handler, a worker's in workers"),
    ("Kept", "a response of the cache, and a body in handler"),
    ("Limits", "http2, workers"),
    ("Origin", "proxy, cache"),
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
fn a_public_name_means_one_thing() {
    let mut publishers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, file) in sources() {
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if file.to_string_lossy().contains("/measure/") || stem == "tests" || stem.ends_with("_tests") {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("a source");
        let public: Vec<&str> = before_tests(&text).lines().filter(|line| line.starts_with("pub ")).collect();
        for one in types(&public.join("\n")) {
            publishers.entry(one.to_owned()).or_default().insert(name.clone());
        }
    }
    publishers.retain(|_, crates| crates.len() > 1);
    let known: BTreeMap<&str, &str> = PUBLISHED_TWICE.iter().copied().collect();
    let new: Vec<_> = publishers.iter().filter(|(name, _)| !known.contains_key(&***name)).collect();
    assert!(new.is_empty(), "name these types after what they are: {new:?}");
    let gone: Vec<_> = known.keys().filter(|name| !publishers.contains_key(**name)).collect();
    assert!(gone.is_empty(), "take these out of PUBLISHED_TWICE, one crate alone has them: {gone:?}");
}

#[test]
fn definitions_are_found() {
    let text = "pub(crate) struct Kind<T> {\n    pub enum Seen;\ntype Place = u8;\nstructure Door\n// struct Board\nfn struct_Mark() {}\n#[cfg(test)]\nmod tests {\n    struct Found;\n}";
    assert_eq!(types(text).collect::<Vec<_>>(), ["Kind", "Seen", "Place"]);
}
