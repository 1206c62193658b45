//! Output options.

use std::path::{Path, PathBuf};

use super::flags::Flags;

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
        found.ok_or_else(|| format!("{text:?} is not a format: expected one of {}", names.join(", ")))
    }

    /// Returns whether the tool counts every status as a success.
    pub fn counts_every_status(self) -> bool {
        !matches!(self, Format::Human | Format::Json | Format::Csv)
    }

    /// Returns whether the tool counts a body of a different length than the first as a failure.
    pub fn expects_same_length(self) -> bool {
        matches!(self, Format::Ab | Format::AbCsv)
    }
}

/// The outputs of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Output {
    pub format: Format,
    pub json: Option<PathBuf>,
    pub csv: Option<PathBuf>,
    pub html: Option<PathBuf>,
    pub name: Option<String>,
    pub quiet: bool,
    pub progress: bool,
}

pub(super) fn read(flags: &mut Flags<'_>) -> Output {
    let output = Output {
        format: flags.value("format", Format::read).unwrap_or_default(),
        json: flags.value("json", writable),
        csv: flags.value("csv", writable),
        html: flags.value("html", writable),
        name: flags.text("name").map(str::to_owned),
        quiet: flags.is_set("quiet"),
        progress: !flags.is_set("no-progress") && !flags.is_set("quiet"),
    };
    let files: Vec<&PathBuf> = [&output.json, &output.csv, &output.html].into_iter().flatten().collect();
    for (index, file) in files.iter().enumerate() {
        if files[..index].contains(file) {
            flags.mistake(format!(
                "{} is used for two kinds of output: expected different files",
                file.display()
            ));
        }
    }
    output
}

/// Checks a path before the run, so that a wrong one does not lose the results.
fn writable(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if text == "-" {
        return Err("expected the name of a file; --format json or csv prints to standard output".to_owned());
    }
    if text.is_empty() || path.is_dir() {
        return Err(format!("{text:?} is a folder: expected a file name"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(format!("{text}: no folder {}", folder.display()));
    }
    Ok(path)
}
