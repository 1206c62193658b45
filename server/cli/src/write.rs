//! `firebrick check --write`: writes a `firebrick.toml` equivalent to `puma.rb`.
//!
//! Contract: an existing file is never changed.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::ExitCode;

use settings::{CONFIG_FILE, Loaded};

use crate::print::print;

/// Writes the file into the app's directory. Fails if there is nothing to write or the file exists.
pub fn write(loaded: &Loaded) -> ExitCode {
    match try_to_write(loaded) {
        Ok(line) => print(format!("{line}\n").as_bytes()),
        Err(error) => {
            output::complain(format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn try_to_write(loaded: &Loaded) -> Result<String, String> {
    let path = loaded.settings.dir.join(CONFIG_FILE);
    let shown = path.display();
    let Some(text) = &loaded.puma_toml else {
        return Err(format!(
            "there is no config/puma.rb to make {CONFIG_FILE} of{}",
            if path.exists() {
                format!("; {shown} is there, which is read instead of it")
            } else {
                String::new()
            }
        ));
    };
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(|e| {
        if e.kind() == std::io::ErrorKind::AlreadyExists {
            format!("{shown} is there already, and stays as it is; move it away first")
        } else {
            format!("{shown} cannot be written: {e}")
        }
    })?;
    file.write_all(text.as_bytes()).map_err(|e| format!("{shown} cannot be written: {e}"))?;
    let left_out = match loaded.puma_left_out {
        0 => String::new(),
        1 => " One value stands under a condition and is a comment: look whether it holds everywhere."
            .to_owned(),
        more => format!(
            " {more} values stand under a condition and are comments: look whether they hold everywhere."
        ),
    };
    Ok(format!("{shown} is written; `firebrick check` shows what it means.{left_out}"))
}
