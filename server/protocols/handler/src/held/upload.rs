//! Counts uploads that are kept in files.

use super::Amount;
use super::account::Account;
use super::ledger::{Ledger, count, current};
use net::descriptors::CountedDescriptor;
use net::memory::MemoryClass;
use std::rc::Rc;

/// An upload in a file, counted until it is dropped.
#[derive(Debug)]
pub struct Upload {
    ledger: Rc<Ledger>,
    account: Option<Rc<Account>>,
    disk: u64,
    _counted: CountedDescriptor,
}

impl Upload {
    /// Begins an upload of a connection; `None` if the connection has used up its share.
    pub fn begin(account: Option<&Rc<Account>>) -> Option<Upload> {
        let ledger = account.map_or_else(current, |account| account.ledger.clone());
        let own = account.map_or(0, |account| account.uploads.get());
        let free = ledger.limits().uploads.saturating_sub(ledger.uploads.get());
        if own >= free {
            return None;
        }
        ledger.uploads.update(|all| all + 1);
        account.into_iter().for_each(|account| account.uploads.update(|all| all + 1));
        count(MemoryClass::Requests, Amount::default(), Amount::FILE);
        Some(Upload { ledger, account: account.cloned(), disk: 0, _counted: CountedDescriptor::begin() })
    }

    /// Returns whether the connection has uploads in files already.
    pub fn has_others(account: Option<&Rc<Account>>) -> bool {
        account.is_some_and(|account| account.uploads.get() > 0)
    }

    /// Sets the number of bytes in the file.
    pub fn grow(&mut self, len: u64) {
        let before = std::mem::replace(&mut self.disk, len);
        count(
            MemoryClass::Requests,
            Amount { disk: before, ..Amount::FILE },
            Amount { disk: len, ..Amount::FILE },
        );
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.ledger.uploads.update(|all| all - 1);
        self.account.iter().for_each(|account| account.uploads.update(|all| all - 1));
        count(MemoryClass::Requests, Amount { disk: self.disk, ..Amount::FILE }, Amount::default());
    }
}
