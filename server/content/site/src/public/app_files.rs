//! Parses an app's description of the files that its middleware sends. No I/O.
//!
//! Contract:
//! 1. An unknown line disables its rule and the later rules of the same mount: the app sends these files.
//! 2. A value that is not a valid header field value is never used as one.

use super::rule::{Condition, FileRule, Host, Types};
use representation::coding::Coding;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use text::percent::decode;

/// The files of an app, and how to send them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppFiles {
    pub(super) mounts: Vec<Mount>,
    pub(super) types: Arc<Types>,
}

/// The files below a path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Mount {
    /// Without the slash at its end.
    pub(super) location: String,
    pub(super) parts: Vec<FileMiddleware>,
}

/// A middleware that sends files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileMiddleware {
    Rule(Box<FileRule>),
    /// A middleware that only the app can run.
    App {
        by: String,
        root: PathBuf,
    },
}

/// The operator's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted<'a> {
    /// Send the files that the app would send, in the same way. The directory is only for the note about
    /// files that the app does not send.
    Auto(&'a Path),
    /// Also send the files of this directory, even if nothing in the app sends them.
    Named(&'a Path),
    /// Send the app's files and those of this directory, ignoring the middleware before them.
    Always(&'a Path),
}

/// Why the front or the app sends files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilesNote {
    /// The front sends the files of a directory in place of a middleware.
    Sent(PathBuf, String),
    /// The front sends the files on the operator's request.
    Asked(PathBuf),
    /// The app sends the files, because this middleware stands before the one that sends them.
    Behind(PathBuf, String, String),
    /// The app sends the files, because the middleware's behaviour is not known.
    Unclear(PathBuf, String),
    /// The app does not send the files.
    Nobody(PathBuf),
}

impl AppFiles {
    /// Parses the app's lines.
    pub fn read<'a>(lines: impl IntoIterator<Item = &'a str>) -> AppFiles {
        let mut files = AppFiles::default();
        let mut types = Types::new();
        for line in lines {
            let words: Vec<String> = line.split('\t').map(unescape).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match *words.as_slice() {
                ["types", ref pairs @ ..] => {
                    let pairs = pairs.iter().filter_map(|pair| pair.split_once('='));
                    types.extend(
                        pairs
                            .filter(|(_, kind)| is_value(kind))
                            .map(|(name, kind)| (name.to_ascii_lowercase().into(), kind.into())),
                    );
                }
                ["mount", location] => files
                    .mounts
                    .push(Mount { location: location.trim_end_matches('/').to_owned(), parts: Vec::new() }),
                _ => {
                    if let Some(mount) = files.mounts.last_mut() {
                        mount.read(&words);
                    }
                }
            }
        }
        files.types = Arc::new(types);
        files
    }

    /// Decides which files the front sends, and why. `same`: whether two paths are one directory.
    pub fn settle(
        mut self,
        wanted: Wanted<'_>,
        same: impl Fn(&Path, &Path) -> bool,
    ) -> (AppFiles, Vec<FilesNote>) {
        let mut notes = Vec::new();
        let always = matches!(wanted, Wanted::Always(_));
        let (Wanted::Auto(dir) | Wanted::Named(dir) | Wanted::Always(dir)) = wanted;
        let sends = |part: &FileMiddleware| same(part.root(), dir);
        let found =
            self.mounts.iter().any(|mount| mount.location.is_empty() && mount.parts.iter().any(sends));
        let nobody = !self.mounts.is_empty() && self.mounts.iter().all(|mount| mount.parts.is_empty());
        for mount in &mut self.mounts {
            let parts = std::mem::take(&mut mount.parts);
            // Once a part stays with the app, all parts behind it do too.
            let mut closed = false;
            for part in parts {
                match part {
                    FileMiddleware::Rule(rule) if always => {
                        notes.push(FilesNote::Asked(rule.root.clone()));
                        mount.parts.push(FileMiddleware::Rule(Box::new(rule.without_conditions())));
                    }
                    FileMiddleware::Rule(rule) if !closed && rule.behind.is_none() => {
                        notes.push(FilesNote::Sent(rule.root.clone(), rule.by.clone()));
                        mount.parts.push(FileMiddleware::Rule(rule));
                    }
                    FileMiddleware::Rule(rule) => {
                        closed = true;
                        if let Some(behind) = rule.behind {
                            notes.push(FilesNote::Behind(rule.root, rule.by, behind));
                        }
                    }
                    FileMiddleware::App { by, root } => {
                        closed = true;
                        if !(always && same(&root, dir)) {
                            notes.push(FilesNote::Unclear(root, by));
                        }
                    }
                }
            }
        }
        let lacking = match wanted {
            Wanted::Auto(_) => false,
            Wanted::Named(_) => !found,
            Wanted::Always(_) => !self.sends(dir, &same),
        };
        if lacking {
            notes.push(FilesNote::Asked(dir.to_owned()));
            self.top().parts.push(FileMiddleware::Rule(Box::new(FileRule::plain(dir))));
        } else if nobody {
            notes.push(FilesNote::Nobody(dir.to_owned()));
        }
        (self, notes)
    }

    /// Returns whether the front sends the files of a directory at the top level.
    fn sends(&self, dir: &Path, same: impl Fn(&Path, &Path) -> bool) -> bool {
        let mut top = self.mounts.iter().filter(|mount| mount.location.is_empty());
        top.any(|mount| mount.parts.iter().any(|part| same(part.root(), dir)))
    }

    /// Returns the top-level mount; adds it if it is missing.
    fn top(&mut self) -> &mut Mount {
        let at = self.mounts.iter().position(|mount| mount.location.is_empty());
        let at = at.unwrap_or_else(|| {
            self.mounts.push(Mount::default());
            self.mounts.len() - 1
        });
        &mut self.mounts[at]
    }

    /// Returns the directories whose files the front sends.
    pub fn roots(&self) -> impl Iterator<Item = &Path> {
        self.mounts.iter().flat_map(|mount| &mount.parts).map(FileMiddleware::root)
    }
}

