//! Reads the section "Code map" of ARCHITECTURE.md: a block of layers (a label, then crates; upper layers use lower ones), and a table with the
//! columns crate, what it is, may use, used by.

use std::collections::BTreeSet;

/// The mark after a crate that only tests use.
pub const IN_TESTS: &str = " (tests)";

/// The contents of the section.
pub struct Map {
    /// The crates of each layer, the top layer first.
    pub layers: Vec<Vec<String>>,
    /// The rows of the table in order.
    pub rows: Vec<Row>,
}

pub struct Row {
    /// The crate's folder, without `crates/`.
    pub name: String,
    /// The third column. Dependencies of tests alone end in [`IN_TESTS`].
    pub may_use: BTreeSet<String>,
    /// The fourth column as written.
    pub used_by: String,
}

impl Map {
    /// Reads the section in `document`. Lines outside of block and table are prose.
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

    /// Returns the fourth column for the crate `name`: the crates that may use it, in the table's order.
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

    /// Returns `document` with a correct fourth column in each row.
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

/// Returns the text between the heading "Code map" and the next heading.
fn section(document: &str) -> &str {
    let (_, rest) = document.split_once("\n## Code map\n").expect("a section \"Code map\"");
    rest.split_once("\n## ").map_or(rest, |(section, _)| section)
}

/// Returns the four cells of a crate's row.
fn cells(line: &str) -> Option<[&str; 4]> {
    let row = line.trim_end().strip_prefix("| ")?.strip_suffix(" |")?;
    let cells: Vec<_> = row.split(" | ").collect();
    row.starts_with('`').then(|| cells.try_into().ok())?
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
