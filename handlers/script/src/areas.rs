//! All areas of operations and their state: [`Areas`].

use crate::basic::{self, Log};
use crate::fetch;
use crate::held;
use crate::kit;
use crate::next;
use crate::ops::Ops;
use crate::redis;
use crate::stdlib;
use std::rc::Rc;

/// The operations of a VM, and the state that code outside of Ruby uses.
pub(crate) struct Areas {
    pub(crate) ops: Ops,
    pub(crate) basic: Rc<basic::BasicState>,
    pub(crate) fetch: Rc<fetch::FetchState>,
    pub(crate) stdlib: Rc<stdlib::StdlibState>,
}

impl Areas {
    /// Returns all areas with empty state. `most` is the most that a request may hold, in bytes: the largest body of
    /// another response that `join` reads, and the largest reply of Redis.
    pub(crate) fn new(log: Log, most: usize) -> Areas {
        let responses = Rc::new(held::Table::default());
        let basic = Rc::new(basic::BasicState::new(log));
        let fetch = Rc::new(fetch::FetchState::new(responses.clone(), most));
        let stdlib = Rc::new(stdlib::StdlibState::default());
        let mut ops = Ops::default();
        ops.add(&basic::AREA, &basic);
        ops.add(&fetch::AREA, &fetch);
        ops.add(&next::AREA, &responses);
        ops.add(&stdlib::AREA, &stdlib);
        ops.add(&redis::AREA, &Rc::new(redis::Clients::new(most)));
        ops.add(&kit::AREA, &Rc::default());
        Areas { ops, basic, fetch, stdlib }
    }
}
