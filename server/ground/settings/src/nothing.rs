//! A directory with neither an app nor a site: the error, and what the user probably wants.
//!
//! Why guess: the first command of a newcomer is `firebrick` in some directory; a source that has to be built first, or an app one
//! directory below, is more frequent than a typing error.

use std::fmt;
use std::path::{Path, PathBuf};

/// Directories that are looked at for an app, at most.
const MOST_ENTRIES: usize = 200;
/// Apps below that are named, at most.
const NAMED: usize = 3;

/// Sources of static sites: a file that each has, its name, the command that builds it, and where that writes.
const SOURCES: [(&str, &str, &str, &str); 10] = [
    ("_config.yml", "Jekyll", "bundle exec jekyll build", "_site"),
    ("_config.toml", "Jekyll", "bundle exec jekyll build", "_site"),
    ("bridgetown.config.yml", "Bridgetown", "bin/bridgetown build", "output"),
    ("nanoc.yaml", "Nanoc", "nanoc", "output"),
    ("hugo.toml", "Hugo", "hugo", "public"),
    ("hugo.yaml", "Hugo", "hugo", "public"),
    ("mkdocs.yml", "MkDocs", "mkdocs build", "site"),
    ("book.toml", "mdBook", "mdbook build", "book"),
    ("astro.config.mjs", "Astro", "npm run build", "dist"),
    ("vite.config.js", "Vite", "npm run build", "dist"),
];

/// There is neither an app nor a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NothingToServe {
    /// The directory that was searched.
    pub dir: PathBuf,
}

impl fmt::Display for NothingToServe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dir = self.dir.display();
        write!(
            f,
            "there is no config.ru in {dir}, and no static site (static.json, _site/, public_html/, dist/index.html, \
             build/index.html, index.html)"
        )?;
        match hint(&self.dir) {
            Some(hint) => write!(f, "; {hint}"),
            None => write!(
                f,
                "; go to the app's directory or name it: firebrick DIR; any directory is served as a static site with \
                 --root DIR, and one of pages by its name alone"
            ),
        }
    }
}

impl std::error::Error for NothingToServe {}

/// Returns what the directory seems to be, and what to do.
fn hint(dir: &Path) -> Option<String> {
    source(dir).or_else(|| code(dir)).or_else(|| below(dir))
}

fn source(dir: &Path) -> Option<String> {
    let (_, name, build, output) = SOURCES.iter().find(|(file, ..)| dir.join(file).is_file())?;
    // Directories that are found without being named.
    let found = ["_site", "dist"].contains(output);
    let serve = if found { "firebrick".to_owned() } else { format!("firebrick --root {output}") };
    Some(format!(
        "this is the source of a {name} site: run `{build}`, which writes {output}/, then `{serve}`"
    ))
}

/// Recognises an app without a `config.ru`, and a handler.
fn code(dir: &Path) -> Option<String> {
    if dir.join("config/application.rb").is_file() {
        return Some(
            "this is a Rails app without its config.ru: create one with `require_relative \"config/environment\"` \
             and `run Rails.application`"
                .to_owned(),
        );
    }
    let is_sinatra = |name: &&&str| requires(&dir.join(format!("{name}.rb")), "sinatra");
    if let Some(name) = ["app", "main", "server"].iter().find(is_sinatra) {
        return Some(format!(
            "{name}.rb seems to be a Sinatra app: create config.ru with `require_relative \"{name}\"` and \
             `run Sinatra::Application` (or the name of your class)"
        ));
    }
    let handler = dir.join("handler.rb").is_file();
    handler.then(|| "handler.rb is served on mruby by `firebrick --mruby handler.rb`".to_owned())
}

fn requires(file: &Path, library: &str) -> bool {
    let is_it = |line: &str| line.trim_start().starts_with("require") && line.contains(library);
    std::fs::read_to_string(file).is_ok_and(|text| text.lines().any(is_it))
}

/// Finds apps one directory below.
fn below(dir: &Path) -> Option<String> {
    let entries = std::fs::read_dir(dir).ok()?.flatten().take(MOST_ENTRIES);
    let mut found: Vec<String> = entries
        .filter(|entry| entry.path().join("config.ru").is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    found.sort();
    let commands: Vec<String> = found.iter().take(NAMED).map(|name| format!("`firebrick {name}`")).collect();
    let more = if found.len() > NAMED { ", …" } else { "" };
    (!commands.is_empty()).then(|| format!("there are apps below: {}{more}", commands.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(files: &[(&str, &str)]) -> String {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        }
        NothingToServe { dir: dir.path().to_owned() }.to_string()
    }

    #[test]
    fn a_source_is_named_with_its_build() {
        let text = said(&[("_config.yml", ""), ("Gemfile", "")]);
        assert!(
            text.contains(
                "a Jekyll site: run `bundle exec jekyll build`, which writes _site/, then `firebrick`"
            ),
            "{text}"
        );
        let text = said(&[("hugo.toml", "")]);
        assert!(text.ends_with("run `hugo`, which writes public/, then `firebrick --root public`"), "{text}");
    }

    #[test]
    fn an_app_without_its_file_is_named() {
        assert!(said(&[("config/application.rb", "")]).contains("run Rails.application"));
        let text = said(&[("main.rb", "require \"sinatra\"\nget('/') { 1 }\n")]);
        assert!(
            text.contains("main.rb seems to be a Sinatra app") && text.contains("require_relative \"main\""),
            "{text}"
        );
        assert!(said(&[("handler.rb", "")]).ends_with("`firebrick --mruby handler.rb`"));
    }

    #[test]
    fn apps_below_are_named() {
        let files = ["d", "c", "b", "a"].map(|name| format!("{name}/config.ru"));
        let files: Vec<(&str, &str)> = files.iter().map(|name| (name.as_str(), "")).collect();
        let text = said(&files);
        assert!(
            text.ends_with("there are apps below: `firebrick a`, `firebrick b`, `firebrick c`, …"),
            "{text}"
        );
        assert!(said(&[("a.txt", "")]).contains("go to the app's directory or name it"));
    }
}
