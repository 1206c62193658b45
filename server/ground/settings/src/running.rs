//! Changes of settings while the server runs (`firebrick set`).
//!
//! Contract:
//! 1. The values of a change are read by the table and the grammar of `firebrick.toml`, and are stronger than
//!    every other source.
//! 2. Nothing is read again: files, variables and links are those of the last start or reload.
//! 3. [`settable`] names the remedy for each key that a running server does not change.

use crate::environment::Environment;
use crate::error::{Error, Errors};
use crate::file::{NAMED_TABLES, QUEUE_CLASSES, command_line_only, is_section, nearest_key};
use crate::origin::ValueSource;
use crate::raw::Raw;
use crate::reading::CONFIG_FILE;
use crate::resolve::Loaded;
use crate::table::{self, About};
use crate::written::Written;

/// A value that replaces the one of the start or of the last reload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningValue {
    pub key: String,
    pub value: String,
    /// The description of the change, as [`ValueSource::Set`] has it.
    pub source: String,
}

impl RunningValue {
    fn written(&self) -> Written {
        let raw = Raw::Word(self.value.clone());
        Written { raw, origin: ValueSource::Set(self.source.as_str().into()) }
    }
}

/// Returns the option of a key that a running server changes at once.
///
/// # Errors
/// There is no such key, or a change of it takes a reload or a start. The text names the nearest key, or the remedy.
pub fn settable(key: &str) -> Result<&'static About, Error> {
    let refused = |problem: String, nearest: Option<&str>| {
        let written = key.escape_debug().to_string();
        let nearest = nearest.map(str::to_owned);
        Err(Error { origin: ValueSource::Set("".into()), written, problem, nearest })
    };
    let entry = table::entries().map(|entry| entry.about()).find(|about| about.in_file && about.key == key);
    let Some(about) = entry else {
        let table = key.rsplit_once('.').map_or(key, |(table, _)| table);
        if let Some(flag) = command_line_only(key) {
            return refused(format!("can only be given at the start{flag}"), None);
        }
        let mut named = NAMED_TABLES.into_iter().chain([QUEUE_CLASSES]);
        if let Some(table) = named.find(|name| table == *name || key == *name) {
            return refused(
                format!(
                    "`firebrick set` changes no tables: change [{table}] in {CONFIG_FILE} and run `firebrick reload`"
                ),
                None,
            );
        }
        if is_section(key) {
            return refused(format!("expected a key of this table, such as {}", first_of(key)), None);
        }
        return refused("unknown key".to_owned(), nearest_key(key));
    };
    if !about.reloadable {
        return refused(
            format!(
                "a running server cannot change it: write it into {CONFIG_FILE}, it takes effect with `firebrick upgrade` or a restart"
            ),
            None,
        );
    }
    if about.reload_only {
        return refused(
            format!(
                "it takes a reload, because only new workers apply it: write it into {CONFIG_FILE} and run `firebrick reload`"
            ),
            None,
        );
    }
    Ok(about)
}

fn first_of(section: &str) -> &'static str {
    let keys = table::entries().map(|entry| entry.about()).filter(|about| about.in_file);
    let mut inside =
        keys.filter(|about| about.key.split_once('.').is_some_and(|(table, _)| table == section));
    inside.next().map_or("limits.max_body", |about| about.key)
}

impl Loaded {
    /// Returns these settings with values that replace their own. Of two values of a key the last one wins.
    ///
    /// # Errors
    /// All mistakes together: a key that cannot be changed, a wrong value, or a contradiction.
    pub fn changed(&self, environment: &dyn Environment, values: &[RunningValue]) -> Result<Loaded, Errors> {
        let mut reading = self.reading.clone();
        let mut refused = Vec::new();
        for value in values {
            match settable(&value.key) {
                Ok(about) => reading.given.override_with(about.key, value.written()),
                Err(error) => refused.push(error),
            }
        }
        if !refused.is_empty() {
            return Err(Errors(refused));
        }
        let changed = reading.load(environment, self.calls.as_deref())?;
        // Another change builds on what was read, not on this change.
        Ok(Loaded { reading: self.reading.clone(), ..changed })
    }

