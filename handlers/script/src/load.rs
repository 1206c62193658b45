//! Reads handler files; describes errors in Ruby's form.

use mruby::{Exception, Vm, VmLimits};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerSource {
    /// The file, for messages and `require`.
    pub file: PathBuf,
    pub code: String,
}

impl HandlerSource {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read or is not UTF-8; the message names it.
    pub fn read(file: &Path) -> Result<HandlerSource, String> {
        let code = std::fs::read_to_string(file).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => format!("{}: it is not UTF-8", file.display()),
            _ => format!("{}: {error}", file.display()),
        })?;
        Ok(HandlerSource { file: file.to_owned(), code })
    }

    pub(crate) fn name(&self) -> String {
        self.file.display().to_string()
    }
}

/// Parses the code without running it.
///
/// # Errors
/// The first syntax error with its line and a caret, or that this program was built without mruby.
pub fn check(sources: &[HandlerSource]) -> Result<(), String> {
    let limits = VmLimits { heap: 64 << 20, step: 64 << 20 };
    // No code runs, so there are no calls.
    let mut vm = Vm::open(limits, Box::new(|_, _, _| {}))?;
    sources.iter().try_for_each(|source| {
        vm.check(&source.code, &source.name()).map_err(|error| describe_load_error(source, &error))
    })
}

/// Returns `file:line: message`, the line of code, and a caret if the column is known.
pub(crate) fn describe_load_error(source: &HandlerSource, error: &Exception) -> String {
    let name = source.name();
    let line = error.place.map(|(line, _)| line).or_else(|| line_in(&name, error));
    let Some(text) =
        line.and_then(|line| source.code.lines().nth(usize::try_from(line).ok()?.checked_sub(1)?))
    else {
        return format!("{name}: {} ({})", error.message, error.class);
    };
    let head = format!("{name}:{}: {} ({})\n  {text}", line.unwrap_or_default(), error.message, error.class);
    match error.place {
        Some((_, column)) if column >= 0 => {
            let blanks: String =
                text.chars().take(column as usize).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
            format!("{head}\n  {blanks}^")
        }
        _ => head,
    }
}

/// Returns the line of `file` where an exception was raised: its innermost frame in the file.
fn line_in(file: &str, error: &Exception) -> Option<i64> {
    error.backtrace.iter().find_map(|frame| {
        let rest = frame.strip_prefix(file)?.strip_prefix(':')?;
        rest.split(':').next()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(code: &str) -> [HandlerSource; 1] {
        [HandlerSource { file: "handlers/api.rb".into(), code: code.to_owned() }]
    }

    #[test]
    fn a_syntax_error_has_its_line_and_a_caret() {
        let text = check(&source("def call\n  1 +\nend end\n")).unwrap_err();
        assert!(text.starts_with("handlers/api.rb:3: syntax error"), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "  end end");
        assert!(lines[2].trim_start() == "^", "{text}");
    }

    #[test]
    fn valid_code_passes() {
        assert_eq!(check(&source("lambda { |env| [200, {}, []] }")), Ok(()));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = HandlerSource::read(Path::new("/nowhere/at/all.rb")).unwrap_err();
        assert!(error.contains("/nowhere/at/all.rb"), "{error}");
    }
}
