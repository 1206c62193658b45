//! Opens the error log and the access log, reopens them on HUP, and closes them at the end.

use crate::access_log::{AccessLog, LogOutput};
use crate::error_log::ErrorLog;
use crate::release::Releases;
use settings::Settings;
use std::sync::Arc;
use std::time::Duration;

/// Time-out for writing the rest of the access log at the end.
const LAST_LINES: Duration = Duration::from_secs(1);

pub(super) struct Logs {
    pub(super) error: Arc<ErrorLog>,
    access: Option<LogOutput>,
}

impl Logs {
    /// Opens both logs, and writes the configuration's warnings.
    ///
    /// # Errors
    /// A file cannot be opened. The text names it.
    pub(super) fn open(releases: &Releases) -> Result<Logs, String> {
        let settings = releases.settings();
        let error = Arc::new(ErrorLog::open(&settings.logs.error, settings.logs.format)?);
        let report = error.clone();
        let access = LogOutput::open(&settings.logs.access, move |what| report.write(what));
        let access = access.map_err(|e| e.to_string())?;
        for warning in &releases.warnings {
            error.write(&format!("warning: {warning}"));
        }
        Ok(Logs { error, access })
    }

    /// Returns the access log of one front thread.
    pub(super) fn access_log(&self, settings: &Settings) -> Option<AccessLog> {
        let header = settings.rack.request_id_header.as_deref();
        self.access.as_ref().map(|output| output.log(settings.logs.format, header))
    }

    /// Opens both files again after a log rotation has moved them.
    pub(super) fn reopen(&self) {
        self.error.reopen();
        if let Some(Err(e)) = self.access.as_ref().map(LogOutput::reopen) {
            self.error.write(&format!("warning: still writing to the old access log: {e}"));
        }
    }

    /// Writes the rest of the access log.
    pub(super) fn close(self) {
        if let Some(output) = self.access
            && !output.close(LAST_LINES)
        {
            self.error.write("the last lines of the access log could not be written");
        }
    }
}
