//! Checks that the map of crates and the crates agree: the floors in ARCHITECTURE.md and the dependencies in
//! docs/internals/crates.md.
//!
//! 1. Every crate of the workspace stands on one floor and has one row in the table of dependencies, and no
//!    other crate has.
//! 2. A crate depends on exactly the crates that its row names under "may use". Dependencies of tests alone are marked:
//!    `http` (tests).
//! 3. A crate uses crates of lower floors only; so do its tests.
//! 4. A crate uses crates of the folders only that the section "Folders" of ARCHITECTURE.md allows.
//! 5. No type has a name that says nothing without its file, no public name means two things, and comments
//!    are plain English.
//! 6. The column "used by" follows from "may use"; `FIREBRICK_REGENERATE=1 cargo test -p cli --test house` writes it.

mod circles;
mod english;
mod examples;
mod folders;
mod map;
mod names;
mod printing;
mod profiles;
mod workspace;

use map::{IN_TESTS, Map};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use workspace::Dependencies;

const REGENERATE: &str = "FIREBRICK_REGENERATE=1 cargo test -p cli --test house";

/// Lists the differences between the map and the crates: one message each, which names the crate and what to do.
fn faults(map: &Map, crates: &Dependencies) -> Vec<String> {
    let mut faults = Vec::new();
    let rows: BTreeMap<&str, &BTreeSet<String>> =
        map.rows.iter().map(|row| (row.name.as_str(), &row.may_use)).collect();
    let floors: BTreeMap<&str, usize> = map
        .floors
        .iter()
        .enumerate()
        .flat_map(|(height, floor)| floor.iter().map(move |name| (name.as_str(), height)))
        .collect();

    for name in crates.keys() {
        if !rows.contains_key(name.as_str()) {
            faults.push(format!(
                "`{name}` has no row in docs/internals/crates.md: add one that says what it may use"
            ));
        }
        if !floors.contains_key(name.as_str()) {
            faults.push(format!(
                "`{name}` is on no floor of ARCHITECTURE.md: add it above all crates that it uses"
            ));
        }
    }
    for name in rows.keys().chain(floors.keys()).collect::<BTreeSet<_>>() {
        if !crates.contains_key(*name) {
            faults.push(format!("`{name}` is on the map but is no crate of the workspace: take it off"));
        }
    }
    for name in twice(map.rows.iter().map(|row| &row.name)) {
        faults.push(format!("`{name}` has two rows in the table: leave one"));
    }
    for name in twice(map.floors.iter().flatten()) {
        faults.push(format!("`{name}` is on the floors twice: leave it once"));
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
                (floors.get(from.as_str()), floors.get(to.trim_end_matches(IN_TESTS)))
                && upper <= lower
            {
                let to = quoted(to);
                faults.push(format!(
                    "`{from}` ► {to}: a crate may use lower floors only. Remove the dependency, or move one of the two"
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

/// Returns each repetition of a name.
fn twice<'a>(names: impl Iterator<Item = &'a String>) -> Vec<&'a String> {
    let mut seen = BTreeSet::new();
    names.filter(|name| !seen.insert(*name)).collect()
}

/// Returns a crate's name as the table writes it.
fn quoted(name: &str) -> String {
    name.strip_suffix(IN_TESTS).map_or_else(|| format!("`{name}`"), |name| format!("`{name}`{IN_TESTS}"))
}

#[test]
fn the_code_map_is_true() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let table = root.join("docs/internals/crates.md");
    let architecture = std::fs::read_to_string(root.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let dependencies = std::fs::read_to_string(&table).expect("docs/internals/crates.md");
    let mut map = Map::parse(&architecture, &dependencies);
    if std::env::var_os("FIREBRICK_REGENERATE").is_some() {
        let dependencies = map.with_used_by(&dependencies);
        std::fs::write(&table, &dependencies).expect("docs/internals/crates.md can be written");
        map = Map::parse(&architecture, &dependencies);
    }
    let faults = faults(&map, &workspace::crates(&root).0);
    assert!(
        faults.is_empty(),
        "ARCHITECTURE.md, \"Code map\", or docs/internals/crates.md and the crates differ:\n- {}\n",
        faults.join("\n- ")
    );
}

const FLOORS: &str = "
## Code map

| floor | crate | what it does |
|---|---|---|
| ground | `wire` | frames |
| parts | `pool` | the queue |
| middle | `front` | listeners |
| top | `cli` | the command line |

## Decisions
";

const DEPENDENCIES: &str = "
| crate | may use | used by |
|---|---|---|
| `cli` | `front` | - |
| `front` | `pool` | `cli` |
| `pool` | `wire` | `front` |
| `wire` | - | `pool` |
";

/// Returns the faults of a map for these crates, each written as "crate: its dependencies", with a * after
/// dependencies of tests.
fn differences(floors: &str, dependencies: &str, crates: &[&str]) -> Vec<String> {
    let crates = crates.iter().map(|line| {
        let (name, used) = line.split_once(':').expect("a colon");
        (name.to_owned(), used.split_whitespace().map(|used| used.replace('*', IN_TESTS)).collect())
    });
    faults(&Map::parse(floors, dependencies), &crates.collect())
}

#[test]
fn an_arrow_between_two_crates_of_a_floor_is_a_fault() {
    let floors = FLOORS.replace("| middle | `front`", "| | `front`");
    let faults = differences(&floors, DEPENDENCIES, &["cli: front", "front: pool", "pool: wire", "wire:"]);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("`front` ► `pool`: a crate may use lower floors only"), "{faults:?}");
}

#[test]
fn an_arrow_that_points_up_is_a_fault() {
    let floors = FLOORS.replace("`wire`", "`x`").replace("`cli`", "`wire`").replace("`x`", "`cli`");
    let faults = differences(&floors, DEPENDENCIES, &["cli: front", "front: pool", "pool: wire", "wire:"]);
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(faults[0].starts_with("`cli` ► `front`: a crate may use lower floors only"), "{faults:?}");
    assert!(faults[1].starts_with("`pool` ► `wire`: a crate may use lower floors only"), "{faults:?}");
}

#[test]
fn an_arrow_that_is_not_drawn_is_a_fault() {
    assert_eq!(
        differences(FLOORS, DEPENDENCIES, &["cli: front", "front: pool", "pool: wire", "wire:"]),
        Vec::<String>::new()
    );
    let faults =
        differences(FLOORS, DEPENDENCIES, &["cli: front wire", "front: pool", "pool: wire", "wire:"]);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("`cli` ► `wire`: cli's Cargo.toml has this dependency"), "{faults:?}");
}

#[test]
fn what_tests_use_is_drawn_as_such() {
    let crates = ["cli: front wire*", "front: pool", "pool: wire", "wire:"];
    let faults = differences(FLOORS, DEPENDENCIES, &crates);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("`cli` ► `wire` (tests): cli's Cargo.toml has this"), "{faults:?}");

    let dependencies = DEPENDENCIES.replace("`front` | - |", "`front`, `wire` (tests) | - |");
    let dependencies = Map::parse(FLOORS, &dependencies).with_used_by(&dependencies);
    assert!(dependencies.contains("| `wire` | - | `cli` (tests), `pool` |"), "{dependencies}");
    assert_eq!(differences(FLOORS, &dependencies, &crates), Vec::<String>::new());
    let crates = ["cli: front wire", "front: pool", "pool: wire", "wire:"];
    let faults = differences(FLOORS, &dependencies, &crates);
    assert_eq!(
        faults.len(),
        2,
        "the use outside of tests is not drawn, the one in tests is gone: {faults:?}"
    );
}

