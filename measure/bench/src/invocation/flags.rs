//! Reads the flags and collects mistakes in them.

use std::time::Duration;

use clap::ArgMatches;
use clap::parser::ValueSource;
use load::inputs;

/// The parsed flags, and the errors found so far.
pub(super) struct Flags<'a> {
    matches: &'a ArgMatches,
    mistakes: Vec<String>,
}

impl<'a> Flags<'a> {
    pub fn new(matches: &'a ArgMatches) -> Flags<'a> {
        Flags { matches, mistakes: Vec::new() }
    }

    /// Returns `value`, or all errors.
    pub fn finish<T>(self, value: T) -> Result<T, Vec<String>> {
        if self.mistakes.is_empty() { Ok(value) } else { Err(self.mistakes) }
    }

    pub fn into_mistakes(self) -> Vec<String> {
        self.mistakes
    }

    pub fn mistake(&mut self, text: impl Into<String>) {
        self.mistakes.push(text.into());
    }

    /// Returns whether a flag without a value was given.
    pub fn is_set(&self, name: &str) -> bool {
        self.matches.get_flag(name)
    }

    /// Returns whether the flag was given on the command line.
    pub fn given(&self, name: &str) -> bool {
        self.matches.value_source(name) == Some(ValueSource::CommandLine)
    }

    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.matches.get_one::<String>(name).map(String::as_str)
    }

    pub fn texts(&self, name: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        self.matches.get_many::<String>(name).into_iter().flatten().map(String::as_str)
    }

    /// Returns the value if it was given and is valid.
    pub fn value<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        match read(self.text(name)?) {
            Ok(value) => Some(value),
            Err(why) => {
                self.mistake(format!("--{name}: {why}"));
                None
            }
        }
    }

    /// Returns all valid values.
    pub fn each<T>(&mut self, name: &str, read: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        let (good, bad): (Vec<_>, Vec<_>) = self.texts(name).map(read).partition(Result::is_ok);
        self.mistakes.extend(bad.into_iter().filter_map(Result::err).map(|why| format!("--{name}: {why}")));
        good.into_iter().filter_map(Result::ok).collect()
    }

    pub fn duration(&mut self, name: &str) -> Option<Duration> {
        self.value(name, inputs::duration)
    }

    /// Returns a duration above 0.
    pub fn positive_duration(&mut self, name: &str) -> Option<Duration> {
        self.value(name, |text| match inputs::duration(text)? {
            Duration::ZERO => Err(format!("{text:?}: a duration must be above 0, such as 30s")),
            duration => Ok(duration),
        })
    }

    pub fn count(&mut self, name: &str) -> Option<usize> {
        self.value(name, |text| {
            let count = inputs::count(text)?;
            usize::try_from(count)
                .ok()
                .filter(|count| *count <= 1_000_000)
                .ok_or_else(|| format!("{text}: at most 1000000"))
        })
    }

    /// Reports an error for each of `others` that was given together with `name`.
    pub fn not_with(&mut self, name: &str, others: &[&str], why: &str) {
        for other in others {
            if self.given(name) && self.given(other) {
                self.mistake(format!("--{other} cannot be used with --{name}: {why}"));
            }
        }
    }

    /// Reports an error if `name` was given without `other`.
    pub fn needs(&mut self, name: &str, other: &str, why: &str) {
        if self.given(name) && !self.given(other) {
            self.mistake(format!("--{name} requires --{other}: {why}"));
        }
    }

    /// Reports an error if the command line has a flag that is not in `names`; the error lists all of them.
    pub fn only(&mut self, names: &[&str], why: &str) {
        let others: Vec<String> = self
            .matches
            .ids()
            .map(|id| id.as_str())
            .filter(|id| !names.contains(id) && self.given(id))
            .map(|id| if id == "url" { "a URL".to_owned() } else { format!("--{id}") })
            .collect();
        if !others.is_empty() {
            self.mistake(format!("{why}, so it cannot be used with {}", others.join(", ")));
        }
    }
}
