//! `--write`: writes a shape into `firebrick.toml`, and shows the change.
//!
//! Contract: comments, order and everything else in the file are kept; a file that is not TOML is not changed.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use planner::Shape;
use settings::CONFIG_FILE;
use similar::TextDiff;
use toml_edit::{DocumentMut, Item, Value};

/// Returns the configuration file of an app.
pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join(CONFIG_FILE)
}

/// Checks that the file can be changed, before anything is measured.
///
/// # Errors
/// The reason why it cannot be changed.
pub(crate) fn check(dir: &Path) -> Result<(), String> {
    changed(&read(&path(dir))?, Shape::new(1, 1))
        .map(drop)
        .map_err(|why| format!("--write: {}: {why}", path(dir).display()))
}

/// Writes the shape into the file; returns the difference as text.
///
/// # Errors
/// The file cannot be read or written, or is not TOML.
pub(crate) fn write(dir: &Path, shape: Shape) -> Result<String, String> {
    let path = path(dir);
    let before = read(&path)?;
    let after = changed(&before, shape).map_err(|why| format!("{}: {why}", path.display()))?;
    if after == before {
        return Ok(format!("{}: unchanged.", path.display()));
    }
    replace(&path, &after).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(format!("{}:\n{}", path.display(), difference(&before, &after)))
}

fn read(path: &Path) -> Result<String, String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Replaces the file atomically, so that a full disk does not leave half a file.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    // A symbolic link is kept.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    let permissions = match fs::metadata(&path) {
        Ok(known) => known.permissions(),
        Err(_) => std::os::unix::fs::PermissionsExt::from_mode(0o644),
    };
    fs::set_permissions(file.path(), permissions)?;
    file.persist(&path).map_err(|error| error.error)?;
    Ok(())
}

fn changed(text: &str, shape: Shape) -> Result<String, String> {
    let mut file: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| format!("it is not TOML: {}", error.to_string().trim_end()))?;
    set(&mut file, "workers", shape.processes)?;
    set(&mut file, "threads", shape.threads)?;
    match shape.fibers {
        0 => turn_off(&mut file)?,
        fibers => set(&mut file, "fibers", fibers)?,
    }
    // The shape was measured without `fiber_paths`, with all requests served alike.
    file.remove("fiber_paths");
    Ok(file.to_string())
}

/// Turns fibers off. Without fibers the file needs no line about them.
fn turn_off(file: &mut DocumentMut) -> Result<(), String> {
    let Some(item) = file.get_mut("fibers") else { return Ok(()) };
    let Item::Value(value) = item else {
        return Err("fibers is a table; expected a number or \"off\"".to_owned());
    };
    if value.as_str() != Some("off") {
        let decor = value.decor().clone();
        *value = Value::from("off");
        *value.decor_mut() = decor;
    }
    Ok(())
}

/// Sets a key and keeps comments next to the value.
fn set(file: &mut DocumentMut, key: &str, number: u32) -> Result<(), String> {
    let number = i64::from(number);
    match file.get_mut(key) {
        None => drop(file.insert(key, Item::Value(Value::from(number)))),
        Some(Item::Value(value)) => {
            // An equivalent range such as "5:5" is kept.
            if value.as_integer() != Some(number) && value.as_str() != Some(&format!("{number}:{number}")) {
                let decor = value.decor().clone();
                *value = Value::from(number);
                *value.decor_mut() = decor;
            }
        }
        Some(_) => return Err(format!("{key} is a table; expected a number")),
    }
    Ok(())
}

fn difference(before: &str, after: &str) -> String {
    let diff = TextDiff::from_lines(before, after);
    let text = diff.unified_diff().context_radius(2).to_string();
    // The change is small, so hunk headers are noise.
    let lines = text.lines().filter(|line| !line.starts_with("@@"));
    lines.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn comments_and_order_are_kept() {
        let before = "# ours\nthreads = \"1:5\" # few\nquiet = true\n\n[limits]\nmax_body = \"10MB\"\n";
        let after = changed(before, Shape::new(2, 10)).unwrap();
        assert_eq!(
            after,
            "# ours\nthreads = 10 # few\nquiet = true\nworkers = 2\n\n[limits]\nmax_body = \"10MB\"\n"
        );
        let text = difference(before, &after);
        assert!(text.contains("-threads = \"1:5\" # few") && text.contains("+workers = 2"), "{text}");
    }

    #[test]
    fn fibers_are_written_and_turned_off() {
        let fibers = Shape::new(1, 1).with_fibers(300);
        let with = changed("workers = 2\n", fibers).unwrap();
        assert_eq!(with, "workers = 1\nthreads = 1\nfibers = 300\n");
        assert_eq!(changed(&with, fibers).unwrap(), with);
        let without = changed("fibers = 10 # many\n", Shape::new(1, 5)).unwrap();
        assert_eq!(without, "fibers = \"off\" # many\nworkers = 1\nthreads = 5\n");
        assert_eq!(changed(&without, Shape::new(1, 5)).unwrap(), without);
        let some_paths = changed("fibers = 10\nfiber_paths = [\"/events\"]\n", fibers).unwrap();
        assert_eq!(some_paths, "fibers = 300\nworkers = 1\nthreads = 1\n");
    }

    #[test]
    fn a_file_is_created_changed_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check(dir.path()).is_ok());
        assert!(!path(dir.path()).exists(), "looking changes nothing");
        assert!(write(dir.path(), Shape::new(2, 5)).unwrap().contains("+workers = 2"));
        assert_eq!(fs::read_to_string(path(dir.path())).unwrap(), "workers = 2\nthreads = 5\n");
        assert!(write(dir.path(), Shape::new(2, 5)).unwrap().contains("unchanged"));
        fs::write(path(dir.path()), "threads = \"5:5\"\nworkers = 2\n").unwrap();
        assert!(write(dir.path(), Shape::new(2, 5)).unwrap().contains("unchanged"));
    }

    #[test]
    fn a_file_that_is_not_toml_is_not_changed() {
        let dir = tempfile::tempdir().unwrap();
        for wrong in ["workers = = 2\n", "[workers]\nx = 1\n"] {
            fs::write(path(dir.path()), wrong).unwrap();
            assert!(check(dir.path()).unwrap_err().contains("firebrick.toml"));
            assert!(write(dir.path(), Shape::new(1, 1)).is_err());
            assert_eq!(fs::read_to_string(path(dir.path())).unwrap(), wrong);
        }
    }

    proptest! {
        #[test]
        fn the_written_shape_is_read_back(text in "([a-z]{1,3} = [0-9]{1,2}( # [a-z]+)?\n){0,4}", p in 1_u32..9, t in 1_u32..9) {
            if let Ok(after) = changed(&text, Shape::new(p, t)) {
                let file: DocumentMut = after.parse().unwrap();
                prop_assert_eq!(file["workers"].as_integer(), Some(i64::from(p)));
                prop_assert_eq!(file["threads"].as_integer(), Some(i64::from(t)));
                prop_assert_eq!(changed(&after, Shape::new(p, t)).unwrap(), after);
            }
        }
    }
}
