//! Wrappers that add "none" or "auto" to another type.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Completion, Mistake, ValueKind};
use crate::raw::Raw;
use crate::value::hsts::Hsts;
use crate::value::slo::Slo;

/// A value, or the empty text for none.
pub(crate) struct Maybe<K>(pub(crate) K);

impl<T, K: ValueKind<T>> ValueKind<Option<T>> for Maybe<K> {
    fn read(&self, raw: &Raw) -> Result<Option<T>, Mistake> {
        if raw.text() == Some("") { Ok(None) } else { self.0.read(raw).map(Some) }
    }

    fn anchor(&self, value: Option<T>, base: &Path) -> Option<T> {
        value.map(|value| self.0.anchor(value, base))
    }

    fn expected(&self) -> String {
        self.0.expected()
    }

    fn words(&self) -> Vec<&'static str> {
        self.0.words()
    }

    fn completion(&self) -> Completion {
        self.0.completion()
    }
}

/// A value, or `auto`, which is `None` until it is resolved.
pub(crate) struct Auto<K>(pub(crate) K);

impl<T, K: ValueKind<T>> ValueKind<Option<T>> for Auto<K> {
    fn read(&self, raw: &Raw) -> Result<Option<T>, Mistake> {
        if raw.text() == Some("auto") { Ok(None) } else { self.0.read(raw).map(Some) }
    }

    fn expected(&self) -> String {
        format!("{}, or \"auto\"", self.0.expected())
    }

    fn words(&self) -> Vec<&'static str> {
        vec!["auto"]
    }
}

/// A value, or `0`, `false` or `off` for none.
pub(crate) struct OrOff<K>(pub(crate) K);

/// Types with a value that means "off".
pub(crate) trait Zero {
    fn is_zero(&self) -> bool;
}

impl Zero for u64 {
    fn is_zero(&self) -> bool {
        *self == 0
    }
}

impl Zero for usize {
    fn is_zero(&self) -> bool {
        *self == 0
    }
}

impl Zero for Duration {
    fn is_zero(&self) -> bool {
        Duration::is_zero(self)
    }
}

impl Zero for String {
    fn is_zero(&self) -> bool {
        false
    }
}

impl Zero for PathBuf {
    fn is_zero(&self) -> bool {
        false
    }
}

impl Zero for Hsts {
    /// A time of 0 tells browsers to forget the rule; that differs from sending no field.
    fn is_zero(&self) -> bool {
        false
    }
}

impl Zero for Slo {
    fn is_zero(&self) -> bool {
        false
    }
}

impl<T: Zero, K: ValueKind<T>> ValueKind<Option<T>> for OrOff<K> {
    fn read(&self, raw: &Raw) -> Result<Option<T>, Mistake> {
        let off =
            raw.text().is_some_and(|text| text == "off" || text == "false") || *raw == Raw::Switch(false);
        if off { Ok(None) } else { self.0.read(raw).map(|value| (!value.is_zero()).then_some(value)) }
    }

    fn anchor(&self, value: Option<T>, base: &Path) -> Option<T> {
        value.map(|value| self.0.anchor(value, base))
    }

    fn expected(&self) -> String {
        format!("{}, or \"off\"", self.0.expected())
    }

    fn words(&self) -> Vec<&'static str> {
        vec!["off"]
    }
}
