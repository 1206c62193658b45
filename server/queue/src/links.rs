//! Doubly linked lists through the items of a slab: an item leaves a list, wherever it is, in constant time and
//! without an allocation.
//!
//! Contract: the links with number `L` of an item belong to one [`List`] with this number at a time.

use slab::Slab;

/// The index of no item.
pub(crate) const NONE: u32 = u32::MAX;

/// The neighbours of an item.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Links {
    before: u32,
    after: u32,
}

impl Default for Links {
    fn default() -> Links {
        Links { before: NONE, after: NONE }
    }
}

/// An item that can be in several lists at once.
pub(crate) trait Linked {
    /// Returns its links in lists with number `list`.
    fn links(&mut self, list: usize) -> &mut Links;
}

/// A list that uses the links number `L` of its items.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List<const L: usize> {
    first: u32,
    last: u32,
}

impl<const L: usize> Default for List<L> {
    fn default() -> List<L> {
        List { first: NONE, last: NONE }
    }
}

impl<const L: usize> List<L> {
    /// Returns the first item, or [`NONE`].
    #[inline]
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// Returns the last item, or [`NONE`].
    #[inline]
    pub(crate) fn last(&self) -> u32 {
        self.last
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// Returns the item after `at`, or [`NONE`].
    #[inline]
    pub(crate) fn after<T: Linked>(items: &mut Slab<T>, at: u32) -> u32 {
        items[at as usize].links(L).after
    }

    #[inline]
    pub(crate) fn push_back<T: Linked>(&mut self, items: &mut Slab<T>, at: u32) {
        self.insert_before(items, at, NONE);
    }

    /// Adds the item `at` before the item `next`; at the end if that is [`NONE`].
    #[inline]
    pub(crate) fn insert_before<T: Linked>(&mut self, items: &mut Slab<T>, at: u32, next: u32) {
        let before = if next == NONE { self.last } else { items[next as usize].links(L).before };
        *items[at as usize].links(L) = Links { before, after: next };
        match before {
            NONE => self.first = at,
            before => items[before as usize].links(L).after = at,
        }
        match next {
            NONE => self.last = at,
            next => items[next as usize].links(L).before = at,
        }
    }

    #[inline]
    pub(crate) fn remove<T: Linked>(&mut self, items: &mut Slab<T>, at: u32) {
        let Links { before, after } = std::mem::take(items[at as usize].links(L));
        match before {
            NONE => self.first = after,
            before => items[before as usize].links(L).after = after,
        }
        match after {
            NONE => self.last = before,
            after => items[after as usize].links(L).before = before,
        }
    }

    /// Moves the first item to the end.
    #[inline]
    pub(crate) fn rotate<T: Linked>(&mut self, items: &mut Slab<T>) {
        let first = self.first;
        if first != self.last {
            self.remove(items, first);
            self.push_back(items, first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Item([Links; 2]);

    impl Linked for Item {
        fn links(&mut self, list: usize) -> &mut Links {
            &mut self.0[list]
        }
    }

    fn items(list: List<1>, slab: &mut Slab<Item>) -> Vec<u32> {
        let (mut all, mut at) = (Vec::new(), list.first());
        while at != NONE {
            all.push(at);
            at = List::<1>::after(slab, at);
        }
        all
    }

    proptest! {
        /// The list has the items of a vector after the same changes.
        #[test]
        fn a_list_is_a_vector(steps in proptest::collection::vec((0u8..4, any::<prop::sample::Index>()), 0..100)) {
            let (mut slab, mut list, mut expected) = (Slab::new(), List::<1>::default(), Vec::<u32>::new());
            for (step, index) in steps {
                let chosen = (!expected.is_empty()).then(|| index.index(expected.len()));
                match (step, chosen) {
                    (0, Some(place)) => {
                        list.remove(&mut slab, expected[place]);
                        slab.remove(expected.remove(place) as usize);
                    }
                    (1, Some(place)) => {
                        let new = slab.insert(Item(Default::default())) as u32;
                        list.insert_before(&mut slab, new, expected[place]);
                        expected.insert(place, new);
                    }
                    (2, Some(_)) => {
                        list.rotate(&mut slab);
                        expected.rotate_left(1);
                    }
                    _ => {
                        let new = slab.insert(Item(Default::default())) as u32;
                        list.push_back(&mut slab, new);
                        expected.push(new);
                    }
                }
                prop_assert_eq!(items(list, &mut slab), expected.clone());
                prop_assert_eq!((list.last(), list.is_empty()), (expected.last().copied().unwrap_or(NONE), expected.is_empty()));
            }
        }
    }
}
