//! The map of crates: the floors are the section "Code map" of ARCHITECTURE.md, a table with the columns
//! floor, crate, what it does (the lowest floor first; an empty first cell means the floor of the row above).
//! The dependencies are the table in docs/internals/crates.md, with the columns crate, may use, used by.

use std::collections::BTreeSet;

/// The mark behind the name of a crate that only tests use.
pub const IN_TESTS: &str = " (tests)";

/// The contents of the two documents.
pub struct Map {
    /// The crates of each floor, the lowest floor first.
    pub floors: Vec<Vec<String>>,
    /// The rows of the table of dependencies, in order.
    pub rows: Vec<Row>,
}

/// A row of the table of dependencies.
pub struct Row {
    /// The last part of the crate's folder.
    pub name: String,
    /// The second column. Dependencies of tests alone end in [`IN_TESTS`].
    pub may_use: BTreeSet<String>,
    /// The third column, as it is written.
    pub used_by: String,
}

impl Map {
    /// Reads the floors in `architecture` and the table in `dependencies`. All other lines are prose.
    pub fn parse(architecture: &str, dependencies: &str) -> Self {
        let mut map = Self { floors: Vec::new(), rows: Vec::new() };
        for line in section(architecture).lines() {
            if let Some([floor, name, _]) = cells(line)
                && name.starts_with('`')
            {
                if !floor.is_empty() || map.floors.is_empty() {
                    map.floors.push(Vec::new());
                }
                map.floors.last_mut().expect("a floor").extend(names(name));
            }
        }
        for line in dependencies.lines() {
            if let Some([name, may_use, used_by]) = dependency(line) {
                map.rows.push(Row {
                    name: names(name).concat(),
                    may_use: names(may_use).into_iter().collect(),
                    used_by: used_by.to_owned(),
                });
            }
        }
        map
    }

    /// Returns the third column of the crate `name`: the crates that may use it, in the table's order.
    pub fn used_by(&self, name: &str) -> String {
        let tested = format!("{name}{IN_TESTS}");
        let users = self.rows.iter().filter_map(|row| {
            let in_tests = if row.may_use.contains(&tested) { IN_TESTS } else { "" };
            let uses = row.may_use.contains(name) || !in_tests.is_empty();
            uses.then(|| format!("`{}`{in_tests}", row.name))
        });
        let users: Vec<_> = users.collect();
        if users.is_empty() { "-".to_owned() } else { users.join(", ") }
    }

    /// Returns `dependencies` with the third column of each row as it should be.
    pub fn with_used_by(&self, dependencies: &str) -> String {
        let lines = dependencies.split_inclusive('\n').map(|line| match dependency(line) {
            Some([name, may_use, _]) => {
                format!("| {name} | {may_use} | {} |\n", self.used_by(&names(name).concat()))
            }
            None => line.to_owned(),
        });
        lines.collect()
    }
}

/// Returns the text between the heading "Code map" and the next heading.
fn section(document: &str) -> &str {
    let (_, rest) = document.split_once("\n## Code map\n").expect("a section \"Code map\"");
    rest.split_once("\n## ").map_or(rest, |(section, _)| section)
}

/// Returns the three cells of a row of a table.
fn cells(line: &str) -> Option<[&str; 3]> {
    let row = line.trim_end().strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<_> = row.split('|').map(str::trim).collect();
    cells.try_into().ok()
}

/// Returns the cells of a row of the table of dependencies.
fn dependency(line: &str) -> Option<[&str; 3]> {
    cells(line).filter(|[name, _, _]| name.starts_with('`'))
}

/// Returns the names in backticks, each with its mark for tests if that follows.
fn names(cell: &str) -> Vec<String> {
    let mut parts = cell.split('`').skip(1);
    let mut names = Vec::new();
    while let (Some(name), Some(behind)) = (parts.next(), parts.next()) {
        let mark = if behind.starts_with(IN_TESTS) { IN_TESTS } else { "" };
        names.push(format!("{name}{mark}"));
    }
    names
}
