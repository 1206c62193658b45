//! Decides which files of the app the front serves: those that its middleware would send, and those that the operator configures.
//!
//! Contract: the set of files changes together with the code of the app that declared it, never earlier.

use settings::{ServePublic, Settings};
use site::{AppFiles, FilesNote, Wanted};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;

/// How to have files served that the app sends itself.
const REMEDY: &str = "set `files.public = \"always\"` to serve them anyway";

/// The files that front threads serve, replaced when other code goes into service.
pub(crate) struct Public {
    files: watch::Sender<Arc<AppFiles>>,
}

impl Public {
    pub(crate) fn new() -> Public {
        Public { files: watch::Sender::default() }
    }

    /// Watches the set of files.
    pub(crate) fn watch(&self) -> watch::Receiver<Arc<AppFiles>> {
        self.files.subscribe()
    }

    /// Puts the files that an app has declared in force. Returns notes about surprising results, if the set has changed.
    pub(crate) fn replace(&self, settings: &Settings, told: &[String]) -> Vec<String> {
        let (files, notes) = plan(settings, told);
        let changed = self.files.send_if_modified(|current| {
            let changed = **current != files;
            *current = Arc::new(files);
            changed
        });
        if changed { notes.iter().filter_map(odd).collect() } else { Vec::new() }
    }
}

/// Returns the files to serve, and the reason for each.
fn plan(settings: &Settings, told: &[String]) -> (AppFiles, Vec<FilesNote>) {
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
    plan(settings, told).1.iter().filter_map(odd).collect()
}

/// Returns the lines for `firebrick check`: where files come from, and broken links.
pub(crate) fn lines(settings: &Settings, told: &[String]) -> Vec<String> {
    let (files, notes) = plan(settings, told);
    let mut lines: Vec<String> = notes.iter().filter_map(|note| odd(note).or_else(|| usual(note))).collect();
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
fn odd(note: &FilesNote) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|&line| line.to_owned()).collect()
    }

    #[test]
    fn the_answer_of_a_new_release_replaces_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = Settings::defaults(dir.path());
        settings.files.public = Some(dir.path().to_owned());
        let public = Public::new();
        let served = |public: &Public| public.watch().borrow().roots().count();
        let open = told(&["mount\t", &format!("rule\tRack::Static\t{}", dir.path().display())]);
        assert!(public.replace(&settings, &open).is_empty());
        assert_eq!(served(&public), 1);
        let guarded = [open, told(&["behind\tRack::Auth::Basic"])].concat();
        let notes = public.replace(&settings, &guarded);
        assert!(notes[0].contains("Rack::Auth::Basic comes before Rack::Static"), "{notes:?}");
        assert_eq!(served(&public), 0);
        assert!(public.replace(&settings, &guarded).is_empty(), "it is said once");
        settings.files.serve = ServePublic::Always;
        public.replace(&settings, &guarded);
        assert_eq!(served(&public), 1);
        settings.files.public = None;
        public.replace(&settings, &guarded);
        assert_eq!(served(&public), 0);
    }
}
