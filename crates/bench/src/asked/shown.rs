//! What is shown of a run, and where to.

use std::path::{Path, PathBuf};

use super::flags::Flags;

/// What the summary looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Format {
    #[default]
    Human,
    Json,
    Csv,
    Ab,
    AbCsv,
    Siege,
    SiegeJson,
    Wrk,
}

impl Format {
    const ALL: [(&'static str, Format); 8] = [
        ("human", Format::Human),
        ("json", Format::Json),
        ("csv", Format::Csv),
        ("ab", Format::Ab),
        ("ab-csv", Format::AbCsv),
        ("siege", Format::Siege),
        ("siege-json", Format::SiegeJson),
        ("wrk", Format::Wrk),
    ];

    fn read(text: &str) -> Result<Format, String> {
        let found = Format::ALL.iter().find(|(name, _)| *name == text).map(|(_, format)| *format);
        let names: Vec<&str> = Format::ALL.iter().map(|(name, _)| *name).collect();
        found.ok_or_else(|| format!("{text:?} is no format: expected one of {}", names.join(", ")))
    }

    /// Whether the tool takes every status for an answer.
    pub fn counts_every_status(self) -> bool {
        !matches!(self, Format::Human | Format::Json | Format::Csv)
    }

    /// Whether the tool takes an answer of another length than the first one's for a failure.
    pub fn expects_same_length(self) -> bool {
        matches!(self, Format::Ab | Format::AbCsv)
    }
}

/// What is shown and written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown {
    pub format: Format,
    pub json: Option<PathBuf>,
    pub csv: Option<PathBuf>,
    pub html: Option<PathBuf>,
    pub name: Option<String>,
    pub quiet: bool,
    pub progress: bool,
}

pub(super) fn read(flags: &mut Flags<'_>) -> Shown {
    let shown = Shown {
        format: flags.value("format", Format::read).unwrap_or_default(),
        json: flags.value("json", writable),
        csv: flags.value("csv", writable),
        html: flags.value("html", writable),
        name: flags.text("name").map(str::to_owned),
        quiet: flags.is_set("quiet"),
        progress: !flags.is_set("no-progress") && !flags.is_set("quiet"),
    };
    let files: Vec<&PathBuf> = [&shown.json, &shown.csv, &shown.html].into_iter().flatten().collect();
    for (index, file) in files.iter().enumerate() {
        if files[..index].contains(file) {
            flags.mistake(format!(
                "{} is named for two kinds of output: expected a file for each",
                file.display()
            ));
        }
    }
    shown
}

/// A mistake in a name should show before the run, not after it.
fn writable(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if text.is_empty() || path.is_dir() {
        return Err(format!("{text:?} is a folder: expected the name of a file"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(format!("{text}: there is no folder {}", folder.display()));
    }
    Ok(path)
}
