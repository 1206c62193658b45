//! Implements the dynamic table of a decoder (RFC 7541 section 2.3.2).
//!
//! Fields lie one after the other in one block of text, each with its verdict. Evicted ones stay in front
//! until it is worth moving the rest. An empty table holds no memory.

use fieldcode::Name;
use std::collections::VecDeque;

/// The overhead of a field in addition to its text (RFC 7541 section 4.1).
const OVERHEAD: usize = 32;
/// The most evicted bytes that stay in front of the text.
const MAX_DEAD: usize = 2 << 10;

#[derive(Debug, Clone, Copy)]
struct Entry {
    start: u32,
    name_len: u16,
    value_len: u16,
    kind: Name,
    good: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct TableField<'a> {
    /// Name and value in one piece.
    pub(super) text: &'a [u8],
    pub(super) name_len: usize,
    pub(super) kind: Name,
    /// The value is well-formed.
    pub(super) good: bool,
}

#[derive(Debug)]
pub(super) struct Table {
    text: Vec<u8>,
    /// The newest entry is at the back.
    entries: VecDeque<Entry>,
    size: usize,
    max_size: usize,
}

impl Table {
    /// Creates a table of at most `max_size` bytes, below 64 KiB.
    pub(super) fn new(max_size: u16) -> Table {
        Table { text: Vec::new(), entries: VecDeque::new(), size: 0, max_size: usize::from(max_size) }
    }

    /// Returns the field at an index that counts from 0, the newest one.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<TableField<'_>> {
        let entry = self.entries.get(self.entries.len().checked_sub(index + 1)?)?;
        let (start, name_len) = (entry.start as usize, usize::from(entry.name_len));
        let text = self.text.get(start..start + name_len + usize::from(entry.value_len))?;
        Some(TableField { text, name_len, kind: entry.kind, good: entry.good })
    }

    /// Adds a field: name and value in one piece.
    pub(super) fn insert(&mut self, field: &[u8], name_len: usize, kind: Name, good: bool) {
        let size = field.len() + OVERHEAD;
        if size > self.max_size {
            self.evict(0);
            return;
        }
        self.evict(self.max_size - size);
        let start = self.text.len() as u32;
        self.text.extend_from_slice(field);
        self.size += size;
        self.entries.push_back(Entry {
            start,
            name_len: name_len as u16,
            value_len: (field.len() - name_len) as u16,
            kind,
            good,
        });
    }

    pub(super) fn resize(&mut self, max_size: u16) {
        self.max_size = usize::from(max_size);
        self.evict(self.max_size);
    }

    fn evict(&mut self, size: usize) {
        if self.size <= size {
            return;
        }
        while self.size > size {
            let Some(entry) = self.entries.pop_front() else { break };
            self.size -= usize::from(entry.name_len) + usize::from(entry.value_len) + OVERHEAD;
        }
        let dead = self.entries.front().map_or(self.text.len(), |entry| entry.start as usize);
        if dead > MAX_DEAD || self.entries.is_empty() {
            self.text.drain(..dead);
            self.entries.iter_mut().for_each(|entry| entry.start -= dead as u32);
        }
    }

    /// Frees unused memory.
    pub(super) fn shrink(&mut self) {
        self.text.shrink_to(self.text.len() + 64);
        self.entries.shrink_to(self.entries.len() + 2);
    }

    #[cfg(test)]
    pub(super) fn facts(&self) -> (usize, Vec<String>) {
        let text = |found: TableField<'_>| {
            let (name, value) = found.text.split_at(found.name_len);
            format!("{}: {}", name.escape_ascii(), value.escape_ascii())
        };
        (self.size, (0..self.entries.len()).filter_map(|index| self.get(index).map(text)).collect())
    }
}
