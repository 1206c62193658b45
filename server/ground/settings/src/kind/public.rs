//! The kinds of `public` and `serve_public`: a directory or a word.

use std::path::Path;

use super::{Completion, Mistake, ValueKind};
use crate::nearest::nearest;
use crate::raw::Raw;
use crate::value::anchored;
use crate::value::public::{Public, ServePublic};

/// Reads the path of a directory, or one of the words.
pub(crate) struct PublicDirectory;

/// Reads one of the words.
pub(crate) struct ServeWord;

const WORDS: [&str; 3] = ["auto", "always", "off"];

fn word(raw: &Raw) -> Option<Option<ServePublic>> {
    match raw {
        Raw::Switch(on) => Some(on.then_some(ServePublic::Always)),
        _ => match raw.text()? {
            "auto" => Some(Some(ServePublic::Auto)),
            "always" | "true" => Some(Some(ServePublic::Always)),
            "off" | "false" => Some(None),
            _ => None,
        },
    }
}

impl ValueKind<Public> for PublicDirectory {
    fn read(&self, raw: &Raw) -> Result<Public, Mistake> {
        if let Some(word) = word(raw) {
            return Ok(Public::Word(word));
        }
        let usable = |text: &&str| !text.trim().is_empty() && !text.contains('\0');
        raw.text().filter(usable).map(|path| Public::Directory(path.into())).ok_or_else(Mistake::default)
    }

    fn anchor(&self, value: Public, base: &Path) -> Public {
        match value {
            Public::Directory(path) => Public::Directory(anchored(&path, base)),
            Public::Word(word) => Public::Word(word),
        }
    }

    fn expected(&self) -> String {
        "the path of a directory, \"auto\", \"always\" or \"off\"".to_owned()
    }

    fn words(&self) -> Vec<&'static str> {
        WORDS.to_vec()
    }

    fn completion(&self) -> Completion {
        Completion::Directory
    }
}

impl ValueKind<Option<ServePublic>> for ServeWord {
    fn read(&self, raw: &Raw) -> Result<Option<ServePublic>, Mistake> {
        word(raw).ok_or_else(|| Mistake::default().near(raw.text().and_then(|text| nearest(text, WORDS))))
    }

    fn expected(&self) -> String {
        "\"auto\", \"always\" (or true) or \"off\" (or false)".to_owned()
    }

    fn words(&self) -> Vec<&'static str> {
        WORDS.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_or_a_word() {
        let read = |text: &str| PublicDirectory.read(&Raw::Word(text.to_owned())).unwrap();
        assert_eq!(read("dist"), Public::Directory("dist".into()));
        assert_eq!(read("./always"), Public::Directory("./always".into()));
        assert_eq!(read("always"), Public::Word(Some(ServePublic::Always)));
        assert_eq!(read("off"), Public::Word(None));
        let anchored = PublicDirectory.anchor(read("auto"), Path::new("/srv/app"));
        assert_eq!(anchored, Public::Word(Some(ServePublic::Auto)));
        assert!(ServeWord.read(&Raw::Word("alway".into())).unwrap_err().nearest.is_some());
    }
}
