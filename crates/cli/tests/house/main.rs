//! Tests that ARCHITECTURE.md's code map and the crates agree.
//!
//! 1. Every crate of the workspace has one row in the table and one place in the layers, and no other crate does.
//! 2. A crate depends on exactly the crates that its row names under "may use". Dependencies of tests alone are marked: `http` (tests).
//! 3. A crate uses crates of lower layers only; so do its tests.
//! 4. The column "used by" follows from "may use"; `FIREBRICK_REGENERATE=1 cargo test -p cli --test house` writes it.

mod examples;
mod map;
mod printing;
mod profiles;
mod workspace;

use map::{IN_TESTS, Map};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use workspace::Dependencies;

const REGENERATE: &str = "FIREBRICK_REGENERATE=1 cargo test -p cli --test house";

/// Returns the differences between the code map and the crates: one message each, which names the crate and the remedy.
fn faults(map: &Map, crates: &Dependencies) -> Vec<String> {
    let mut faults = Vec::new();
    let rows: BTreeMap<&str, &BTreeSet<String>> =
        map.rows.iter().map(|row| (row.name.as_str(), &row.may_use)).collect();
    let layers: BTreeMap<&str, usize> = map
        .layers
        .iter()
        .enumerate()
        .flat_map(|(depth, layer)| layer.iter().map(move |name| (name.as_str(), depth)))
        .collect();

    for name in crates.keys() {
        if !rows.contains_key(name.as_str()) {
            faults.push(format!(
                "`{name}` has no row in the table: add one that says what it is and what it may use"
            ));
        }
        if !layers.contains_key(name.as_str()) {
            faults.push(format!("`{name}` is in none of the layers: add it above all crates that it uses"));
        }
    }
    for name in rows.keys().chain(layers.keys()).collect::<BTreeSet<_>>() {
        if !crates.contains_key(*name) {
            faults.push(format!("`{name}` is on the map but is no crate of the workspace: take it off"));
        }
    }
    for name in twice(map.rows.iter().map(|row| &row.name)) {
        faults.push(format!("`{name}` has two rows in the table: leave one"));
    }
    for name in twice(map.layers.iter().flatten()) {
        faults.push(format!("`{name}` is twice in the layers: leave it once"));
    }

    for (from, used) in crates {
        let Some(may_use) = rows.get(from.as_str()) else { continue };
        for to in used.difference(may_use) {
            let to = quoted(to);
            faults.push(format!(
                "`{from}` ► {to}: {from}'s Cargo.toml has this dependency, and the map does not draw it. Remove the \
                 dependency; or, if it is meant, add {to} to what `{from}` may use and give the reason in the commit"
            ));
        }
        for to in may_use.difference(used) {
            let to = quoted(to);
            faults.push(format!(
                "`{from}` ► {to}: the map draws it, and {from}'s Cargo.toml has no such dependency. Remove {to} from \
                 what `{from}` may use"
            ));
        }
        for to in used {
            if let (Some(upper), Some(lower)) =
                (layers.get(from.as_str()), layers.get(to.trim_end_matches(IN_TESTS)))
                && upper >= lower
            {
                let to = quoted(to);
                faults.push(format!(
                    "`{from}` ► {to}: a crate may use lower layers only. Remove the dependency, or move one of the two"
                ));
            }
        }
    }
    for row in &map.rows {
        let used_by = map.used_by(&row.name);
        if row.used_by != used_by {
            faults.push(format!(
                "`{}`: \"used by\" should be {used_by}. Write the column with {REGENERATE}",
                row.name
            ));
        }
    }
    faults
}

/// Returns the names that occur more than once, one for each repetition.
fn twice<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a String> {
    let mut seen = BTreeSet::new();
    names.filter(|name| !seen.insert(*name)).collect()
}

/// Returns a crate's name in the form of the table.
fn quoted(name: &str) -> String {
    name.strip_suffix(IN_TESTS).map_or_else(|| format!("`{name}`"), |name| format!("`{name}`{IN_TESTS}"))
}

