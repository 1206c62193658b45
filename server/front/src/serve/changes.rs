//! Changes settings of the running server (`firebrick set`), ends the changes whose time is over, and hands
//! those in force to the program that takes over in an upgrade.
//!
//! Contract:
//! 1. The settings of a change go into force together or not at all; an order that is refused, or only tried,
//!    changes nothing.
//! 2. Changes belong to the process and not to a release: they are in force on top of each release.
//! 3. If the end of a change leaves settings that contradict each other, the latest changes end, too, until
//!    they fit.
//! 4. Each change and its end is a line of the log. Secrets are hidden there and in the list.

use crate::caching;
use crate::error_log::ErrorLog;
use crate::release::{Releases, TriedChanges};
use cache::Store;
use control::ControlCaller;
use control::changes::{
    ChangeList, ChangeRecord, ChangeReport, ChangedValue, ChangesReport, CheckedSet, NewChange, UndoOrder,
};
use control::orders::OrderError;
use settings::RunningValue;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// Interval between two looks during a handover.
const LOOK: Duration = Duration::from_millis(500);

/// The changes of this process. Clones share them.
#[derive(Clone)]
pub(crate) struct SettingChanges(Rc<ChangeState>);

struct ChangeState {
    releases: Rc<Releases>,
    log: Arc<ErrorLog>,
    list: RefCell<ChangeList>,
    /// The kept responses, whose rules are settings; the inner `None` means that the cache is off.
    store: OnceCell<Option<Arc<Store>>>,
    /// Wakes the task that ends changes.
    changed: Notify,
    /// Whether the changes are being handed over.
    frozen: Cell<bool>,
    /// The same moment on both clocks. Changes of the system's clock do not move the end of a change.
    begun: (Instant, SystemTime),
}

impl SettingChanges {
    pub(crate) fn new(releases: &Rc<Releases>, log: &Arc<ErrorLog>) -> SettingChanges {
        SettingChanges(Rc::new(ChangeState {
            releases: releases.clone(),
            log: log.clone(),
            list: RefCell::default(),
            store: OnceCell::new(),
            changed: Notify::new(),
            frozen: Cell::new(false),
            begun: (Instant::now(), SystemTime::now()),
        }))
    }

    /// Changes the rules of the cache, too, from now on.
    pub(crate) fn keep(&self, store: Option<Arc<Store>>) {
        // Only the first call has an effect.
        let _ = self.0.store.set(store);
    }

    /// Ends changes when their time is over, as long as the server runs.
    pub(crate) async fn follow_time(self) {
        loop {
            let end = self.0.list.borrow().next_end_ms();
            match end.map(|end| Duration::from_millis(end.saturating_sub(self.now_ms()))) {
                // After a handover the new program ends them.
                Some(_) if self.0.frozen.get() => tokio::time::sleep(LOOK).await,
                Some(wait) => {
                    tokio::select! {
                        () = tokio::time::sleep(wait) => self.expire(),
                        () = self.0.changed.notified() => {}
                    }
                }
                None => self.0.changed.notified().await,
            }
        }
    }

    fn expire(&self) {
        let (mut next, now_ms) = (self.0.list.borrow().clone(), self.now_ms());
        let over = next.expire(now_ms);
        over.iter().for_each(|number| self.log_end(&next, *number));
        if !over.is_empty() {
            self.settle(next);
        }
    }

    pub(crate) fn report(&self) -> ChangesReport {
        ChangesReport { changes: self.0.list.borrow().records().cloned().collect() }
    }

    /// Describes the changes in force, one line for each setting.
    pub(crate) fn described(&self) -> Vec<String> {
        let list = self.0.list.borrow();
        let lines = list.in_force().flat_map(|kept| {
            let record = &kept.record;
            record.values.iter().map(|value| format!("{} = {}: {}", value.key, value.new, record.text))
        });
        lines.collect()
    }

    /// Changes settings, or only tries to.
    pub(crate) fn set(&self, order: CheckedSet, caller: ControlCaller) -> Result<ChangeReport, OrderError> {
        let keys: Vec<String> = order.values.iter().map(|(key, _)| key.clone()).collect();
        let dry_run = order.dry_run;
        let (now_ms, by) = (self.now_ms(), caller.to_string());
        let text = text(&by, now_ms, order.why.as_deref(), order.until_ms(now_ms));
        let mut next = self.0.list.borrow().clone();
        let number = next.set(NewChange { order, by, now_ms, text }).map_err(OrderError::Conflict)?;
        let before = self.tried(&self.0.list.borrow()).map_err(OrderError::Conflict)?;
        let after = self.tried(&next).map_err(OrderError::Invalid)?;
        next.describe(number, compared(&keys, &before, &after));
        let report = report(&next, number, Vec::new(), (&before, &after), dry_run)?;
        if !dry_run {
            let change = &report.change;
            self.log(&format!("change {number}, {}: {}", change.text, shown(&change.values)));
            self.commit(next, after);
        }
        Ok(report)
    }