#[test]
fn a_drawn_arrow_that_does_not_exist_is_a_fault() {
    let faults = differences(FLOORS, DEPENDENCIES, &["cli: front", "front: pool", "pool:", "wire:"]);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("`pool` ► `wire`: the map draws it"), "{faults:?}");
}

#[test]
fn crates_that_are_missing_on_either_side_are_faults() {
    let faults = differences(FLOORS, DEPENDENCIES, &["cli: front", "front: pool", "pool:", "net:"]);
    let begins = [
        "`net` has no row",
        "`net` is on no floor",
        "`wire` is on the map",
        "`pool` ► `wire`: the map draws it",
    ];
    assert_eq!(faults.len(), begins.len(), "{faults:?}");
    assert!(faults.iter().zip(begins).all(|(fault, begin)| fault.starts_with(begin)), "{faults:?}");
}

#[test]
fn the_column_used_by_is_written_from_the_other() {
    let old = DEPENDENCIES.replace("| `wire` | - | `pool` |", "| `wire` | - | `cli`, `front` |");
    let faults = differences(FLOORS, &old, &["cli: front", "front: pool", "pool: wire", "wire:"]);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].starts_with("`wire`: \"used by\" should be `pool`."), "{faults:?}");
    assert_eq!(Map::parse(FLOORS, &old).with_used_by(&old), DEPENDENCIES);
}
