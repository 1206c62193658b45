//! Parses the htpasswd file: `user:hash` lines.
//!
//! Contract: as in nginx, empty lines and lines that start with `#` are ignored, text after a second colon is
//! a comment, and the first line for a user name counts. Unlike nginx, which reports a malformed line when
//! its user logs in, all lines are checked when the file is read, and every mistake is reported.

use crate::hash::Hash;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// A malformed line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HtpasswdMistake {
    /// The file's name, or the environment variable.
    pub file: String,
    /// The line number, from 1; 0 for an environment variable.
    pub line: usize,
    /// Describes the mistake and how to fix it.
    pub message: String,
}

impl fmt::Display for HtpasswdMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message),
            line => write!(f, "{}:{line}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for HtpasswdMistake {}

/// User names and their password hashes.
#[derive(Debug, Clone, Default)]
pub struct Users {
    hashes: Vec<Arc<Hash>>,
    /// Indexes into `hashes` by user name.
    index: HashMap<String, usize>,
    /// Chooses the hash that is checked for an unknown name.
    decoys: RandomState,
}

impl Users {
    /// Parses the text of a file; `name` is for messages.
    ///
    /// # Errors
    /// All malformed lines.
    pub fn parse(name: &str, text: &str) -> Result<Users, Vec<HtpasswdMistake>> {
        let mut users = Users::default();
        let mut mistakes = Vec::new();
        for (index, line) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate() {
            match parse_line(line) {
                Ok(Some((user, hash))) => users.insert(user, hash),
                Ok(None) => {}
                Err(message) => {
                    mistakes.push(HtpasswdMistake { file: name.to_owned(), line: index + 1, message })
                }
            }
        }
        if mistakes.is_empty() { Ok(users) } else { Err(mistakes) }
    }

    /// Adds a user (`BASIC_AUTH_USERNAME`, `BASIC_AUTH_PASSWORD`). Does nothing if the name exists already:
    /// the first entry counts.
    ///
    /// # Errors
    /// The name is invalid, or the password is not a supported hash.
    pub fn with(mut self, user: &str, hash: &str) -> Result<Users, HtpasswdMistake> {
        let mistake = |file: &str, message| HtpasswdMistake { file: file.to_owned(), line: 0, message };
        check_name(user).map_err(|message| mistake("BASIC_AUTH_USERNAME", message))?;
        let hash = Hash::parse(hash.trim_ascii()).map_err(|message| {
            mistake("BASIC_AUTH_PASSWORD", format!("the password of {user:?} {message}"))
        })?;
        self.insert(user, hash);
        Ok(self)
    }

    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Returns whether there are no users, so that all credentials are rejected.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    fn insert(&mut self, user: &str, hash: Hash) {
        if let Entry::Vacant(entry) = self.index.entry(user.to_owned()) {
            entry.insert(self.hashes.len());
            self.hashes.push(Arc::new(hash));
        }
    }

    /// Returns the hash to check `user`'s password against, and whether the user exists. For an unknown name
    /// this is the hash of some other user, always the same one, so that the check takes as long as for an
    /// existing name. `None` without users.
    pub(super) fn hash_for(&self, user: &str) -> Option<(Arc<Hash>, bool)> {
        let decoy = self.decoys.hash_one(user).checked_rem(self.hashes.len() as u64)? as usize;
        let known = self.index.get(user).copied();
        Some((Arc::clone(self.hashes.get(known.unwrap_or(decoy))?), known.is_some()))
    }
}

/// Returns name and hash of a line; `None` for empty lines and comments.
fn parse_line(line: &str) -> Result<Option<(&str, Hash)>, String> {
    if line.starts_with('#') || line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let Some((user, rest)) = line.split_once(':') else {
        return Err("no colon: a line is USER:HASH, as `htpasswd -nB USER` prints it".to_owned());
    };
    check_name(user)?;
    let (text, comment) = rest.split_once(':').unwrap_or((rest, ""));
    if comment.trim_ascii().len() == 32 && comment.trim_ascii().bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!(
            "the line of {user:?} was made by htdigest, for HTTP Digest authentication; make one for Basic with `htpasswd -nB USER`"
        ));
    }
    let text = if text.starts_with("{PLAIN}") { text } else { text.trim_ascii() };
    match Hash::parse(text) {
        Ok(hash) => Ok(Some((user, hash))),
        Err(message) => Err(format!("the password of {user:?} {message}")),
    }
}

