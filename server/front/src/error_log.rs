//! The error log: entries with time, level and request id (if there is a request), as text or as JSON. The
//! app's exceptions go to the same file in the same format (`worker/lib/firebrick/report.rb`).
//!
//! Why not simply write: standard error may be a pipe whose reader is stuck, or a terminal after Ctrl-S. A
//! write would then stop a front thread, or the main thread, which replaces workers and ends the server.
//!
//! Contract:
//! 1. All threads share the log. While the output accepts bytes, each entry is written whole and at once,
//!    because the process may die right after it.
//! 2. No caller waits for the output. While it accepts nothing, entries wait in memory, in order, up to
//!    [`MOST`] bytes. Further entries are lost; their number is written when the output accepts bytes again.

use crate::access_log::json;
use crate::log_file;
use settings::{ErrorLog as Target, LogFormat};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most bytes of entries that wait.
const MOST: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct ErrorLog {
    path: Option<PathBuf>,
    /// Whether each entry is a line of JSON.
    json: bool,
    output: Arc<Mutex<Output>>,
}

/// The output, and the entries that wait for it.
#[derive(Debug)]
struct Output {
    file: Arc<File>,
    waiting: Vec<u8>,
    /// Entries lost because too many were waiting.
    lost: u64,
    /// A thread writes the waiting entries. Until it ends, all new entries wait, so that their order is kept.
    is_blocked: bool,
}

impl ErrorLog {
    /// # Errors
    /// The file cannot be opened. The text names it.
    pub(crate) fn open(target: &Target, format: LogFormat) -> Result<ErrorLog, String> {
        let path = match target {
            Target::Stderr => None,
            Target::File(path) => Some(path.clone()),
        };
        let file = match &path {
            None => log_file::standard(io::stderr()).map_err(|e| format!("standard error: {e}"))?,
            Some(path) => append(path)?,
        };
        let output = Output { file: Arc::new(file), waiting: Vec::new(), lost: 0, is_blocked: false };
        Ok(ErrorLog { path, json: format == LogFormat::Json, output: Arc::new(Mutex::new(output)) })
    }

    /// Opens the file again after a log rotation has moved it.
    pub(crate) fn reopen(&self) {
        let Some(path) = &self.path else { return };
        match append(path) {
            Ok(file) => lock(&self.output).file = Arc::new(file),
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
        let mut output = lock(&self.output);
        let rest = if output.is_blocked { line.as_bytes() } else { output.write_ready(line.as_bytes()) };
        if rest.is_empty() {
            return;
        }
        if output.waiting.len() + rest.len() > MOST {
            output.lost += 1;
            return;
        }
        output.waiting.extend_from_slice(rest);
        if !output.is_blocked {
            output.is_blocked = true;
            let (json, shared) = (self.json, Arc::clone(&self.output));
            let thread = std::thread::Builder::new().name("error-log".to_owned());
            if thread.spawn(move || write_waiting(json, &shared)).is_err() {
                output.is_blocked = false;
            }
        }
    }
}

impl Output {
    /// Writes as much as the output accepts without blocking, and returns the rest. An error of the error log
    /// cannot be logged: the bytes are gone.
    fn write_ready<'a>(&self, mut bytes: &'a [u8]) -> &'a [u8] {
        while !bytes.is_empty() && log_file::is_ready(&self.file) {
            let piece = &bytes[..bytes.len().min(log_file::piece(&self.file))];
            match (&*self.file).write(piece) {
                Ok(written) if written > 0 => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another process was faster.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return bytes,
                Ok(_) | Err(_) => return &[],
            }
        }
        bytes
    }
}

/// Writes all waiting entries, however long the output blocks, and then the number of lost entries.
fn write_waiting(json: bool, output: &Mutex<Output>) {
    loop {
        let (text, file) = {
            let mut output = lock(output);
            if output.waiting.is_empty() && output.lost > 0 {
                let lost = std::mem::take(&mut output.lost);
                let text = format!("warning: error log: {lost} entries were lost, because it was blocked");
                output.waiting = entry(json, &now(), "warning", &text, None).into_bytes();
            }
            if output.waiting.is_empty() {
                output.is_blocked = false;
                return;
            }
            (std::mem::take(&mut output.waiting), output.file.clone())
        };
        // After an error the bytes are lost, as above.
        let _ = text.chunks(log_file::piece(&file)).try_for_each(|piece| log_file::write_all(&file, piece));
    }
}

fn lock(output: &Mutex<Output>) -> MutexGuard<'_, Output> {
    output.lock().unwrap_or_else(PoisonError::into_inner)
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
    // The text of a warning already begins with that word.
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
