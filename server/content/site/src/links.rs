//! Finds top-level symbolic links of a folder that are not followed, for `firebrick check`.

use std::path::Path;

/// The most names that are checked.
const MOST: usize = 10_000;

/// Returns a sentence for each broken link.
pub fn broken_links(root: &Path) -> Vec<String> {
    links(root, |path| {
        path.metadata().is_err().then(|| format!("{}: the link leads to nothing", path.display()))
    })
}

/// Returns a sentence for each link that leads out of the folder or is broken.
pub fn refused_links(root: &Path) -> Vec<String> {
    let Ok(inside) = root.canonicalize() else { return Vec::new() };
    links(root, |path| {
        let absolute = path.read_link().is_ok_and(|target| target.is_absolute());
        match path.canonicalize() {
            Ok(target) if absolute || !target.starts_with(&inside) => Some(format!(
                "{}: the link leads out of the site's folder, to {}, so it is not served",
                path.display(),
                target.display()
            )),
            Ok(_) => None,
            Err(_) => Some(format!("{}: the link leads to nothing", path.display())),
        }
    })
}

fn links(root: &Path, judge: impl Fn(&Path) -> Option<String>) -> Vec<String> {
    let Ok(entries) = root.read_dir() else { return Vec::new() };
    let paths = entries.take(MOST).filter_map(|entry| Some(entry.ok()?.path()));
    let mut found: Vec<String> =
        paths.filter(|path| path.is_symlink()).filter_map(|path| judge(&path)).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_that_are_not_followed_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("a"), "").unwrap();
        for (target, name) in [("a", "in"), ("..", "out"), ("/etc", "absolute"), ("gone", "broken")] {
            symlink(target, root.join(name)).unwrap();
        }
        assert_eq!(broken_links(&root).len(), 1);
        let refused = refused_links(&root);
        assert_eq!(refused.len(), 3, "{refused:?}");
        assert!(refused[0].contains("/absolute: the link leads out of the site's folder, to /etc"));
    }
}