impl FileMiddleware {
    fn root(&self) -> &Path {
        match self {
            FileMiddleware::Rule(rule) => &rule.root,
            FileMiddleware::App { root, .. } => root,
        }
    }
}

impl Mount {
    fn read(&mut self, words: &[&str]) {
        match *words {
            ["rule", by, root] => {
                self.parts.push(FileMiddleware::Rule(Box::new(FileRule::of(by, Path::new(root)))))
            }
            ["app", by, root] => {
                self.parts.push(FileMiddleware::App { by: by.to_owned(), root: root.into() })
            }
            _ => {
                let Some(FileMiddleware::Rule(rule)) = self.parts.last_mut() else { return };
                if read(rule, words).is_none() {
                    let (by, root) = (rule.by.clone(), rule.root.clone());
                    self.parts.pop();
                    self.parts.push(FileMiddleware::App { by, root });
                }
            }
        }
    }
}

/// Adds a line to a rule. Returns `None` if the line is unknown.
fn read(rule: &mut FileRule, words: &[&str]) -> Option<()> {
    match *words {
        ["behind", obstacle] => rule.behind = Some(obstacle.to_owned()),
        ["prefix", prefix] => rule.prefixes.push(prefix.to_owned()),
        ["map", path, file] => {
            rule.exact.push((path.to_owned(), file.trim_start_matches('/').to_owned()));
        }
        ["index", name] => rule.index = Some(name.to_owned()),
        ["try", suffix] => rule.tries.push(suffix.to_owned()),
        ["chomp"] => rule.chomp = true,
        ["typed"] => rule.typed = true,
        ["next"] => rule.falls_through = true,
        ["coding", "br"] => rule.codings.push(Coding::Br),
        ["coding", "gzip"] => rule.codings.push(Coding::Gzip),
        ["coding", "zstd"] => rule.codings.push(Coding::Zstd),
        ["charset", charset] => rule.charset = is_value(charset).then(|| charset.to_owned()),
        ["default-type", kind] => rule.default_type = is_value(kind).then(|| kind.to_owned()),
        [kind @ ("header" | "default"), condition, name, value] => {
            let value = value.replace('\n', ", ");
            if !is_name(name) || !is_value(&value) {
                return None;
            }
            let weak = kind == "default";
            rule.headers.push((Condition::read(condition)?, name.to_owned(), value, weak));
        }
        ["https"] => rule.https = true,
        ["spoofing"] => rule.spoofing = true,
        ["host", host] => rule.hosts.push(Host::read(host)),
        ["unless", field] => rule.unless.push((field.to_owned(), None)),
        ["unless", field, kind] => rule.unless.push((field.to_owned(), Some(kind.to_owned()))),
        _ => return None,
    }
    Some(())
}

