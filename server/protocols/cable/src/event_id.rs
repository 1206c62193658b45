//! The ids of events: where a listener of several streams is in each of them.
//!
//! Why: Server-Sent Events, long polling and pages that were rendered a moment ago resume by one short text. It travels as
//! `id:` and `Last-Event-ID`, in queries and in JSON.
//!
//! Contract:
//! 1. An id is `EPOCH:CHECK:OFFSET,OFFSET…`, with the offsets in the order of the names of the streams. The check is a hash of the names,
//!    so an id of other streams is not mistaken for one of these.
//! 2. [`EventId::parse`] accepts what [`EventId::text`] writes, and nothing else. It has at most as many offsets as bytes.

use crate::command::StreamPosition;
use std::fmt::Write;
use std::sync::Arc;

/// The most bytes of an epoch.
const LONGEST_EPOCH: usize = 64;

/// The streams of a listener: sorted names without doubles.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StreamSet {
    names: Box<[Arc<str>]>,
    check: u32,
}

impl StreamSet {
    /// Creates a set of these names.
    pub fn new(names: impl IntoIterator<Item = Arc<str>>) -> StreamSet {
        let mut names: Vec<Arc<str>> = names.into_iter().collect();
        names.sort();
        names.dedup();
        let mut all = Vec::new();
        for name in &names {
            all.extend_from_slice(&(name.len() as u64).to_be_bytes());
            all.extend_from_slice(name.as_bytes());
        }
        let hash = text::fnv1a(&all);
        StreamSet { names: names.into(), check: (hash ^ hash >> 32) as u32 }
    }

    /// Returns the names in their order.
    pub fn names(&self) -> &[Arc<str>] {
        &self.names
    }

    /// Returns the place of a stream in the order.
    pub fn place(&self, name: &str) -> Option<usize> {
        self.names.binary_search_by(|known| (**known).cmp(name)).ok()
    }
}

/// A place in each stream of a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventId {
    epoch: Box<str>,
    check: u32,
    offsets: Box<[u64]>,
}

impl EventId {
    /// Writes the id of these offsets, which are in the order of the set.
    pub fn text(epoch: &str, set: &StreamSet, offsets: &[u64]) -> String {
        let mut text = String::with_capacity(epoch.len() + 10 + offsets.len() * 6);
        // Writing to a String cannot fail.
        let _ = write!(text, "{epoch}:{:08x}:", set.check);
        for (at, offset) in offsets.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let _ = write!(text, "{comma}{offset}");
        }
        text
    }

    /// Reads an id; `None` if the text is none.
    pub fn parse(text: &str) -> Option<EventId> {
        let mut parts = text.split(':');
        let (epoch, check, offsets) = (parts.next()?, parts.next()?, parts.next()?);
        let is_epoch = (1..=LONGEST_EPOCH).contains(&epoch.len())
            && epoch.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        let is_check =
            check.len() == 8 && check.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !is_epoch || !is_check || parts.next().is_some() {
            return None;
        }
        let offset = |digits: &str| {
            let is_shortest = digits == "0" || !digits.starts_with('0');
            text::digits(digits).filter(|_| is_shortest)
        };
        let offsets = offsets.split(',').map(offset).collect::<Option<_>>()?;
        Some(EventId { epoch: epoch.into(), check: u32::from_str_radix(check, 16).ok()?, offsets })
    }

    /// Returns the position in each stream of the set; `None` if the id is of other streams.
    pub fn positions(&self, set: &StreamSet) -> Option<Vec<StreamPosition>> {
        let fits = self.check == set.check && self.offsets.len() == set.names.len();
        let position = |offset: &u64| StreamPosition { epoch: self.epoch.to_string(), offset: *offset };
        fits.then(|| self.offsets.iter().map(position).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(names: &[&str]) -> StreamSet {
        StreamSet::new(names.iter().map(|name| (*name).into()))
    }

    #[test]
    fn an_id_is_of_its_streams_alone() {
        let rooms = set(&["b", "a", "b"]);
        assert_eq!(rooms.names().iter().map(|name| &**name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((rooms.place("b"), rooms.place("c")), (Some(1), None));
        let text = EventId::text("4b1c", &rooms, &[3, 17]);
        let id = EventId::parse(&text).unwrap();
        let offsets = |set: &StreamSet| {
            id.positions(set).map(|all| all.iter().map(|position| position.offset).collect::<Vec<_>>())
        };
        assert_eq!(offsets(&set(&["a", "b"])), Some(vec![3, 17]));
        assert_eq!(id.positions(&rooms).unwrap()[0].epoch, "4b1c");
        for other in [set(&["a"]), set(&["a", "c"]), set(&["ab"]), set(&["a", "b", "c"])] {
            assert_eq!(offsets(&other), None, "{other:?}");
        }
        for wrong in [
            "",
            "4b1c",
            "4b1c:17",
            "4b1c:0000000g:1",
            ":00000000:1",
            "e:00000000:",
            "e:00000000:1,",
            "e:0000000:1",
            "e:00000000:01",
            "e:00000000:+1",
            "e:00000000:1:2",
            "e e:00000000:1",
            "e:00000000:18446744073709551616",
        ] {
            assert_eq!(EventId::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(offsets in prop::collection::vec(any::<u64>(), 1..9)) {
            let names: Vec<String> = (0..offsets.len()).map(|at| format!("s{at}")).collect();
            let set = StreamSet::new(names.iter().map(|name| name.as_str().into()));
            let text = EventId::text("4b1c8a0f93d2", &set, &offsets);
            let read = EventId::parse(&text).unwrap().positions(&set).unwrap();
            prop_assert_eq!(read.iter().map(|one| one.offset).collect::<Vec<_>>(), offsets);
        }

        #[test]
        fn any_text_is_safe(text in "[0-9a-f]{0,4}:[0-9a-f]{7,9}:[0-9,]{0,30}|\\PC{0,60}") {
            if let Some(id) = EventId::parse(&text) {
                let names: Vec<String> = (10..id.offsets.len() + 10).map(|at| at.to_string()).collect();
                let mut set = StreamSet::new(names.iter().map(|name| name.as_str().into()));
                set.check = id.check;
                if set.names.len() == id.offsets.len() {
                    prop_assert_eq!(EventId::text(&id.epoch, &set, &id.offsets), text);
                }
            }
        }
    }
}
