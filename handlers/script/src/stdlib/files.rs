//! `require`: Ruby files beside the handlers.
//!
//! Contract: a file is read only if, with all links resolved, it is below the folder of a handler. The files
//! that have been read are recorded for the whole process, so that they can be watched.

use mruby::{Tape, TapeValue};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

static READ: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Returns the files that handlers have required so far, in all threads.
pub fn required() -> Vec<PathBuf> {
    READ.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
}

#[derive(Default)]
pub(crate) struct Folders(RefCell<Vec<PathBuf>>);

impl Folders {
    /// Allows the folder of a handler's file.
    pub(crate) fn add(&self, file: &Path) {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if let Ok(folder) = folder.canonicalize() {
            let mut folders = self.0.borrow_mut();
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
    }
}

pub(super) fn folders(folders: &Folders, tape: &mut Tape) {
    let folders = folders.0.borrow();
    tape.array(folders.len() as u32);
    for folder in folders.iter() {
        tape.str(folder.to_string_lossy().as_bytes());
    }
}

/// `name, [folders]`: returns `[path, code]` of the first file that exists.
pub(super) fn read(allowed: &Folders, args: &[TapeValue<'_>], tape: &mut Tape) {
    let text = |value: &TapeValue<'_>| String::from_utf8_lossy(value.text().unwrap_or_default()).into_owned();
    let name = args.first().map(text).unwrap_or_default();
    let places = args.get(1).and_then(TapeValue::array).unwrap_or_default().iter().map(text);
    match find(&allowed.0.borrow(), &name, places) {
        Ok((path, code)) => {
            READ.lock().unwrap_or_else(PoisonError::into_inner).insert(path.clone());
            tape.array(2).str(path.to_string_lossy().as_bytes()).str(&code);
        }
        Err(why) => {
            tape.fault("LoadError", why);
        }
    }
}

fn find(
    allowed: &[PathBuf],
    name: &str,
    places: impl Iterator<Item = String>,
) -> Result<(PathBuf, String), String> {
    let name = if name.ends_with(".rb") { name.to_owned() } else { format!("{name}.rb") };
    for place in places {
        let Ok(path) = Path::new(&place).join(&name).canonicalize() else { continue };
        if !allowed.iter().any(|folder| path.starts_with(folder)) {
            return Err(format!(
                "{}: only files below the folder of a handler can be required",
                path.display()
            ));
        }
        let code = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        return Ok((path, code));
    }
    let folders: Vec<String> = allowed.iter().map(|folder| folder.display().to_string()).collect();
    Err(format!(
        "cannot load such file -- {name} (looked below {}; gems and C extensions do not work on mruby)",
        folders.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_below_the_folders_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("app");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(inside.join("a.rb"), "1").unwrap();
        std::fs::write(dir.path().join("b.rb"), "2").unwrap();
        std::os::unix::fs::symlink(dir.path().join("b.rb"), inside.join("c.rb")).unwrap();
        let folders = Folders::default();
        folders.add(&inside.join("handler.rb"));
        let allowed = folders.0.borrow();
        let look = |name: &str| find(&allowed, name, [inside.display().to_string()].into_iter());
        assert_eq!(look("a").unwrap().1, "1");
        assert_eq!(look("a.rb").unwrap().1, "1");
        for outside in ["../b", "c", dir.path().join("b").to_str().unwrap()] {
            assert!(look(outside).unwrap_err().contains("only files below"), "{outside}");
        }
        assert!(look("none").unwrap_err().contains("cannot load such file -- none.rb"));
    }
}