fn is_name(name: &str) -> bool {
    text::is_token(name.as_bytes())
}

fn is_value(value: &str) -> bool {
    value.bytes().all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
}

/// Decodes `%xx`, which stands for characters that must not appear in a line.
fn unescape(word: &str) -> String {
    String::from_utf8_lossy(&decode(word.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settle(lines: &[&str], wanted: Wanted<'_>) -> (AppFiles, Vec<FilesNote>) {
        AppFiles::read(lines.iter().copied()).settle(wanted, |one, other| one == other)
    }

    const STATIC: [&str; 3] = ["mount\t", "rule\tRack::Static\t/app/public", "prefix\t/assets"];

    #[test]
    fn what_the_app_would_send_is_sent() {
        let dir = Path::new("/app/public");
        let (files, notes) = settle(&STATIC, Wanted::Auto(dir));
        assert_eq!(notes, [FilesNote::Sent(dir.into(), "Rack::Static".to_owned())]);
        assert_eq!(files.roots().collect::<Vec<_>>(), [dir]);
        assert_eq!(settle(&STATIC, Wanted::Named(dir)).0, files, "a directory that the app sends itself");
        let (named, _) = settle(&STATIC, Wanted::Named(Path::new("/dist")));
        assert_eq!(named.roots().collect::<Vec<_>>(), [dir, Path::new("/dist")]);
    }

    #[test]
    fn nothing_is_sent_that_the_app_would_not() {
        let dir = Path::new("/app/public");
        let (files, notes) = settle(&["mount\t"], Wanted::Auto(dir));
        assert_eq!((files.roots().count(), notes), (0, vec![FilesNote::Nobody(dir.into())]));
        assert_eq!(settle(&["mount\t"], Wanted::Named(dir)).1, [FilesNote::Asked(dir.into())]);
        assert_eq!(settle(&[], Wanted::Always(dir)).0.roots().collect::<Vec<_>>(), [dir]);
    }

    #[test]
    fn what_stands_before_a_middleware_keeps_its_files_and_those_behind_it() {
        let dir = Path::new("/app/public");
        let mut lines = STATIC.to_vec();
        lines.extend(["behind\tRack::Auth::Basic", "rule\tRack::Files\t/more"]);
        let (files, notes) = settle(&lines, Wanted::Auto(dir));
        assert_eq!(files.roots().count(), 0);
        let behind = FilesNote::Behind(dir.into(), "Rack::Static".into(), "Rack::Auth::Basic".into());
        let behind = [behind];
        assert_eq!(notes, behind);
        assert_eq!(settle(&lines, Wanted::Named(dir)).1, behind);
        assert_eq!(settle(&lines, Wanted::Always(dir)).0.roots().count(), 2);
    }

    #[test]
    fn a_line_that_is_not_understood_leaves_the_files_to_the_app() {
        let odd = [
            "rotate\tleft",
            "header\tall\tX-A\tb\r\nc",
            "header\tall\tX A\tb",
            "header\tmoon\tX-A\tb",
            "coding\tlzma",
        ];
        for line in odd {
            let lines = [&STATIC[..], &[line]].concat();
            let (files, notes) = settle(&lines, Wanted::Auto(Path::new("/app/public")));
            assert_eq!(files.roots().count(), 0, "{line}");
            assert!(matches!(notes[0], FilesNote::Unclear(..)), "{line}");
        }
    }

    #[test]
    fn words_are_unescaped() {
        let files = AppFiles::read(["mount\t", "rule\tX\t/a%09b%25%zz"]);
        assert_eq!(files.roots().collect::<Vec<_>>(), [Path::new("/a\tb%%zz")]);
    }

    proptest! {
        #[test]
        fn any_lines_are_read(lines in prop::collection::vec("(mount|rule|app|header|map|types|host|unless|try)(\t[ -~%]{0,8}){0,4}", 0..12)) {
            let files = AppFiles::read(lines.iter().map(String::as_str));
            let (files, _) = files.settle(Wanted::Auto(Path::new("/p")), |one, other| one == other);
            for mount in &files.mounts {
                for part in &mount.parts {
                    let FileMiddleware::Rule(rule) = part else { panic!("{part:?}") };
                    for (_, name, value, _) in &rule.headers {
                        prop_assert!(is_name(name) && is_value(value));
                    }
                }
            }
        }
    }
}
