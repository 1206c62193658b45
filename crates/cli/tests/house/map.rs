//! ARCHITECTURE.md's section "Code map": a block of layers (a label, then crates; the upper ones use the lower ones),
//! and a table with the columns crate, what it is, may use, used by.

use std::collections::BTreeSet;

/// Follows the name of a crate that is used by tests only.
pub const IN_TESTS: &str = " (tests)";

/// What the section says.
pub struct Map {
    /// The crates of each layer, the top layer first.
    pub layers: Vec<Vec<String>>,
    /// One for each row of the table, in its order.
    pub rows: Vec<Row>,
}

/// A row of the table.
pub struct Row {
    /// The crate's folder, without `crates/`.
    pub name: String,
    /// The third column. What only the crate's tests use ends in [`IN_TESTS`].
    pub may_use: BTreeSet<String>,
    /// The fourth column, as it is written.
    pub used_by: String,
}

impl Map {
    /// Reads the section in `document`. Lines that belong to neither block nor table are prose.
    pub fn parse(document: &str) -> Self {
        let mut map = Self { layers: Vec::new(), rows: Vec::new() };
        for line in section(document).lines() {
            if let Some(layer) = line.strip_prefix("    ") {
                map.layers.push(layer.split_whitespace().skip(1).map(str::to_owned).collect());
            } else if let Some([name, _, may_use, used_by]) = cells(line) {
                map.rows.push(Row {
                    name: names(name).concat(),
                    may_use: names(may_use).into_iter().collect(),
                    used_by: used_by.to_owned(),
                });
            }
        }
        map
    }

    /// The fourth column of the crate `name`: the crates that may use it, in the table's order.
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

    /// `document` with the fourth column of each row as it should be.
    pub fn with_used_by(&self, document: &str) -> String {
        let old = section(document);
        let lines = old.split_inclusive('\n').map(|line| match cells(line) {
            Some([name, what, may_use, _]) => {
                format!("| {name} | {what} | {may_use} | {} |\n", self.used_by(&names(name).concat()))
            }
            None => line.to_owned(),
        });
        document.replacen(old, &lines.collect::<String>(), 1)
    }
}

/// What stands between the heading "Code map" and the next one.
fn section(document: &str) -> &str {
    let (_, rest) = document.split_once("\n## Code map\n").expect("a section \"Code map\"");
    rest.split_once("\n## ").map_or(rest, |(section, _)| section)
}

/// The four cells of a row that is about a crate.
fn cells(line: &str) -> Option<[&str; 4]> {
    let row = line.trim_end().strip_prefix("| ")?.strip_suffix(" |")?;
    let cells: Vec<_> = row.split(" | ").collect();
    row.starts_with('`').then(|| cells.try_into().ok())?
}

/// The names in backticks, each with the mark that it is for tests only, if that follows.
fn names(cell: &str) -> Vec<String> {
    let mut parts = cell.split('`').skip(1);
    let mut names = Vec::new();
    while let (Some(name), Some(behind)) = (parts.next(), parts.next()) {
        let mark = if behind.starts_with(IN_TESTS) { IN_TESTS } else { "" };
        names.push(format!("{name}{mark}"));
    }
    names
}
