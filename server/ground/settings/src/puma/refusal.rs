//! The reason why a `puma.rb` could not be evaluated, and its encoding as a list of words.
//!
//! Contract: malformed words are an error, never a panic.

use std::fmt;
use std::path::PathBuf;

use super::call::{Call, number};
use super::nearest_method;

/// The calls of a `puma.rb`, or the reason why its evaluation failed.
pub type Evaluated = Result<Vec<Call>, PumaRefusal>;

/// The reason why a `puma.rb` could not be evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PumaRefusal {
    /// The path for messages; empty if the exception came from another file.
    pub file: PathBuf,
    /// Counted from 1; 0 if unknown.
    pub line: usize,
    /// The method that Puma does not have, if that is the reason.
    pub unknown: Option<String>,
    /// The message.
    pub text: String,
}

impl fmt::Display for PumaRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "{}:{}: ", self.file.display(), self.line)?;
        }
        match &self.unknown {
            Some(name) => {
                write!(f, "{name}: Puma has no such setting")?;
                match nearest_method(name) {
                    Some(near) => write!(f, "; did you mean {near:?}?"),
                    None => Ok(()),
                }
            }
            None => write!(f, "{}", self.text),
        }
    }
}

impl PumaRefusal {
    /// Decodes a refusal from words.
    ///
    /// # Errors
    /// The words are malformed.
    pub fn decode(words: &[&str]) -> Result<PumaRefusal, String> {
        let [file, line, unknown, text] = words else {
            return Err(format!("{} words where a refusal has four", words.len()));
        };
        Ok(PumaRefusal {
            file: file.into(),
            line: number(line)?,
            unknown: Some((*unknown).to_owned()).filter(|name| !name.is_empty()),
            text: (*text).to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_place_and_nearest_method() {
        let refusal = PumaRefusal::decode(&["config/puma.rb", "7", "worker_timout", ""]).unwrap();
        let text =
            "config/puma.rb:7: worker_timout: Puma has no such setting; did you mean \"worker_timeout\"?";
        assert_eq!(refusal.to_string(), text);
        let raised =
            PumaRefusal::decode(&["config/puma.rb", "2", "", "KeyError: key not found: \"X\""]).unwrap();
        assert_eq!(raised.to_string(), "config/puma.rb:2: KeyError: key not found: \"X\"");
        assert!(PumaRefusal::decode(&["a"]).is_err());
    }
}
