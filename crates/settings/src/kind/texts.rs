//! Words, paths and choices.

use std::path::PathBuf;

use super::numbers::OrDefault;
use super::{Completion, Kind, Mistake};
use crate::nearest::nearest;
use crate::raw::Raw;

/// `true` or `false`.
pub(crate) struct Switch;

impl Kind for Switch {
    type Value = bool;

    fn read(&self, raw: &Raw) -> Result<bool, Mistake> {
        let on = match raw {
            Raw::Switch(on) => Some(*on),
            Raw::Word(text) => text.parse().ok(),
            _ => None,
        };
        on.ok_or_default()
    }

    fn expected(&self) -> String {
        "true or false".to_owned()
    }

    fn words(&self) -> Vec<&'static str> {
        vec!["true", "false"]
    }
}

/// One of a few words.
pub(crate) struct Choice<T: 'static>(pub(crate) &'static [(&'static str, T)]);

impl<T: Copy + Sync> Kind for Choice<T> {
    type Value = T;

    fn read(&self, raw: &Raw) -> Result<T, Mistake> {
        let text = raw.text().ok_or_default()?;
        let found = self.0.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
        found.ok_or_else(|| Mistake::default().near(nearest(text, self.words())))
    }

    fn expected(&self) -> String {
        let quoted: Vec<String> = self.words().iter().map(|word| format!("\"{word}\"")).collect();
        format!("one of {}", quoted.join(", "))
    }

    fn words(&self) -> Vec<&'static str> {
        self.0.iter().map(|(name, _)| *name).collect()
    }
}

/// Text without control characters, not blank.
pub(crate) struct Text;

impl Kind for Text {
    type Value = String;

    fn read(&self, raw: &Raw) -> Result<String, Mistake> {
        let plain = |text: &&str| !text.trim().is_empty() && !text.contains(char::is_control);
        raw.text().filter(plain).map(str::to_owned).ok_or_default()
    }

    fn expected(&self) -> String {
        "text on one line".to_owned()
    }
}

/// A password that goes into a header field and a URL.
pub(crate) struct Secret;

impl Kind for Secret {
    type Value = String;

    fn read(&self, raw: &Raw) -> Result<String, Mistake> {
        let usable =
            |text: &&str| (1..=256).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
        raw.text().filter(usable).map(str::to_owned).ok_or_default()
    }

    fn expected(&self) -> String {
        "1 to 256 characters of ASCII without blanks".to_owned()
    }
}

/// A path as written; made absolute later, when it is known where it was written.
pub(crate) struct Path(pub(crate) Completion);

impl Kind for Path {
    type Value = PathBuf;

    fn read(&self, raw: &Raw) -> Result<PathBuf, Mistake> {
        let usable = |text: &&str| !text.trim().is_empty() && !text.contains('\0');
        raw.text().filter(usable).map(PathBuf::from).ok_or_default()
    }

    fn expected(&self) -> String {
        match self.0 {
            Completion::Directory => "the path of a directory".to_owned(),
            Completion::Any => "the path of a directory or file".to_owned(),
            _ => "the path of a file".to_owned(),
        }
    }

    fn completion(&self) -> Completion {
        self.0
    }
}

/// A path, or a word that stands for something else.
pub(crate) struct PathOr(pub(crate) &'static [&'static str]);

/// What was written for a [`PathOr`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PathOrWord {
    /// One of the words.
    Word(&'static str),
    /// Anything else.
    Path(PathBuf),
}

impl Kind for PathOr {
    type Value = PathOrWord;

    fn read(&self, raw: &Raw) -> Result<PathOrWord, Mistake> {
        if let Some(word) = self.0.iter().find(|word| raw.text() == Some(word)) {
            return Ok(PathOrWord::Word(word));
        }
        if *raw == Raw::Switch(false) && self.0.contains(&"off") {
            return Ok(PathOrWord::Word("off"));
        }
        let path = Path(Completion::File).read(raw).map_err(|_| Mistake::default())?;
        Ok(PathOrWord::Path(path))
    }

    fn expected(&self) -> String {
        let quoted: Vec<String> = self.0.iter().map(|word| format!("\"{word}\"")).collect();
        format!("the path of a file or {}", quoted.join(" or "))
    }

    fn words(&self) -> Vec<&'static str> {
        self.0.to_vec()
    }

    fn completion(&self) -> Completion {
        Completion::File
    }
}

/// A host name or address without a port; IPv6 with or without brackets.
pub(crate) struct Host;

impl Kind for Host {
    type Value = String;

    fn read(&self, raw: &Raw) -> Result<String, Mistake> {
        let text = raw.text().ok_or_default()?;
        crate::value::bind::parse_host(text).map_err(Mistake::expected)
    }

    fn expected(&self) -> String {
        "an address or host name such as 127.0.0.1, ::1 or localhost".to_owned()
    }
}

/// The name of a header field (RFC 9110 section 5.1).
pub(crate) struct HeaderName;

impl Kind for HeaderName {
    type Value = String;

    fn read(&self, raw: &Raw) -> Result<String, Mistake> {
        let token = |text: &&str| {
            let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            !text.is_empty() && text.len() <= 256 && text.bytes().all(valid)
        };
        raw.text().filter(token).map(str::to_owned).ok_or_default()
    }

    fn expected(&self) -> String {
        "the name of a header such as \"X-Request-Id\"".to_owned()
    }
}
