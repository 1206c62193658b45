//! The settings in force on one thread.
//!
//! Why: a connection, a worker's link and a handler all read the same settings, and a reload replaces them while they
//! run. Each thread has one [`Current`], shared by all that runs there; its owner replaces the settings in it when
//! new ones arrive.
//!
//! Contract:
//! 1. [`Current::get`] takes no lock and touches no memory of other threads.
//! 2. What was taken stays as it is: a request that keeps its `Rc` sees one set of settings from beginning to end.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use crate::settings::{Limits, Settings, Timeouts};

/// The settings in force on one thread; clones share them.
#[derive(Clone, Debug)]
pub struct Current(Rc<RefCell<Rc<Settings>>>);

impl Current {
    /// With these settings to begin with.
    pub fn new(settings: Settings) -> Current {
        Current(Rc::new(RefCell::new(Rc::new(settings))))
    }

    /// The settings now. Ask again for each connection, request or deadline, rather than keeping them.
    pub fn get(&self) -> Rc<Settings> {
        self.0.borrow().clone()
    }

    /// Puts new settings in force, for all clones.
    pub fn replace(&self, settings: Settings) {
        self.0.replace(Rc::new(settings));
    }
}

/// Every option at its default.
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

/// The rest at its default.
impl From<Limits> for Settings {
    fn from(limits: Limits) -> Settings {
        Settings { limits, ..Settings::defaults(Path::new("/")) }
    }
}

/// The rest at its default.
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
