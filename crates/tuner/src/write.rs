//! `--write`: puts a shape into `firebrick.toml`, and shows what that changes.
//!
//! Contract: comments, order and everything else in the file stay as they are; a file that is not TOML is left alone.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use planner::Shape;
use settings::CONFIG_FILE;
use similar::TextDiff;
use toml_edit::{DocumentMut, Item, Value};

/// The file of an app's folder.
pub(crate) fn path(dir: &Path) -> PathBuf {
    dir.join(CONFIG_FILE)
}

/// Looks whether the file can be changed, before anything is measured.
///
/// # Errors
/// Says why not.
pub(crate) fn check(dir: &Path) -> Result<(), String> {
    changed(&read(&path(dir))?, Shape::new(1, 1))
        .map(drop)
        .map_err(|why| format!("--write: {}: {why}", path(dir).display()))
}

/// Writes the shape into the file; answers the difference as people read it.
///
/// # Errors
/// When the file cannot be read or written, or is not TOML.
pub(crate) fn write(dir: &Path, shape: Shape) -> Result<String, String> {
    let path = path(dir);
    let before = read(&path)?;
    let after = changed(&before, shape).map_err(|why| format!("{}: {why}", path.display()))?;
    if after == before {
        return Ok(format!("{} says so already.", path.display()));
    }
    replace(&path, &after).map_err(|error| format!("{}: cannot be written: {error}", path.display()))?;
    Ok(format!("{}:\n{}", path.display(), difference(&before, &after)))
}

fn read(path: &Path) -> Result<String, String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Through a second file, so that a full disk does not leave half of one.
fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    // A link stays one.
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
    Ok(file.to_string())
}

/// Sets a key; comments beside the value stay.
fn set(file: &mut DocumentMut, key: &str, number: u32) -> Result<(), String> {
    let number = i64::from(number);
    match file.get_mut(key) {
        None => drop(file.insert(key, Item::Value(Value::from(number)))),
        Some(Item::Value(value)) => {
            // A range such as "5:5" that says the same is left as it is.
            if value.as_integer() != Some(number) && value.as_str() != Some(&format!("{number}:{number}")) {
                let decor = value.decor().clone();
                *value = Value::from(number);
                *value.decor_mut() = decor;
            }
        }
        Some(_) => return Err(format!("{key} is a table in it; expected a number")),
    }
    Ok(())
}

fn difference(before: &str, after: &str) -> String {
    let diff = TextDiff::from_lines(before, after);
    let text = diff.unified_diff().context_radius(2).to_string();
    // The line numbers of so small a change help nobody.
    let lines = text.lines().filter(|line| !line.starts_with("@@"));
    lines.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn comments_and_order_stay() {
        let before = "# ours\nthreads = \"1:5\" # few\nquiet = true\n\n[limits]\nmax_body = \"10MB\"\n";
        let after = changed(before, Shape::new(2, 10)).unwrap();
        assert_eq!(
            after,
            "# ours\nthreads = 10 # few\nquiet = true\nworkers = 2\n\n[limits]\nmax_body = \"10MB\"\n"
        );
        let said = difference(before, &after);
        assert!(said.contains("-threads = \"1:5\" # few") && said.contains("+workers = 2"), "{said}");
    }

    #[test]
    fn a_file_is_made_changed_and_left() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check(dir.path()).is_ok());
        assert!(!path(dir.path()).exists(), "looking changes nothing");
        assert!(write(dir.path(), Shape::new(2, 5)).unwrap().contains("+workers = 2"));
        assert_eq!(fs::read_to_string(path(dir.path())).unwrap(), "workers = 2\nthreads = 5\n");
        assert!(write(dir.path(), Shape::new(2, 5)).unwrap().contains("already"));
        fs::write(path(dir.path()), "threads = \"5:5\"\nworkers = 2\n").unwrap();
        assert!(write(dir.path(), Shape::new(2, 5)).unwrap().contains("already"));
    }

    #[test]
    fn what_is_not_toml_is_left_alone() {
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
        fn what_is_written_is_read_again(text in "([a-z]{1,3} = [0-9]{1,2}( # [a-z]+)?\n){0,4}", p in 1_u32..9, t in 1_u32..9) {
            if let Ok(after) = changed(&text, Shape::new(p, t)) {
                let file: DocumentMut = after.parse().unwrap();
                prop_assert_eq!(file["workers"].as_integer(), Some(i64::from(p)));
                prop_assert_eq!(file["threads"].as_integer(), Some(i64::from(t)));
                prop_assert_eq!(changed(&after, Shape::new(p, t)).unwrap(), after);
            }
        }
    }
}
