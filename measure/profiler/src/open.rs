//! Shows a file in the user's browser.

use std::io::IsTerminal;
use std::path::Path;
use std::process::{Command, Stdio};

/// Opens the file, if there is a display and standard output is a terminal. Errors are ignored: the file's name has been printed.
pub(crate) fn open(file: &Path) {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_remote = is_set("SSH_CONNECTION");
    let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let has_display = cfg!(target_os = "macos") || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY");
    if has_display && !is_remote && std::io::stdout().is_terminal() {
        let _ = Command::new(program)
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
    }
}
