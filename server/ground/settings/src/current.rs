//! The settings in force on one thread.
//!
//! Why: a connection, a worker's link and a handler all read the same settings, and a reload replaces them
//! while they run. Each thread has one [`Current`] for all its tasks; its owner replaces the settings when
//! new ones arrive.
//!
//! Contract:
//! 1. [`Current::get`] takes no lock and touches no memory of other threads.
//! 2. Settings that a caller holds do not change: a request that keeps its `Rc` sees one set of settings from
//!    beginning to end.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use crate::settings::{Limits, Settings, Timeouts};

/// The settings in force on one thread; clones share them.
#[derive(Clone, Debug)]
pub struct Current(Rc<RefCell<Rc<Settings>>>);

impl Current {
    pub fn new(settings: Settings) -> Current {
        Current(Rc::new(RefCell::new(Rc::new(settings))))
    }

    /// Returns the current settings. Call it for each connection, request or deadline instead of keeping the result.
    pub fn get(&self) -> Rc<Settings> {
        self.0.borrow().clone()
    }

    /// Replaces the settings for all clones.
    pub fn replace(&self, settings: Settings) {
        self.0.replace(Rc::new(settings));
    }
}

/// All options at their defaults.
impl Default for Current {
    fn default() -> Current {
        Current::new(Settings::defaults(Path::new("/")))
    }
}

impl From<Settings> for Current {
    fn from(settings: Settings) -> Current {
        Current::new(settings)
    }
}

impl From<Limits> for Current {
    fn from(limits: Limits) -> Current {
        Current::new(limits.into())
    }
}

/// All other settings are defaults.
impl From<Limits> for Settings {
    fn from(limits: Limits) -> Settings {
        Settings { limits, ..Settings::defaults(Path::new("/")) }
    }
}

/// All other settings are defaults.
impl From<Timeouts> for Settings {
    fn from(timeouts: Timeouts) -> Settings {
        Settings { timeouts, ..Settings::defaults(Path::new("/")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_see_what_is_replaced_and_what_was_taken_stays() {
        let current = Current::from(Limits { max_headers: 7, ..Limits::default() });
        let (clone, before) = (current.clone(), current.get());
        current.replace(Limits { max_headers: 8, ..Limits::default() }.into());
        assert_eq!((before.limits.max_headers, clone.get().limits.max_headers), (7, 8));
    }
}
