//! The error log: one entry a line, each with the time.
//!
//! Shared by all threads; written at once and whole, because the next line may be the last.

use crate::log_file;
use settings::ErrorLog as Target;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Where errors, warnings and notices go.
#[derive(Debug)]
pub(crate) struct ErrorLog {
    path: Option<PathBuf>,
    file: Mutex<Option<File>>,
}

impl ErrorLog {
    /// Opens the log.
    ///
    /// # Errors
    /// The file cannot be opened; the text names it.
    pub(crate) fn open(target: &Target) -> Result<ErrorLog, String> {
        let path = match target {
            Target::Stderr => None,
            Target::File(path) => Some(path.clone()),
        };
        let file = path.as_deref().map(append).transpose()?;
        Ok(ErrorLog { path, file: Mutex::new(file) })
    }

    /// Opens the file anew, after the old one was moved away.
    pub(crate) fn reopen(&self) {
        let Some(path) = &self.path else { return };
        match append(path) {
            Ok(file) => *self.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(file),
            Err(e) => self.write(&format!("still writing to the old error log: {e}")),
        }
    }

    /// Writes one entry.
    pub(crate) fn write(&self, text: &str) {
        let line = format!("[{}] firebrick[{}]: {}\n", now(), std::process::id(), text.trim_end());
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // An error of the error log cannot be logged.
        let _ = match &mut *file {
            Some(file) => file.write_all(line.as_bytes()),
            None => io::stderr().lock().write_all(line.as_bytes()),
        };
    }
}

fn append(path: &Path) -> Result<File, String> {
    log_file::append("error log", path).map_err(|e| e.to_string())
}

fn now() -> String {
    jiff::Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string()
}
