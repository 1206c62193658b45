//! Wakes tasks that wait until memory is less scarce.
//!
//! Why: while memory is scarce, the part of a body that its client has no room for is not taken. When memory
//! is free again, no event of the client resumes such a body: the client may never read. Its worker would
//! wait for ever.
//!
//! Contract: after [`wake_when_less_scarce`] the task is woken once, when the level is below
//! [`Level::Waiting`], within [`CHECKED`] of that. All tasks of a thread share one timer.

use net::memory::{self, Level};
use net::task::spawn_local;
use std::cell::RefCell;
use std::collections::HashMap;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::time::sleep;

/// How often the level is read.
const CHECKED: Duration = Duration::from_millis(100);

thread_local! {
    /// By the address of their tasks: a task asks again each time it is polled.
    static WAITING: RefCell<HashMap<usize, Waker>> = RefCell::default();
}

/// Wakes the task of `cx` when memory is less scarce. Needs a `LocalSet`, as the connections do.
#[cold]
pub(crate) fn wake_when_less_scarce(cx: &Context<'_>) {
    let waker = cx.waker();
    let is_first = WAITING.with_borrow_mut(|waiting| {
        let is_first = waiting.is_empty();
        waiting.insert(waker.data().addr(), waker.clone());
        is_first
    });
    if is_first {
        spawn_local(wake());
    }
}

async fn wake() {
    while memory::level() >= Level::Waiting {
        sleep(CHECKED).await;
    }
    let waiting = WAITING.take();
    waiting.into_values().for_each(Waker::wake);
}
