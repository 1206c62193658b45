//! What can be served in a directory without a `config.ru`.

use std::path::{Path, PathBuf};

/// The name of the rules' file.
pub const STATIC_JSON: &str = "static.json";

/// Where generators put the pages they make; the second value is what must be in it to be sure.
const OUTPUTS: [(&str, &str); 4] =
    [("_site", "."), ("public_html", "."), ("dist", "index.html"), ("build", "index.html")];

/// What a directory holds of a static site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    /// Its `static.json`.
    pub static_json: Option<PathBuf>,
    /// The directory of the pages, as far as it is known without `static.json`.
    pub root: Option<PathBuf>,
}

impl Discovered {
    /// Looks into `dir`.
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

    /// Whether there is a site.
    pub fn is_site(&self) -> bool {
        self.static_json.is_some() || self.root.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[&str]) -> (Option<String>, bool) {
        let folder = tempfile::tempdir().expect("a directory");
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, "").expect("a file");
        }
        let found = Discovered::look(folder.path());
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
}