fn check_name(user: &str) -> Result<(), String> {
    if user.is_empty() {
        return Err("the user name is empty".to_owned());
    }
    if user.contains(|character: char| character == ':' || character.is_control()) {
        return Err(format!("{user:?} cannot be a user name: it contains a colon or a control character"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHA: &str = "{SHA}L55TUjtiq8FBorTWAZ0jy6g129A=";

    fn accepts(users: &Users, user: &str, password: &str) -> bool {
        users.hash_for(user).is_some_and(|(hash, known)| hash.verify(password.as_bytes()) && known)
    }

    #[test]
    fn lines_comments_and_line_ends() {
        let text = format!(
            "\u{feff}# people\r\n\r\nann:{SHA}\r\n   \nbob smith:{{PLAIN}}b \n#{SHA}\ncy:{SHA}  \ndee:{SHA}:Dee, 2nd floor"
        );
        let users = Users::parse(".htpasswd", &text).unwrap();
        assert_eq!(users.len(), 4);
        for user in ["ann", "cy", "dee"] {
            assert!(accepts(&users, user, "correct horse") && !accepts(&users, user, "b "), "{user}");
        }
        assert!(accepts(&users, "bob smith", "b ") && !accepts(&users, "bob smith", "b"));
        assert!(!accepts(&users, "# people", "") && !accepts(&users, "Ann", "correct horse"));
    }

    #[test]
    fn the_first_line_of_a_name_counts() {
        let users = Users::parse("x", "ann:{PLAIN}one\nann:{PLAIN}two\n").unwrap();
        assert!(accepts(&users, "ann", "one") && !accepts(&users, "ann", "two"));
        let users = users.with("ann", "{PLAIN}three").unwrap().with("bob", &format!("{SHA}\n")).unwrap();
        assert!(accepts(&users, "ann", "one") && !accepts(&users, "ann", "three"));
        assert!(accepts(&users, "bob", "correct horse"));
        assert_eq!(users.len(), 2);
    }

    #[test]
    fn all_mistakes_are_reported_with_their_lines() {
        let text = format!(
            "ann:{SHA}\nbob\n\n:{SHA}\ncy:hunter2\ndee:realm:0123456789abcdef0123456789abcdef\ne\tf:{SHA}\n"
        );
        let mistakes = Users::parse("conf/.htpasswd", &text).unwrap_err();
        let messages: Vec<String> = mistakes.iter().map(HtpasswdMistake::to_string).collect();
        for (message, (begin, part)) in messages.iter().zip([
            ("conf/.htpasswd:2: ", "no colon"),
            ("conf/.htpasswd:4: ", "empty"),
            ("conf/.htpasswd:5: ", "the password of \"cy\" is not a supported hash"),
            ("conf/.htpasswd:6: ", "htdigest"),
            ("conf/.htpasswd:7: ", "\"e\\tf\""),
        ]) {
            assert!(
                message.starts_with(begin) && message.contains(part) && !message.contains("hunter2"),
                "{message}"
            );
        }
        assert_eq!(messages.len(), 5);
    }

    #[test]
    fn a_password_in_the_environment_must_be_a_hash() {
        let error = |user: &str, hash: &str| Users::default().with(user, hash).unwrap_err().to_string();
        let plain = error("ann", "hunter2");
        assert!(
            plain.starts_with("BASIC_AUTH_PASSWORD: ") && plain.contains("openssl passwd -apr1"),
            "{plain}"
        );
        assert!(!plain.contains("hunter2"));
        assert!(error("", SHA).starts_with("BASIC_AUTH_USERNAME: "));
        assert!(error("a:b", SHA).starts_with("BASIC_AUTH_USERNAME: "));
    }

    #[test]
    fn an_unknown_name_always_has_the_same_decoy() {
        assert!(Users::default().hash_for("ann").is_none() && Users::default().is_empty());
        let lines: Vec<String> = (0..50).map(|n| format!("user{n}:{{PLAIN}}{n}\n")).collect();
        let users = Users::parse("x", &lines.concat()).unwrap();
        let of = |name: &str| users.hash_for(name).unwrap();
        assert!(Arc::ptr_eq(&of("nobody").0, &of("nobody").0) && !of("nobody").1 && of("user7").1);
        let others = (0..50).filter(|n| !Arc::ptr_eq(&of(&format!("no{n}")).0, &of("nobody").0)).count();
        assert!(others > 0, "not all names have the same decoy");
    }

    #[test]
    fn hashes_are_not_printed() {
        let users = Users::parse("x", &format!("ann:{SHA}")).unwrap();
        assert!(!format!("{users:?}").contains("L55TUjtiq8"));
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text: String) {
            if let Err(mistakes) = Users::parse("x", &text) {
                let lines = text.lines().count();
                prop_assert!(!mistakes.is_empty() && mistakes.iter().all(|it| (1..=lines).contains(&it.line)));
            }
        }

        #[test]
        fn written_users_are_parsed_back(names in prop::collection::btree_set("[^:#\\p{Cc}\\s\u{feff}][^:\\p{Cc}]{0,10}", 1..8)) {
            let text: String = names.iter().map(|name| format!("{name}:{{PLAIN}}{name}\n")).collect();
            let users = Users::parse("x", &text).unwrap();
            prop_assert_eq!(users.len(), names.len());
            prop_assert!(names.iter().all(|name| accepts(&users, name, name)));
            prop_assert!(!accepts(&users, "", ""));
        }
    }
}
