//! The error log: entries with time, level and request id (if there is a request), as text or as JSON. The
//! app's exceptions go to the same file in the same format (`worker/lib/firebrick/report.rb`).
//!
//! All threads share it. Each entry is written whole and at once, because the process may die right after it.

use crate::access_log::json;
use crate::log_file;
use settings::{ErrorLog as Target, LogFormat};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

#[derive(Debug)]
pub(crate) struct ErrorLog {
    path: Option<PathBuf>,
    /// Whether each entry is a line of JSON.
    json: bool,
    file: Mutex<Option<File>>,
}

impl ErrorLog {
    /// # Errors
    /// The file cannot be opened. The text names it.
    pub(crate) fn open(target: &Target, format: LogFormat) -> Result<ErrorLog, String> {
        let path = match target {
            Target::Stderr => None,
            Target::File(path) => Some(path.clone()),
        };
        let file = path.as_deref().map(append).transpose()?;
        Ok(ErrorLog { path, json: format == LogFormat::Json, file: Mutex::new(file) })
    }

    /// Opens the file again after a log rotation has moved it.
    pub(crate) fn reopen(&self) {
        let Some(path) = &self.path else { return };
        match append(path) {
            Ok(file) => *self.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(file),
            Err(e) => self.write(&format!("warning: still writing to the old error log: {e}")),
        }
    }

    /// Writes a notice, or a warning if the text begins with that word.
    pub(crate) fn write(&self, text: &str) {
        self.entry(if is_warning(text) { "warning" } else { "info" }, text, None);
    }

    /// Writes an error, with the id of its request.
    pub(crate) fn error(&self, text: &str, request_id: Option<&[u8]>) {
        self.entry("error", text, request_id);
    }

    fn entry(&self, level: &str, text: &str, request_id: Option<&[u8]>) {
        let line = entry(self.json, &now(), level, &text::masked(text.trim_end()), request_id);
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // An error of the error log cannot be logged.
        let _ = match &mut *file {
            Some(file) => file.write_all(line.as_bytes()),
            None => io::stderr().lock().write_all(line.as_bytes()),
        };
    }
}

/// Formats an entry, with its line break.
fn entry(as_json: bool, time: &str, level: &str, text: &str, request_id: Option<&[u8]>) -> String {
    let pid = std::process::id();
    if as_json {
        let mut line = format!("{{\"time\":\"{time}\",\"level\":\"{level}\",\"pid\":{pid}").into_bytes();
        if let Some(id) = request_id {
            line.extend_from_slice(b",\"request_id\":");
            json(&mut line, id);
        }
        line.extend_from_slice(b",\"message\":");
        let message =
            if level == "warning" { text.split_once(": ").map_or(text, |(_, rest)| rest) } else { text };
        json(&mut line, message.as_bytes());
        line.extend_from_slice(b"}\n");
        return String::from_utf8_lossy(&line).into_owned();
    }
    // The text of a warning contains the word already.
    let level = if is_warning(text) { String::new() } else { format!("{level}: ") };
    let id = request_id.map(|id| format!(" (request {})", id.escape_ascii())).unwrap_or_default();
    format!("[{time}] firebrick[{pid}]: {level}{text}{id}\n")
}

fn is_warning(text: &str) -> bool {
    ["warning: ", "WARNING: "].iter().any(|word| text.starts_with(word))
}

fn append(path: &Path) -> Result<File, String> {
    log_file::append("error log", path).map_err(|e| e.to_string())
}

fn now() -> String {
    jiff::Zoned::now().strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_a_level_and_the_id_of_their_request() {
        let pid = std::process::id();
        assert_eq!(entry(false, "T", "info", "hello", None), format!("[T] firebrick[{pid}]: info: hello\n"));
        assert_eq!(
            entry(false, "T", "error", "500 for GET /", Some(b"a-1")),
            format!("[T] firebrick[{pid}]: error: 500 for GET / (request a-1)\n")
        );
        let line = entry(true, "T", "error", "two\n\"lines\"", Some(b"a\xff"));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&value["level"], &value["time"]), (&"error".into(), &"T".into()));
        assert_eq!(
            (&value["message"], &value["request_id"]),
            (&"two\n\"lines\"".into(), &"a\u{fffd}".into())
        );
        assert_eq!(line.matches('\n').count(), 1);
    }
}
