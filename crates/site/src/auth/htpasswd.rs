//! The htpasswd file: `user:hash` lines.
//!
//! Contract, as nginx reads it: empty lines and lines that begin with `#` are left out, what follows a second colon is a comment,
//! and the first line of a name is the one that counts. Otherwise than nginx, which finds out when somebody logs in, all
//! lines are judged at once, and none with a mistake is passed over.

use super::hash::Hash;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file's name, or what stands for it.
    pub file: String,
    /// Line, from 1; 0 when there are no lines.
    pub line: usize,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message),
            line => write!(f, "{}:{line}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for Mistake {}

/// Names and hashes.
#[derive(Debug, Clone, Default)]
pub struct Users {
    hashes: Vec<Arc<Hash>>,
    /// Where in `hashes` a name's is.
    places: HashMap<String, usize>,
    /// Chooses whose hash stands in for an unknown name.
    stand_ins: RandomState,
}

impl Users {
    /// Reads a file's text; `name` is for messages.
    ///
    /// # Errors
    /// All lines that are wrong.
    pub fn parse(name: &str, text: &str) -> Result<Users, Vec<Mistake>> {
        let mut users = Users::default();
        let mut mistakes = Vec::new();
        for (index, line) in text.strip_prefix('\u{feff}').unwrap_or(text).lines().enumerate() {
            match read_line(line) {
                Ok(Some((user, hash))) => users.insert(user, hash),
                Ok(None) => {}
                Err(message) => mistakes.push(Mistake { file: name.to_owned(), line: index + 1, message }),
            }
        }
        if mistakes.is_empty() { Ok(users) } else { Err(mistakes) }
    }

    /// One user more (`BASIC_AUTH_USERNAME`, `BASIC_AUTH_PASSWORD`), after those that are there: a name's first line counts, as in nginx.
    ///
    /// # Errors
    /// The name cannot be one, or the password is not a hash that we know.
    pub fn with(mut self, user: &str, hash: &str) -> Result<Users, Mistake> {
        let mistake = |file: &str, message| Mistake { file: file.to_owned(), line: 0, message };
        check_name(user).map_err(|message| mistake("BASIC_AUTH_USERNAME", message))?;
        let hash = Hash::read(hash.trim_ascii()).map_err(|message| {
            mistake("BASIC_AUTH_PASSWORD", format!("the password of {user:?} {message}"))
        })?;
        self.insert(user, hash);
        Ok(self)
    }

    /// How many users there are.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether there are none: nobody comes in.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    fn insert(&mut self, user: &str, hash: Hash) {
        if let Entry::Vacant(place) = self.places.entry(user.to_owned()) {
            place.insert(self.hashes.len());
            self.hashes.push(Arc::new(hash));
        }
    }

    /// The hash to check a password of `user` against, and whether it is theirs. An unknown name is checked against
    /// somebody's, the same one each time, so that it costs what a name costs that exists. `None` without users.
    pub(super) fn hash_for(&self, user: &str) -> Option<(Arc<Hash>, bool)> {
        let stand_in = self.stand_ins.hash_one(user).checked_rem(self.hashes.len() as u64)? as usize;
        let known = self.places.get(user).copied();
        Some((Arc::clone(self.hashes.get(known.unwrap_or(stand_in))?), known.is_some()))
    }
}

/// Name and hash of a line; `None` when it has none.
fn read_line(line: &str) -> Result<Option<(&str, Hash)>, String> {
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
            "the line of {user:?} is one of htdigest's, which are for another scheme; make one with `htpasswd -nB USER`"
        ));
    }
    let text = if text.starts_with("{PLAIN}") { text } else { text.trim_ascii() };
    match Hash::read(text) {
        Ok(hash) => Ok(Some((user, hash))),
        Err(message) => Err(format!("the password of {user:?} {message}")),
    }
}