#[test]
fn the_code_map_is_true() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = root.join("ARCHITECTURE.md");
    let text = std::fs::read_to_string(&document).expect("ARCHITECTURE.md");
    let mut map = Map::parse(&text);
    if std::env::var_os("FIREBRICK_REGENERATE").is_some() {
        let text = map.with_used_by(&text);
        std::fs::write(&document, &text).expect("ARCHITECTURE.md can be written");
        map = Map::parse(&text);
    }
    let faults = faults(&map, &workspace::dependencies(&root));
    assert!(
        faults.is_empty(),
        "ARCHITECTURE.md, \"Code map\", and the crates differ:\n- {}\n",
        faults.join("\n- ")
    );
}

const HOUSE: &str = "
## Code map

    top       cli
    middle    front
    parts     pool
    ground    wire

| crate | what it is | may use | used by |
|---|---|---|---|
| `cli` | what people type | `front` | - |
| `front` | listeners | `pool` | `cli` |
| `pool` | the queue | `wire` | `front` |
| `wire` | frames | - | `pool` |

## Decisions
";

/// Returns the faults of `house` for these crates, each written as "crate: its dependencies", with a * after dependencies of tests.
fn differences(house: &str, crates: &[&str]) -> Vec<String> {
    let crates = crates.iter().map(|line| {
        let (name, used) = line.split_once(':').expect("a colon");
        (name.to_owned(), used.split_whitespace().map(|used| used.replace('*', IN_TESTS)).collect())
    });
    faults(&Map::parse(house), &crates.collect())
}

#[test]
fn an_arrow_between_two_crates_of_a_layer_is_a_fault() {
    let house = HOUSE.replace("front\n    parts     pool", "front  pool");
    let faults = differences(&house, &["cli: front", "front: pool", "pool: wire", "wire:"]);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("`front` ► `pool`: a crate may use lower layers only"), "{faults:?}");
}

#[test]
fn an_arrow_that_is_not_drawn_is_a_fault() {
    assert_eq!(
        differences(HOUSE, &["cli: front", "front: pool", "pool: wire", "wire:"]),
        Vec::<String>::new()
    );
    let faults = differences(HOUSE, &["cli: front wire", "front: pool", "pool: wire", "wire:"]);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("`cli` ► `wire`: cli's Cargo.toml has this dependency"), "{faults:?}");
}

#[test]
fn what_tests_use_is_drawn_as_such() {
    let crates = ["cli: front wire*", "front: pool", "pool: wire", "wire:"];
    let faults = differences(HOUSE, &crates);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("`cli` ► `wire` (tests): cli's Cargo.toml has this"), "{faults:?}");

    let house = HOUSE.replace("`front` | - |", "`front`, `wire` (tests) | - |");
    let house = Map::parse(&house).with_used_by(&house);
    assert!(house.contains("| `wire` | frames | - | `cli` (tests), `pool` |"), "{house}");
    assert_eq!(differences(&house, &crates), Vec::<String>::new());
    let faults = differences(&house, &["cli: front wire", "front: pool", "pool: wire", "wire:"]);
    assert_eq!(
        faults.len(),
        2,
        "the use outside of tests is not drawn, the one in tests is gone: {faults:?}"
    );
}

#[test]
fn a_drawn_arrow_that_does_not_exist_is_a_fault() {
    let faults = differences(HOUSE, &["cli: front", "front: pool", "pool:", "wire:"]);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("`pool` ► `wire`: the map draws it"), "{faults:?}");
}

#[test]
fn crates_that_are_missing_on_either_side_are_faults() {
    let faults = differences(HOUSE, &["cli: front", "front: pool", "pool:", "net:"]);
    let begins =
        ["`net` has no row", "`net` is in none", "`wire` is on the map", "`pool` ► `wire`: the map draws it"];
    assert_eq!(faults.len(), begins.len(), "{faults:?}");
    assert!(faults.iter().zip(begins).all(|(fault, begin)| fault.starts_with(begin)), "{faults:?}");
}

#[test]
fn the_column_used_by_is_written_from_the_other() {
    let old = HOUSE.replace("| `wire` | frames | - | `pool` |", "| `wire` | frames | - | `cli`, `front` |");
    let faults = differences(&old, &["cli: front", "front: pool", "pool: wire", "wire:"]);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("`wire`: \"used by\" should be `pool`."), "{faults:?}");
    assert_eq!(Map::parse(&old).with_used_by(&old), HOUSE);
}
