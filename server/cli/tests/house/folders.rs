//! The folders of the workspace are floors, too: the section "Folders" of ARCHITECTURE.md is a table with the
//! columns folder, contents, may use. A crate may use the crates of its own folder, and of those that its row
//! names. An entry of the third column is a folder or one crate's folder. A row for one crate goes before the
//! row of the folder around it.

use crate::workspace::{self, Dependencies, Folders};
use std::path::Path;

/// A row of the table: a folder, and the folders that its crates may use.
struct Row<'a> {
    folder: &'a Path,
    may_use: Vec<&'a Path>,
}

/// Reads the table in `architecture`.
fn rows(architecture: &str) -> Vec<Row<'_>> {
    let (_, rest) = architecture.split_once("\n## Folders\n").expect("a section \"Folders\"");
    let section = rest.split_once("\n## ").map_or(rest, |(section, _)| section);
    let rows = section.lines().filter_map(|line| {
        let cells: Vec<_> = line.strip_prefix("| `")?.split('|').collect();
        let folder = Path::new(cells.first()?.trim().trim_end_matches('`'));
        Some(Row { folder, may_use: cells.get(2)?.split('`').skip(1).step_by(2).map(Path::new).collect() })
    });
    rows.collect()
}

/// Lists the dependencies that no row allows, and the crates outside all folders.
fn faults(rows: &[Row<'_>], crates: &Dependencies, folders: &Folders) -> Vec<String> {
    let mut faults = Vec::new();
    let inside = |path: &Path, folder: &Path| path == folder || path.parent() == Some(folder);
    for (name, used) in crates {
        let Some(row) = rows.iter().find(|row| inside(&folders[name], row.folder)) else {
            faults.push(format!("`{name}` is in none of the folders of ARCHITECTURE.md"));
            continue;
        };
        for to in used.iter().map(|to| to.trim_end_matches(crate::IN_TESTS)) {
            let allowed = |folder: &&Path| inside(&folders[to], folder);
            if !allowed(&row.folder) && !row.may_use.iter().any(allowed) {
                faults.push(format!(
                    "`{name}` ► `{to}`: {} may not use {}",
                    row.folder.display(),
                    folders[to].display()
                ));
            }
        }
    }
    faults
}

#[test]
fn crates_use_the_folders_that_they_may_use() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let architecture = std::fs::read_to_string(root.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let (crates, folders) = workspace::crates(&root);
    let faults = faults(&rows(&architecture), &crates, &folders);
    assert!(
        faults.is_empty(),
        "ARCHITECTURE.md, \"Folders\", and the crates differ:\n- {}\n",
        faults.join("\n- ")
    );
}

#[test]
fn a_dependency_that_no_row_allows_is_a_fault() {
    let table = "\n## Folders\n\n| folder | contents | may use |\n|---|---|---|\n| `a/b` | x | - |\n| `a` | y | `a/b` |\n";
    let folders = Folders::from([("low".into(), "a/b/low".into()), ("high".into(), "a/high".into())]);
    let crates = |from: &str, to: &str| {
        let other = if from == "low" { "high" } else { "low" };
        Dependencies::from([(from.to_owned(), [to.to_owned()].into()), (other.to_owned(), [].into())])
    };
    assert_eq!(faults(&rows(table), &crates("high", "low"), &folders), [""; 0]);
    assert_eq!(
        faults(&rows(table), &crates("low", "high"), &folders),
        ["`low` ► `high`: a/b may not use a/high"]
    );
}
