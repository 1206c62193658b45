//! Decides which files of the app the front serves: the files that its middleware would send, and the files
//! that the operator configures.
//!
//! Contract: pure, except that it compares folders. A [release](crate::release) holds the result.

use settings::{ServePublic, Settings};
use site::{AppFiles, FilesNote, Wanted};
use std::path::Path;

/// How to have files served that the app sends itself.
const REMEDY: &str = "set `files.public = \"always\"` to serve them anyway";

/// Returns the files to serve, and the reason for each.
pub(crate) fn plan(settings: &Settings, told: &[String]) -> (AppFiles, Vec<FilesNote>) {
    // A main site takes precedence over the app's files.
    let Some(dir) = settings.files.public.as_deref().filter(|_| settings.sites.main.is_none()) else {
        return Default::default();
    };
    let wanted = match settings.files.serve {
        ServePublic::Auto => Wanted::Auto(dir),
        ServePublic::Named => Wanted::Named(dir),
        ServePublic::Always => Wanted::Always(dir),
    };
    AppFiles::read(told.iter().map(String::as_str)).settle(wanted, same)
}

/// Whether two paths lead to the same directory.
fn same(one: &Path, other: &Path) -> bool {
    one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Returns the notes for the banner.
pub(crate) fn notes(settings: &Settings, told: &[String]) -> Vec<String> {
    odd(&plan(settings, told).1)
}

/// Describes the surprising results.
pub(crate) fn odd(notes: &[FilesNote]) -> Vec<String> {
    notes.iter().filter_map(surprise).collect()
}

/// Returns the lines for `firebrick check`: where files come from, and broken links.
pub(crate) fn lines(settings: &Settings, told: &[String]) -> Vec<String> {
    let (files, notes) = plan(settings, told);
    let mut lines: Vec<String> =
        notes.iter().filter_map(|note| surprise(note).or_else(|| usual(note))).collect();
    for root in files.roots() {
        lines.extend(site::broken_links(root).into_iter().map(|link| format!("warning: {link}")));
    }
    lines
}

/// Describes an expected result.
fn usual(note: &FilesNote) -> Option<String> {
    match note {
        FilesNote::Sent(root, by) => {
            Some(format!("Files of {} are served as {by} would send them.", root.display()))
        }
        FilesNote::Asked(root) => Some(format!("Files of {} are served.", root.display())),
        _ => None,
    }
}

/// Describes a surprising result.
fn surprise(note: &FilesNote) -> Option<String> {
    match note {
        FilesNote::Sent(root, by) if by.starts_with("config.") => Some(format!(
            "files of {} are served, because the app leaves them to the web server ({by})",
            root.display()
        )),
        FilesNote::Behind(root, by, behind) => Some(format!(
            "the app sends the files of {} itself, because {behind} comes before {by} in the middleware stack; {REMEDY}",
            root.display()
        )),
        FilesNote::Unclear(root, by) => Some(format!(
            "the app sends the files of {} itself: only it can tell what {by} does with them; {REMEDY}",
            root.display()
        )),
        FilesNote::Nobody(root) if root.is_dir() => Some(format!(
            "files of {} are not served, because no middleware of the app sends them; {REMEDY}",
            root.display()
        )),
        FilesNote::Sent(..) | FilesNote::Asked(_) | FilesNote::Nobody(_) => None,
    }
}
