//! Changes of settings of the running server: the orders as they travel, and the list of changes. Pure.
//!
//! Contract:
//! 1. An order is a JSON object; an unknown field is an error. Keys, values and texts are bounded and have no
//!    control characters.
//! 2. Changes are numbered from 1 in the order in which they were made. Of the values of a key, that of the
//!    latest change in force wins; when a change ends, the others stay.
//! 3. At most [`MOST_IN_FORCE`] changes are in force. At the limit the oldest one whose keys later ones all
//!    have is replaced; if there is none, a change is refused.
//! 4. The list keeps the last [`KEPT`] changes; those in force are always kept. A change that has ended keeps
//!    no value but those for display.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The most changes in force.
pub const MOST_IN_FORCE: usize = 50;
/// The changes that the history keeps.
pub const KEPT: usize = 100;
/// The most keys of a change.
const MOST_KEYS: usize = 100;
/// The most bytes of a key and its value.
const LONGEST_VALUE: usize = 4096;
/// The most bytes of all values of a change.
const LONGEST_CHANGE: usize = 16 << 10;
/// The most characters of a reason.
const LONGEST_WHY: usize = 200;
/// The most characters of a value in the history.
const LONGEST_SHOWN: usize = 200;
/// The longest time of a change.
const LONGEST_TIME: Duration = Duration::from_secs(365 * 86_400);

/// An order to change settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SetOrder {
    /// The settings: `limits.max_body=20MiB`.
    pub values: Vec<String>,
    /// The time after which the change ends by itself, such as `10m`.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The reason, for the history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Only say what would change.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// A checked [`SetOrder`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedSet {
    /// Keys and values. No key is there twice.
    pub values: Vec<(String, String)>,
    pub time: Option<Duration>,
    pub why: Option<String>,
    pub dry_run: bool,
}

impl SetOrder {
    /// # Errors
    /// The text names what is wrong, and the expected form.
    pub fn check(&self) -> Result<CheckedSet, String> {
        let Some(first) = self.values.first() else {
            return Err("no setting is named: expected KEY=VALUE, such as limits.max_body=20MiB".to_owned());
        };
        if self.values.len() > MOST_KEYS {
            return Err(format!("a change has at most {MOST_KEYS} settings, not {}", self.values.len()));
        }
        let length: usize = self.values.iter().map(String::len).sum();
        if self.values.iter().any(|value| value.len() > LONGEST_VALUE) || length > LONGEST_CHANGE {
            return Err(format!(
                "{}…: a setting has at most {LONGEST_VALUE} bytes, and a change {LONGEST_CHANGE}",
                first.escape_debug().to_string().chars().take(40).collect::<String>()
            ));
        }
        let mut values: Vec<(String, String)> = Vec::new();
        for written in &self.values {
            let shown = written.escape_debug();
            if written.contains(char::is_control) {
                return Err(format!("{shown}: expected text without control characters"));
            }
            let (key, value) = written
                .split_once('=')
                .map(|(key, value)| (key.trim(), value.trim()))
                .filter(|(key, _)| !key.is_empty())
                .ok_or_else(|| format!("{shown}: expected KEY=VALUE, such as limits.max_body=20MiB"))?;
            if values.iter().any(|(known, _)| known == key) {
                return Err(format!("{}: the key is there twice", key.escape_debug()));
            }
            values.push((key.to_owned(), value.to_owned()));
        }
        let time = self.time.as_deref().map(|text| {
            let expected =
                || format!("for: {}: expected a time such as 10m, from 1s to 365d", text.escape_debug());
            let time = settings::period(text).map_err(|_| expected())?;
            let may = (Duration::from_secs(1)..=LONGEST_TIME).contains(&time);
            may.then_some(time).ok_or_else(expected)
        });
        let why = self.why.as_deref().map(str::trim).filter(|why| !why.is_empty());
        if why.is_some_and(|why| why.chars().count() > LONGEST_WHY || why.contains(char::is_control)) {
            return Err(format!("why: expected at most {LONGEST_WHY} characters on one line"));
        }
        Ok(CheckedSet { values, time: time.transpose()?, why: why.map(str::to_owned), dry_run: self.dry_run })
    }
}

impl CheckedSet {
    /// Returns when a change of `now_ms` ends by itself, in milliseconds since the epoch.
    pub fn until_ms(&self, now_ms: u64) -> Option<u64> {
        self.time.map(|time| now_ms.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
    }
}

/// An order to take a change back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UndoOrder {
    /// The number of the change; `None`: the latest one in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<u64>,
    /// Only say what would change.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

/// A setting of a change, for display: secrets are hidden, and long values are cut.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedValue {
    pub key: String,
    /// The value before.
    pub old: String,
    /// The source of the value before: a file and its line, a flag, another change.
    pub old_source: String,
    pub new: String,
}

/// How a change ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeEnd {
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// `expired`, `undone by root`, `replaced by change 7`.
    pub how: String,
}

/// A change, for display.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeRecord {
    pub number: u64,
    /// Milliseconds since the epoch.
    pub at_ms: u64,
    /// The user at the other end of the control socket.
    pub by: String,
    pub why: Option<String>,
    /// When it ends by itself, in milliseconds since the epoch.
    pub until_ms: Option<u64>,
    pub values: Vec<ChangedValue>,
    /// `None` while the change is in force.
    pub end: Option<ChangeEnd>,
    /// The beginning in words, in the time zone of the server: `set by root at 2026-11-29 02:31:05: because`.
    pub text: String,
}

/// A change with its values as they were given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptChange {
    pub record: ChangeRecord,
    /// Keys and values; empty when the change has ended.
    pub given: Vec<(String, String)>,
}

