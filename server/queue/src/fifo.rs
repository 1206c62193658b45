//! The requests that wait, in order of arrival.
//!
//! Contract: a request that is put back keeps its number and so its position. A cancelled request leaves its
//! entry, without the ticket, until the entry reaches the head of the queue.

use crate::ticket::Ticket;
use std::collections::VecDeque;
use std::time::Instant;

#[derive(Debug)]
struct Entry {
    number: u64,
    since: Instant,
    ticket: Option<Ticket>,
}

#[derive(Debug, Default)]
pub(crate) struct Fifo {
    /// In order of the numbers.
    entries: VecDeque<Entry>,
    /// The number of entries that still have their ticket.
    waiting: usize,
    longest: usize,
}

impl Fifo {
    /// Adds a request, almost always at the end: only a request that is put back is older than the last one.
    pub(crate) fn insert(&mut self, ticket: Ticket, since: Instant) {
        let entry = Entry { number: ticket.number, since, ticket: Some(ticket) };
        self.waiting += 1;
        self.longest = self.longest.max(self.waiting);
        if self.entries.back().is_none_or(|last| last.number < ticket.number) {
            return self.entries.push_back(entry);
        }
        match self.entries.binary_search_by_key(&ticket.number, |entry| entry.number) {
            Ok(at) => self.entries[at] = entry,
            Err(at) => self.entries.insert(at, entry),
        }
    }

    /// Removes the first request, and returns it with the time since which it has waited.
    pub(crate) fn pop(&mut self) -> Option<(Ticket, Instant)> {
        while let Some(Entry { ticket, since, .. }) = self.entries.pop_front() {
            if let Some(ticket) = ticket {
                self.waiting -= 1;
                return Some((ticket, since));
            }
        }
        None
    }

    /// Removes a request. Returns false if it does not wait.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> bool {
        let found = self.entries.binary_search_by_key(&ticket.number, |entry| entry.number).ok();
        let waited = found.is_some_and(|at| self.entries[at].ticket.take().is_some());
        self.waiting -= usize::from(waited);
        waited
    }

    /// Removes the requests that have waited since `limit` or longer.
    pub(crate) fn expire(&mut self, limit: Instant) -> Vec<Ticket> {
        let mut expired = Vec::new();
        while self.entries.front().is_some_and(|first| first.ticket.is_none() || first.since <= limit) {
            expired.extend(self.entries.pop_front().and_then(|entry| entry.ticket));
        }
        self.waiting -= expired.len();
        expired
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the largest number of requests that have ever waited at the same time.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Returns the time since which the first request has waited.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.entries.iter().find(|entry| entry.ticket.is_some()).map(|entry| entry.since)
    }
}
