//! Caches the values that protocols derive from data that is sent often.
//!
//! Why: a response that is sent thousands of times a second should be encoded once. Only the protocol knows
//! the encoded form, and several protocols may send the same data.

use std::any::Any;
use std::sync::OnceLock;

/// Holds at most one value of each type. Only the owner of a type can read its value.
#[derive(Default)]
pub struct Cache {
    first: OnceLock<Box<Entry<dyn Any + Send + Sync>>>,
}

struct Entry<T: ?Sized> {
    next: OnceLock<Box<Entry<dyn Any + Send + Sync>>>,
    value: T,
}

impl Cache {
    /// Returns the value of this type, created by `make` on the first call.
    pub fn get_or_init<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> &T {
        let mut at = &self.first;
        let mut make = Some(make);
        loop {
            let entry = at.get_or_init(|| {
                let make = make.take().expect("the loop ends at the entry it has made");
                Box::new(Entry { next: OnceLock::new(), value: make() })
            });
            if let Some(value) = entry.value.downcast_ref() {
                return value;
            }
            at = &entry.next;
        }
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_one_value() {
        let cache = Cache::default();
        assert_eq!(*cache.get_or_init(|| 1u32), 1);
        assert_eq!(cache.get_or_init(|| "two".to_owned()), "two");
        assert_eq!(*cache.get_or_init(|| 3u32), 1);
        assert_eq!(cache.get_or_init(|| "four".to_owned()), "two");
    }
}
