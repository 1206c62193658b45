//! The profiles of Firefox. Each has its own database.

use std::path::Path;

use super::LocalMachine;
use super::nss::Database;

/// Directories of profiles, below the home directory: of Firefox itself (since 147 also the XDG directory),
/// of its snap and flatpak packages, and of macOS.
const PLACES: [&str; 6] = [
    ".mozilla/firefox",
    ".config/mozilla/firefox",
    "snap/firefox/common/.mozilla/firefox",
    ".var/app/org.mozilla.firefox/.mozilla/firefox",
    ".var/app/org.mozilla.firefox/config/mozilla/firefox",
    "Library/Application Support/Firefox/Profiles",
];

/// Returns the databases of all profiles that have been used.
pub(super) fn profiles(machine: &LocalMachine) -> impl Iterator<Item = Database> {
    let mut found: Vec<Database> =
        PLACES.iter().flat_map(|place| inside(&machine.home.join(place))).collect();
    found.sort_by(|a, b| a.folder.cmp(&b.folder));
    found.into_iter()
}

fn inside(place: &Path) -> impl Iterator<Item = Database> + use<> {
    let entries = std::fs::read_dir(place).into_iter().flatten().filter_map(Result::ok);
    let used = entries.map(|entry| entry.path()).filter(|folder| folder.join("cert9.db").is_file());
    used.map(|folder| Database { reader: "Firefox".to_owned(), folder })
}