/// A new change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewChange {
    pub order: CheckedSet,
    pub by: String,
    /// Milliseconds since the epoch.
    pub now_ms: u64,
    /// See [`ChangeRecord::text`].
    pub text: String,
}

/// The answer to `firebrick set` without a change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangesReport {
    /// The last changes, oldest first: those in force, and those that have ended.
    pub changes: Vec<ChangeRecord>,
}

/// The answer to an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeReport {
    pub dry_run: bool,
    /// The change, or the one that was taken back.
    pub change: ChangeRecord,
    /// For a change that was taken back: the values that are in force again.
    pub restored: Vec<ChangedValue>,
    /// Warnings of the new settings.
    pub warnings: Vec<String>,
}

/// All changes that are kept, in the order of their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ChangeList {
    /// The number of the last change.
    last: u64,
    kept: Vec<KeptChange>,
}

impl ChangeList {
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub fn records(&self) -> impl Iterator<Item = &ChangeRecord> {
        self.kept.iter().map(|kept| &kept.record)
    }

    /// Returns the changes in force, oldest first.
    pub fn in_force(&self) -> impl DoubleEndedIterator<Item = &KeptChange> {
        self.kept.iter().filter(|kept| kept.record.end.is_none())
    }

    pub fn get(&self, number: u64) -> Option<&ChangeRecord> {
        self.records().find(|record| record.number == number)
    }

    /// Returns the number of the change whose value of the key is in force.
    pub fn winner(&self, key: &str) -> Option<u64> {
        let has = |kept: &&KeptChange| kept.given.iter().any(|(known, _)| known == key);
        self.in_force().rfind(has).map(|kept| kept.record.number)
    }

    /// Adds a change. Returns its number.
    ///
    /// # Errors
    /// Too many changes are in force.
    pub fn set(&mut self, new: NewChange) -> Result<u64, String> {
        let NewChange { order, by, now_ms, text } = new;
        let number = self.last + 1;
        let until_ms = order.until_ms(now_ms);
        let values =
            order.values.iter().map(|(key, _)| ChangedValue { key: key.clone(), ..Default::default() });
        let record = ChangeRecord {
            number,
            at_ms: now_ms,
            by,
            why: order.why,
            until_ms,
            values: values.collect(),
            end: None,
            text,
        };
        self.kept.push(KeptChange { record, given: order.values });
        if self.in_force().count() > MOST_IN_FORCE {
            let Some(covered) = self.oldest_covered() else {
                self.kept.pop();
                return Err(format!(
                    "{MOST_IN_FORCE} changes are in force: take one back with `firebrick set --undo N`, or write them into firebrick.toml"
                ));
            };
            self.end(covered, now_ms, format!("replaced by change {number}"));
        }
        self.last = number;
        while self.kept.len() > KEPT {
            let Some(oldest) = self.kept.iter().position(|kept| kept.record.end.is_some()) else { break };
            self.kept.remove(oldest);
        }
        Ok(number)
    }

    /// Returns the oldest change in force that has no effect, because later ones have all of its keys.
    fn oldest_covered(&self) -> Option<u64> {
        let covered = |kept: &&KeptChange| {
            kept.given.iter().all(|(key, _)| self.winner(key) != Some(kept.record.number))
        };
        self.in_force().find(covered).map(|kept| kept.record.number)
    }

    /// Describes the values of a change.
    pub fn describe(&mut self, number: u64, mut values: Vec<ChangedValue>) {
        for value in &mut values {
            for shown in [&mut value.old, &mut value.old_source, &mut value.new] {
                *shown = text::people::shortened(shown, LONGEST_SHOWN);
            }
        }
        if let Some(kept) = self.kept.iter_mut().find(|kept| kept.record.number == number) {
            kept.record.values = values;
        }
    }

    /// Takes a change back; without a number the latest one in force. Returns its number.
    ///
    /// # Errors
    /// There is no such change, or it has ended.
    pub fn undo(&mut self, number: Option<u64>, by: &str, now_ms: u64) -> Result<u64, String> {
        let numbers: Vec<String> = self.in_force().map(|kept| kept.record.number.to_string()).collect();
        let in_force = match numbers.as_slice() {
            [] => "no change is in force".to_owned(),
            numbers => format!("in force: {}", numbers.join(", ")),
        };
        let number = match number {
            Some(number) => match self.get(number).map(|record| &record.end) {
                None => return Err(format!("there is no change {number}; {in_force}")),
                Some(Some(end)) => {
                    let how = &end.how;
                    return Err(format!("change {number} has ended: {how}; {in_force}"));
                }
                Some(None) => number,
            },
            None => self.in_force().next_back().map(|kept| kept.record.number).ok_or(in_force)?,
        };
        self.end(number, now_ms, format!("undone by {by}"));
        Ok(number)
    }

    /// Ends the changes whose time is over. Returns their numbers.
    pub fn expire(&mut self, now_ms: u64) -> Vec<u64> {
        let over = |kept: &&KeptChange| kept.record.until_ms.is_some_and(|until| until <= now_ms);
        let over: Vec<u64> = self.in_force().filter(over).map(|kept| kept.record.number).collect();
        over.iter().for_each(|number| self.end(*number, now_ms, "expired".to_owned()));
        over
    }

    /// Ends a change that is in force.
    pub fn end(&mut self, number: u64, at_ms: u64, how: String) {
        let found =
            self.kept.iter_mut().find(|kept| kept.record.number == number && kept.record.end.is_none());
        if let Some(kept) = found {
            kept.record.end = Some(ChangeEnd { at_ms, how });
            kept.given = Vec::new();
        }
    }

    /// Returns when the next change ends by itself.
    pub fn next_end_ms(&self) -> Option<u64> {
        self.in_force().filter_map(|kept| kept.record.until_ms).min()
    }
}

#[cfg(test)]
#[path = "changes_tests.rs"]
mod tests;