    /// Returns the value of a key as it was written, and its source. Secrets are hidden.
    pub fn value_of(&self, key: &str) -> (String, String) {
        let chosen = self.choices.iter().find(|choice| choice.key == key);
        let about = || table::entries().map(|entry| entry.about()).find(|about| about.key == key);
        match chosen {
            Some(choice) => (choice.value.clone(), choice.origin.to_string()),
            None => {
                let default = about().and_then(About::shown_default).unwrap_or_default();
                (default.to_owned(), ValueSource::Default.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fake;
    use crate::{Argument, load};
    use proptest::prelude::*;

    fn value(key: &str, value: &str) -> RunningValue {
        RunningValue { key: key.to_owned(), value: value.to_owned(), source: "set by root".to_owned() }
    }

    fn loaded() -> (Loaded, Fake) {
        let dir = Fake { dir: std::env::temp_dir(), ..Fake::new(&[]) };
        let flag = Argument {
            key: "limits.max_body",
            flag: "--max-body".to_owned(),
            values: vec!["1MiB".to_owned()],
        };
        (load(&[flag], &dir).unwrap(), dir)
    }

    #[test]
    fn a_change_is_stronger_than_a_flag_and_builds_on_what_was_read() {
        let (before, dir) = loaded();
        let changed = before.changed(&dir, &[value("limits.max_body", "20MiB")]).unwrap();
        assert_eq!(changed.settings.limits.max_body, Some(20 << 20));
        assert_eq!(changed.value_of("limits.max_body"), ("20MiB".to_owned(), "set by root".to_owned()));
        let both = [value("limits.max_body", "20MiB"), value("limits.max_body", "3MiB")];
        assert_eq!(before.changed(&dir, &both).unwrap().settings.limits.max_body, Some(3 << 20), "the last");
        assert_eq!(changed.changed(&dir, &[]).unwrap(), before, "without changes all is as it was");
        assert_eq!(before.value_of("limits.max_body"), ("1MiB".to_owned(), "--max-body".to_owned()));
        assert_eq!(before.value_of("limits.max_headers"), ("100".to_owned(), "default".to_owned()));
    }

    #[test]
    fn mistakes_name_the_key_the_form_and_the_remedy() {
        let (before, dir) = loaded();
        for (key, new, problem) in [
            ("limits.max_bodyy", "1", "limits.max_bodyy: unknown key; did you mean \"limits.max_body\"?"),
            ("limits.max_body", "big", "limits.max_body=big: expected "),
            ("limits", "1", "limits: expected a key of this table, such as limits.max_header_bytes"),
            ("port", "1", "port: a running server cannot change it: write it into firebrick.toml"),
            ("workers", "2", "workers: it takes a reload"),
            ("dir", "/", "dir: can only be given at the start"),
            ("rate_limits.login", "5/m", "`firebrick set` changes no tables: change [rate_limits]"),
            ("limits.max_uri", "128KiB", "max_header_bytes"),
        ] {
            let why = before.changed(&dir, &[value(key, new)]).unwrap_err().to_string();
            assert!(why.contains(problem), "{key}: {why}");
        }
        let two = [value("limits.nothing", "1"), value("port", "1")];
        assert_eq!(before.changed(&dir, &two).unwrap_err().0.len(), 2, "all mistakes together");
    }

    #[test]
    fn every_option_is_changed_or_names_its_remedy() {
        for about in table::entries().map(|entry| entry.about()) {
            match settable(about.key) {
                Ok(found) => assert!(found.reloadable && !found.reload_only, "{}", about.key),
                Err(error) => {
                    let told = error.to_string();
                    assert!(told.contains("start") || told.contains("firebrick reload"), "{told}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_key_and_value_is_taken_or_refused(key in "[a-z_.]{0,30}|\\PC{0,30}", new in "\\PC{0,30}") {
            let (before, dir) = loaded();
            if let Ok(changed) = before.changed(&dir, &[value(&key, &new)]) {
                prop_assert_eq!(changed.changed(&dir, &[]).unwrap(), before);
            }
        }
    }
}