    /// Takes a change back, or only tries to.
    pub(crate) fn undo(&self, order: &UndoOrder, caller: ControlCaller) -> Result<ChangeReport, OrderError> {
        let mut next = self.0.list.borrow().clone();
        let number =
            next.undo(order.change, &caller.to_string(), self.now_ms()).map_err(OrderError::Conflict)?;
        let before = self.tried(&self.0.list.borrow()).map_err(OrderError::Conflict)?;
        let after = self.tried(&next).map_err(|why| {
            OrderError::Conflict(format!(
                "without change {number} the settings do not fit: {why}; take the later changes back first"
            ))
        })?;
        let values = next.get(number).map_or(&[][..], |record| &record.values);
        let keys: Vec<String> = values.iter().map(|value| value.key.clone()).collect();
        let restored = compared(&keys, &before, &after);
        let report = report(&next, number, restored, (&before, &after), order.dry_run)?;
        if !order.dry_run {
            self.log_end(&next, number);
            self.commit(next, after);
        }
        Ok(report)
    }

    /// Starts or stops leaving the changes alone, because they are being handed over.
    pub(crate) fn freeze(&self, is: bool) {
        self.0.frozen.set(is);
        self.0.changed.notify_one();
    }

    /// Returns the changes for the program that takes over.
    pub(crate) fn list(&self) -> ChangeList {
        self.0.list.borrow().clone()
    }

    /// Puts the changes of the old program in force. Called before the first connection.
    pub(crate) fn adopt(&self, list: ChangeList) {
        let count = list.in_force().count();
        if count > 0 {
            self.log(&format!("{count} in force, as before the upgrade"));
        }
        self.settle(list);
    }

    fn tried(&self, list: &ChangeList) -> Result<TriedChanges, String> {
        let values = list.in_force().flat_map(|kept| {
            let record = &kept.record;
            let wins = |key: &str| list.winner(key) == Some(record.number);
            kept.given.iter().filter(move |(key, _)| wins(key)).map(|(key, value)| RunningValue {
                key: key.clone(),
                value: value.clone(),
                source: record.text.clone(),
            })
        });
        self.0.releases.try_changes(values.collect()).map_err(|why| why.replace('\n', "; "))
    }

    /// Puts the changes in force. Those that do not fit end.
    fn settle(&self, mut next: ChangeList) {
        loop {
            let why = match self.tried(&next) {
                Ok(tried) => return self.commit(next, tried),
                Err(why) => why,
            };
            let Some(latest) = next.in_force().next_back().map(|kept| kept.record.number) else {
                // The settings of the last start or reload stay in force.
                self.log(&format!("they cannot be read again: {why}"));
                self.0.list.replace(next);
                return;
            };
            next.end(latest, self.now_ms(), format!("ended, because the settings do not fit: {why}"));
            self.log_end(&next, latest);
        }
    }

    fn commit(&self, next: ChangeList, tried: TriedChanges) {
        let settings = tried.settings.clone();
        self.0.releases.apply(tried);
        crate::memory::follow(&settings);
        if let Some(store) = self.0.store.get().and_then(Option::as_ref) {
            store.set_policy(caching::policy(&settings));
        }
        self.0.list.replace(next);
        self.0.changed.notify_one();
    }

    fn log_end(&self, list: &ChangeList, number: u64) {
        let Some(record) = list.get(number) else { return };
        let how = record.end.as_ref().map_or("ended", |end| end.how.as_str());
        let keys: Vec<&str> = record.values.iter().map(|value| value.key.as_str()).collect();
        self.log(&format!("change {number} ({}) is over: {how}", keys.join(", ")));
    }

    fn log(&self, text: &str) {
        self.0.log.write(&format!("settings: {text}"));
    }

    /// Returns the milliseconds since the epoch.
    fn now_ms(&self) -> u64 {
        let (instant, system) = self.0.begun;
        let now = system.duration_since(UNIX_EPOCH).unwrap_or_default() + instant.elapsed();
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
    }
}

/// Returns the values of keys before and after a change.
fn compared(keys: &[String], before: &TriedChanges, after: &TriedChanges) -> Vec<ChangedValue> {
    let one = |key: &String| {
        let (old, old_source) = before.loaded.value_of(key);
        ChangedValue { key: key.clone(), old, old_source, new: after.loaded.value_of(key).0 }
    };
    keys.iter().map(one).collect()
}

fn report(
    list: &ChangeList,
    number: u64,
    restored: Vec<ChangedValue>,
    (before, after): (&TriedChanges, &TriedChanges),
    dry_run: bool,
) -> Result<ChangeReport, OrderError> {
    let missing = || OrderError::Conflict(format!("there is no change {number}"));
    let change: ChangeRecord = list.get(number).cloned().ok_or_else(missing)?;
    let new = |warning: &&String| !before.loaded.warnings.contains(warning);
    let notes = after.notes.iter().filter(|note| !before.notes.contains(note));
    let warnings = after.loaded.warnings.iter().filter(new).chain(notes).cloned().collect();
    Ok(ChangeReport { dry_run, change, restored, warnings })
}

fn shown(values: &[ChangedValue]) -> String {
    let one = |value: &ChangedValue| format!("{}: {} -> {}", value.key, value.old, value.new);
    values.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Describes the beginning of a change: `set by root at 2026-11-29 02:31:05: because, until 2026-11-29 02:41:05`.
fn text(by: &str, now_ms: u64, why: Option<&str>, until_ms: Option<u64>) -> String {
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    let until = until_ms.map(|until| format!(", until {}", local(until))).unwrap_or_default();
    format!("set by {by} at {}{why}{until}", local(now_ms))
}

/// Returns a time in the time zone of the server.
fn local(ms: u64) -> String {
    let timestamp = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let zoned = timestamp.unwrap_or_default().to_zoned(jiff::tz::TimeZone::system());
    zoned.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

#[cfg(test)]
#[path = "changes_tests.rs"]
mod tests;
