//! Finds the site in a directory without a `config.ru`.

use std::path::{Path, PathBuf};

/// The name of the file with a site's rules.
pub const STATIC_JSON: &str = "static.json";

/// The output folders of site generators; the second value is a file that confirms the folder.
const OUTPUTS: [(&str, &str); 4] =
    [("_site", "."), ("public_html", "."), ("dist", "index.html"), ("build", "index.html")];

/// Names that occur in source folders but not in folders of pages.
const PROJECTS: [&str; 11] = [
    "Gemfile",
    "gems.rb",
    "Rakefile",
    "config",
    "package.json",
    "composer.json",
    "Cargo.toml",
    "go.mod",
    "firebrick.toml",
    ".git",
    ".env",
];

/// The parts of a static site in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    pub static_json: Option<PathBuf>,
    /// The directory of the pages, as far as it is known without `static.json`.
    pub root: Option<PathBuf>,
}

impl Discovered {
    /// Searches `dir`.
    pub fn look(dir: &Path) -> Discovered {
        let static_json = dir.join(STATIC_JSON);
        let output = OUTPUTS
            .iter()
            .map(|(name, sure)| (dir.join(name), sure))
            .find(|(output, sure)| output.join(sure).exists());
        let own = || dir.join("index.html").is_file().then(|| dir.to_owned());
        Discovered {
            static_json: static_json.is_file().then_some(static_json),
            root: output.map(|(output, _)| output).or_else(own),
        }
    }

    /// Returns the folder itself as the site, because the user named it: any pages in it are served. A folder
    /// that looks like a project is excluded, so that a mistake does not publish its sources and keys.
    pub fn named(dir: &Path) -> Discovered {
        let found = Discovered::look(dir);
        let is_project = PROJECTS.iter().any(|name| dir.join(name).exists());
        let holds_something = || {
            let names = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
            names.into_iter().any(|name| !name.to_string_lossy().starts_with('.'))
        };
        if found.is_site() || is_project || !holds_something() {
            return found;
        }
        Discovered { root: Some(dir.to_owned()), ..found }
    }

    /// Returns whether there is a site.
    pub fn is_site(&self) -> bool {
        self.static_json.is_some() || self.root.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[&str]) -> (Option<String>, bool) {
        look(files, Discovered::look)
    }

    fn look(files: &[&str], look: fn(&Path) -> Discovered) -> (Option<String>, bool) {
        let folder = tempfile::tempdir().expect("a directory");
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, "").expect("a file");
        }
        let found = look(folder.path());
        let name = |root: &Path| {
            root.strip_prefix(folder.path()).map(|name| name.display().to_string()).unwrap_or_default()
        };
        (found.root.as_deref().map(name), found.static_json.is_some())
    }

    #[test]
    fn where_the_pages_are() {
        let root = |files: &[&str]| found(files).0;
        assert_eq!(root(&["_site/a.html", "index.html", "dist/index.html"]).as_deref(), Some("_site"));
        assert_eq!(root(&["public_html/a", "dist/index.html"]).as_deref(), Some("public_html"));
        assert_eq!(root(&["dist/index.html", "index.html"]).as_deref(), Some("dist"));
        assert_eq!(root(&["dist/app.whl", "index.html"]).as_deref(), Some(""));
        assert_eq!(root(&["build/index.html"]).as_deref(), Some("build"));
        assert_eq!(root(&["README", "dist/app.whl"]), None);
        assert!(found(&["static.json"]).1);
    }

    #[test]
    fn a_folder_that_is_named_is_a_site_unless_it_looks_like_a_project() {
        let root = |files: &[&str]| look(files, Discovered::named).0;
        assert_eq!(root(&["report.pdf"]).as_deref(), Some(""));
        assert_eq!(root(&["a/b.html"]).as_deref(), Some(""));
        assert_eq!(root(&["report.pdf", "dist/index.html"]).as_deref(), Some("dist"));
        for project in [
            &["report.pdf", "Gemfile"][..],
            &["app.rb", ".env"],
            &["x", "config/master.key"],
            &[".hidden"],
            &[],
        ] {
            assert_eq!(root(project), None, "{project:?}");
        }
    }
}
