//! What a program has removed since it serves: it must not come back with what the program inherits.

use crate::purge::Purge;
use crate::resource::Resource;

/// The most notes. A program that had to note more inherits nothing.
const MOST_NOTES: usize = 10_000;

/// What was removed since the program serves.
#[derive(Debug, Default)]
pub(crate) enum Removals {
    /// Nothing will be inherited.
    #[default]
    Ignored,
    Noted(Vec<Removal>),
}

#[derive(Debug)]
pub(crate) enum Removal {
    Key(Box<[u8]>),
    Purge(Purge),
}

impl Removals {
    /// Notes a removal if that matters.
    pub(crate) fn note(&mut self, removal: impl FnOnce() -> Removal) {
        match self {
            Removals::Noted(all) if all.len() < MOST_NOTES => all.push(removal()),
            other => *other = Removals::Ignored,
        }
    }

    /// Returns whether a resource was removed.
    pub(crate) fn has(&self, key: &[u8], resource: &Resource) -> bool {
        let Removals::Noted(all) = self else { return true };
        all.iter().any(|removal| match removal {
            Removal::Key(removed) => **removed == *key,
            Removal::Purge(purge) => {
                purge.matches(key, || resource.variants.iter().flat_map(|stored| stored.tags.iter()))
            }
        })
    }
}
