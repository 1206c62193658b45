//! Lists the streams of a connection that need a poll.
//!
//! Why: thousands of streams share one task. A wake names its stream, so a turn polls only the woken ones. A
//! wake allocates nothing: each place of the connection has one waker, which its streams use in turn.
//!
//! Contract:
//! 1. A stream is listed at most once, however often it is woken.
//! 2. A wake while the connection's task runs does not schedule the task again: the task checks the list
//!    before it waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

/// The woken streams of one connection.
#[derive(Debug, Default)]
pub(super) struct ReadyList {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    woken: Vec<u32>,
    task: Option<Waker>,
    /// The task is running and will check the list.
    attended: bool,
    /// The task has to run for another reason than a stream.
    touched: bool,
}

impl ReadyList {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the connection's task as running.
    pub(super) fn attend(&self, task: &Waker) {
        let mut queue = self.lock();
        queue.attended = true;
        if queue.task.as_ref().is_none_or(|known| !known.will_wake(task)) {
            queue.task = Some(task.clone());
        }
    }

    /// Moves the list to `to`, which must be empty.
    pub(super) fn take(&self, to: &mut Vec<u32>) {
        std::mem::swap(&mut self.lock().woken, to);
    }

    /// Marks the task as waiting. Returns `false` if there is something to do first.
    pub(super) fn leave(&self) -> bool {
        let mut queue = self.lock();
        let idle = queue.woken.is_empty() && !queue.touched;
        queue.touched = false;
        queue.attended = !idle;
        idle
    }

    /// Schedules the task unless it is running.
    pub(super) fn touch(&self) {
        let mut queue = self.lock();
        queue.touched = true;
        Self::schedule(queue);
    }

    fn schedule(mut queue: MutexGuard<'_, Queue>) {
        if !std::mem::replace(&mut queue.attended, true)
            && let Some(task) = queue.task.clone()
        {
            drop(queue);
            task.wake();
        }
    }

    /// Frees memory. No stream may be open.
    pub(super) fn shrink(&self) {
        self.lock().woken.shrink_to_fit();
    }
}

/// A place for a stream: the target of its waker.
#[derive(Debug)]
struct StreamWaker {
    list: Arc<ReadyList>,
    index: u32,
    listed: AtomicBool,
}

impl Wake for StreamWaker {
    fn wake(self: Arc<StreamWaker>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<StreamWaker>) {
        if !self.listed.swap(true, Ordering::AcqRel) {
            let mut queue = self.list.lock();
            queue.woken.push(self.index);
            ReadyList::schedule(queue);
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Places(Vec<(Arc<StreamWaker>, Waker)>);

impl Places {
    /// Returns the waker of a place, and lets its next wake list the place again.
    pub(super) fn waker(&mut self, index: u32, list: &Arc<ReadyList>) -> &Waker {
        while self.0.len() <= index as usize {
            let index = self.0.len() as u32;
            let place = Arc::new(StreamWaker { list: list.clone(), index, listed: AtomicBool::new(false) });
            self.0.push((place.clone(), place.into()));
        }
        let (place, waker) = &self.0[index as usize];
        place.listed.store(false, Ordering::Release);
        waker
    }

    /// Frees the wakers. No stream may be open. Clones of the wakers may still list their places.
    pub(super) fn clear(&mut self) {
        self.0 = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Count>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wake_lists_its_stream_once_and_schedules_the_task_once() {
        let count = Arc::new(Count::default());
        let (list, mut places) = (Arc::new(ReadyList::default()), Places::default());
        let mut woken = Vec::new();
        list.attend(&count.clone().into());
        let waker = places.waker(2, &list).clone();
        waker.wake_by_ref();
        assert!(!list.leave(), "a wake during a turn is seen before the task waits");
        list.take(&mut woken);
        assert_eq!(woken, [2]);
        places.waker(2, &list);
        assert!(list.leave());
        assert_eq!(count.0.load(Ordering::Relaxed), 0);
        waker.wake_by_ref();
        waker.wake_by_ref();
        places.waker(0, &list).wake_by_ref();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        woken.clear();
        list.take(&mut woken);
        assert_eq!(woken, [2, 0]);
        assert!(list.leave());
        list.touch();
        list.touch();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        assert!(!list.leave() && list.leave());
    }
}