fn check_name(user: &str) -> Result<(), String> {
    if user.is_empty() {
        return Err("the user's name is empty".to_owned());
    }
    if user.contains(|letter: char| letter == ':' || letter.is_control()) {
        return Err(format!(
            "{user:?} cannot be a user's name: it has a colon or a control character in it, which no browser can send"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SHA: &str = "{SHA}L55TUjtiq8FBorTWAZ0jy6g129A=";

    fn admits(users: &Users, user: &str, password: &str) -> bool {
        users.hash_for(user).is_some_and(|(hash, known)| hash.admits(password.as_bytes()) && known)
    }

    #[test]
    fn lines_comments_and_line_ends() {
        let text = format!(
            "\u{feff}# people\r\n\r\nann:{SHA}\r\n   \nbob smith:{{PLAIN}}b \n#{SHA}\ncy:{SHA}  \ndee:{SHA}:Dee, 2nd floor"
        );
        let users = Users::parse(".htpasswd", &text).unwrap();
        assert_eq!(users.len(), 4);
        for user in ["ann", "cy", "dee"] {
            assert!(admits(&users, user, "correct horse") && !admits(&users, user, "b "), "{user}");
        }
        assert!(admits(&users, "bob smith", "b ") && !admits(&users, "bob smith", "b"));
        assert!(!admits(&users, "# people", "") && !admits(&users, "Ann", "correct horse"));
    }

    #[test]
    fn the_first_line_of_a_name_counts() {
        let users = Users::parse("x", "ann:{PLAIN}one\nann:{PLAIN}two\n").unwrap();
        assert!(admits(&users, "ann", "one") && !admits(&users, "ann", "two"));
        let users = users.with("ann", "{PLAIN}three").unwrap().with("bob", &format!("{SHA}\n")).unwrap();
        assert!(admits(&users, "ann", "one") && !admits(&users, "ann", "three"));
        assert!(admits(&users, "bob", "correct horse"));
        assert_eq!(users.len(), 2);
    }

    #[test]
    fn all_mistakes_are_told_with_their_lines() {
        let text = format!(
            "ann:{SHA}\nbob\n\n:{SHA}\ncy:hunter2\ndee:realm:0123456789abcdef0123456789abcdef\ne\tf:{SHA}\n"
        );
        let mistakes = Users::parse("conf/.htpasswd", &text).unwrap_err();
        let told: Vec<String> = mistakes.iter().map(Mistake::to_string).collect();
        for (told, (begin, part)) in told.iter().zip([
            ("conf/.htpasswd:2: ", "no colon"),
            ("conf/.htpasswd:4: ", "empty"),
            ("conf/.htpasswd:5: ", "the password of \"cy\" is not a hash"),
            ("conf/.htpasswd:6: ", "htdigest"),
            ("conf/.htpasswd:7: ", "\"e\\tf\""),
        ]) {
            assert!(told.starts_with(begin) && told.contains(part) && !told.contains("hunter2"), "{told}");
        }
        assert_eq!(told.len(), 5);
    }

    #[test]
    fn a_password_in_the_environment_must_be_a_hash() {
        let told = |user: &str, hash: &str| Users::default().with(user, hash).unwrap_err().to_string();
        let plain = told("ann", "hunter2");
        assert!(
            plain.starts_with("BASIC_AUTH_PASSWORD: ") && plain.contains("openssl passwd -apr1"),
            "{plain}"
        );
        assert!(!plain.contains("hunter2"));
        assert!(told("", SHA).starts_with("BASIC_AUTH_USERNAME: "));
        assert!(told("a:b", SHA).starts_with("BASIC_AUTH_USERNAME: "));
    }

    #[test]
    fn an_unknown_name_has_always_the_same_stand_in() {
        assert!(Users::default().hash_for("ann").is_none() && Users::default().is_empty());
        let lines: Vec<String> = (0..50).map(|n| format!("user{n}:{{PLAIN}}{n}\n")).collect();
        let users = Users::parse("x", &lines.concat()).unwrap();
        let of = |name: &str| users.hash_for(name).unwrap();
        assert!(Arc::ptr_eq(&of("nobody").0, &of("nobody").0) && !of("nobody").1 && of("user7").1);
        let others = (0..50).filter(|n| !Arc::ptr_eq(&of(&format!("no{n}")).0, &of("nobody").0)).count();
        assert!(others > 0, "not everybody has the same stand-in");
    }

    #[test]
    fn hashes_are_not_printed() {
        let users = Users::parse("x", &format!("ann:{SHA}")).unwrap();
        assert!(!format!("{users:?}").contains("L55TUjtiq8"));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text: String) {
            if let Err(mistakes) = Users::parse("x", &text) {
                let lines = text.lines().count();
                prop_assert!(!mistakes.is_empty() && mistakes.iter().all(|it| (1..=lines).contains(&it.line)));
            }
        }

        #[test]
        fn what_was_written_is_read(names in prop::collection::btree_set("[^:#\\p{Cc}\\s\u{feff}][^:\\p{Cc}]{0,10}", 1..8)) {
            let text: String = names.iter().map(|name| format!("{name}:{{PLAIN}}{name}\n")).collect();
            let users = Users::parse("x", &text).unwrap();
            prop_assert_eq!(users.len(), names.len());
            prop_assert!(names.iter().all(|name| admits(&users, name, name)));
            prop_assert!(!admits(&users, "", ""));
        }
    }
}
