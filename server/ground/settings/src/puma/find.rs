//! Searches for a `puma.rb` in the same places as Puma.

use std::path::{Path, PathBuf};

/// Returns whether the path is that of a Ruby file.
pub(crate) fn is_ruby(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rb")
}

/// Returns `config/puma/ENVIRONMENT.rb`, else `config/puma.rb`, of the app in `dir`.
pub(crate) fn find(dir: &Path, environment: &str) -> Option<PathBuf> {
    // A name with a slash would lead out of the folder.
    let by_name = (!environment.contains('/')).then(|| format!("config/puma/{environment}.rb"));
    by_name
        .into_iter()
        .chain(["config/puma.rb".to_owned()])
        .map(|name| dir.join(name))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_the_environment_comes_first() {
        let folder = tempfile::tempdir().expect("a directory");
        let dir = folder.path();
        std::fs::create_dir_all(dir.join("config/puma")).expect("a directory");
        assert_eq!(find(dir, "production"), None);
        std::fs::write(dir.join("config/puma.rb"), "").expect("a file");
        assert_eq!(find(dir, "production"), Some(dir.join("config/puma.rb")));
        std::fs::write(dir.join("config/puma/production.rb"), "").expect("a file");
        assert_eq!(find(dir, "production"), Some(dir.join("config/puma/production.rb")));
        assert_eq!(find(dir, "../puma"), Some(dir.join("config/puma.rb")));
    }
}
