//! The waiting fibers of one thread, and the events that end their waits: descriptors, timers, other fibers,
//! messages from the front.
//!
//! Contract:
//! 1. A wait begins with [`Waits::begin`] and ends with [`Waits::finish`], which its own fiber calls when it
//!    runs again. In between it becomes ready exactly once, by the first event; but being unblocked takes
//!    precedence over all other reasons ([`Waits::wake_fiber`]).
//! 2. Ready fibers are entered in the order in which they became ready.
//! 3. Nothing here calls Ruby.
//! 4. An alarm (`Timeout.timeout`) belongs to the strand in which the fiber that set it runs, or ran last
//!    ([`Waits::runs`]). It is delivered once: to the fiber that set it, when that fiber waits; or to another
//!    fiber of the strand, while the setting fiber waits for that fiber to return ([`Waits::take_inner`],
//!    [`Waits::missed`]). While [`RaisePolicy`] defers it, it is not delivered.

use super::timers::{Due, Timers};
use crate::raw::poller::{Event, Poller};
use crate::raw::ruby::{NIL, Value};
use crate::raw::slots::RootSlot;
use crate::worker::task::strand::{Key, Strand};
use rustc_hash::FxBuildHasher;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::RawFd;

/// The reason why a wait is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitEnd {
    /// The event has come; for descriptors see [`Waits::fired`].
    Woken,
    TimedOut,
    /// The `Timeout.timeout` with this number has expired.
    Alarm(u64),
    /// The client has disconnected.
    Gone,
    /// The descriptor is being closed.
    Closed,
}

struct Wait {
    generation: u32,
    /// The fiber; `None` when the wait is over.
    fiber: Option<&'static RootSlot>,
    strand: Option<&'static Strand>,
    outcome: Option<WaitEnd>,
    limited: bool,
    /// The fiber has not run yet, so [`Waits::finish`] will not be called.
    starts: bool,
    interests: Vec<(RawFd, u32)>,
    fired: Vec<(RawFd, u32)>,
}

/// The waits for one descriptor.
#[derive(Default)]
struct Interest {
    waits: Vec<(Key, u32)>,
    /// The descriptor is registered with the poller.
    known: bool,
}

/// Where exceptions from outside may be raised in a fiber, as set by `Thread.handle_interrupt`.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum RaisePolicy {
    /// Anywhere.
    #[default]
    Immediate,
    /// Where the fiber waits.
    OnBlocking,
    Never,
}

/// A pending `Timeout.timeout`.
struct Alarm {
    /// The fiber that set it. The scheduler keeps it alive (`worker/lib/firebrick/fibers/scheduler.rb`).
    fiber: Value,
    strand: Option<&'static Strand>,
    at_us: u64,
    hold: RaisePolicy,
    /// It has expired.
    due: bool,
}

/// Returns the key under which missed alarms are stored: the strand's address, or the fiber's id without a strand.
fn owner(fiber: Value, strand: Option<&'static Strand>) -> usize {
    strand.map_or(fiber.id(), |strand| std::ptr::from_ref(strand).addr())
}

pub(crate) struct Waits {
    waits: Vec<Wait>,
    free: Vec<u32>,
    slots: Vec<&'static RootSlot>,
    by_fiber: HashMap<usize, Key, FxBuildHasher>,
    /// Fibers that were unblocked before they blocked.
    early: HashSet<usize, FxBuildHasher>,
    ready: VecDeque<Key>,
    /// Pre-empted fibers, the oldest first.
    preempted: VecDeque<Key>,
    interests: HashMap<RawFd, Interest, FxBuildHasher>,
    /// The number of waits for descriptors that have not become ready.
    polled: usize,
    timers: Timers,
    alarms: HashMap<u64, Alarm, FxBuildHasher>,
    /// Alarms of fibers that another fiber has resumed, by fiber: another strand may resume the fiber next.
    inner_alarms: HashMap<usize, Vec<u64>, FxBuildHasher>,
    /// Alarms that expired while their fibers did not wait, by [`owner`], the oldest first. They are raised at the next wait.
    missed: HashMap<usize, VecDeque<u64>, FxBuildHasher>,
    /// The missed alarms whose strand waits in another fiber.
    inner: Vec<u64>,
    last_alarm: u64,
    poller: Poller,
    events: Vec<Event>,
}

impl Waits {
    /// # Errors
    /// As epoll_create1(2).
    pub(crate) fn new() -> io::Result<Waits> {
        Ok(Waits {
            waits: Vec::new(),
            free: Vec::new(),
            slots: Vec::new(),
            by_fiber: HashMap::default(),
            early: HashSet::default(),
            ready: VecDeque::new(),
            preempted: VecDeque::new(),
            interests: HashMap::default(),
            polled: 0,
            timers: Timers::new(),
            alarms: HashMap::default(),
            inner_alarms: HashMap::default(),
            missed: HashMap::default(),
            inner: Vec::new(),
            last_alarm: 0,
            poller: Poller::new()?,
            events: Vec::new(),
        })
    }

    /// Takes a free slot for the fiber of a wait.
    pub(crate) fn take_slot(&mut self) -> Option<&'static RootSlot> {
        self.slots.pop()
    }

    /// Begins the wait of a fiber, which `slot` holds meanwhile. The wait ends at `until_us` at the latest.
    pub(crate) fn begin(
        &mut self,
        slot: &'static RootSlot,
        strand: Option<&'static Strand>,
        until_us: Option<u64>,
    ) -> Key {
        let at = self.free.pop().unwrap_or_else(|| {
            self.waits.push(Wait {
                generation: 0,
                fiber: None,
                strand: None,
                outcome: None,
                limited: false,
                starts: false,
                interests: Vec::new(),
                fired: Vec::new(),
            });
            (self.waits.len() - 1) as u32
        });
        let wait = &mut self.waits[at as usize];
        wait.generation = wait.generation.wrapping_add(1);
        let key = Key { at, generation: wait.generation };
        (wait.fiber, wait.strand, wait.outcome) = (Some(slot), strand, None);
        wait.limited = until_us.is_some();
        wait.fired.clear();
        self.by_fiber.insert(slot.get().id(), key);
        until_us.into_iter().for_each(|at_us| self.timers.set(at_us, Due::Wait(key)));
        key
    }

    /// Makes these events of a descriptor end the wait, too. A descriptor that cannot be polled counts as
    /// ready: its user then gets the error.
    pub(crate) fn watch(&mut self, key: Key, fd: RawFd, events: u32) {
        let interest = self.interests.entry(fd).or_default();
        let all = interest.waits.iter().fold(events, |all, (_, events)| all | events);
        match self.poller.arm(fd, all, interest.known) {
            Ok(()) => {
                interest.known = true;
                interest.waits.push((key, events));
                let wait = &mut self.waits[key.at as usize];
                self.polled += usize::from(wait.interests.is_empty());
                wait.interests.push((fd, events));
            }
            Err(_) => {
                self.waits[key.at as usize].fired.push((fd, events));
                self.wake(key, WaitEnd::Woken);
            }
        }
    }

    fn live(&mut self, key: Key) -> Option<&mut Wait> {
        let wait = self.waits.get_mut(key.at as usize)?;
        (wait.generation == key.generation && wait.fiber.is_some()).then_some(wait)
    }

    /// Ends a wait. Returns false when it was over already.
    pub(crate) fn wake(&mut self, key: Key, outcome: WaitEnd) -> bool {
        let Some(wait) = self.live(key).filter(|wait| wait.outcome.is_none()) else { return false };
        wait.outcome = Some(outcome);
        self.ready.push_back(key);
        true
    }

    /// Makes a fiber that has not run yet the next to be entered; `slot` holds it until then.
    pub(crate) fn start(&mut self, slot: &'static RootSlot, strand: &'static Strand) {
        let key = self.begin(slot, Some(strand), None);
        self.by_fiber.remove(&slot.get().id());
        self.waits[key.at as usize].starts = true;
        self.waits[key.at as usize].outcome = Some(WaitEnd::Woken);
        self.ready.push_front(key);
    }

    /// Queues a pre-empted fiber behind the others. It does not wait, so no other event can make it run.
    pub(crate) fn put_back(&mut self, slot: &'static RootSlot, strand: Option<&'static Strand>) -> Key {
        let key = self.begin(slot, strand, None);
        self.by_fiber.remove(&slot.get().id());
        self.waits[key.at as usize].outcome = Some(WaitEnd::Woken);
        self.preempted.push_back(key);
        key
    }

    /// Ends the wait of a fiber, or the wait that it begins next. Returns whether it waited.
    pub(crate) fn wake_fiber(&mut self, fiber: Value) -> bool {
        match self.by_fiber.get(&fiber.id()).copied() {
            Some(key) => self.wake(key, WaitEnd::Woken) || self.wake_after_all(key),
            None => {
                self.early.insert(fiber.id());
                false
            }
        }
    }

    /// Unblocks a fiber whose wait is over for another reason, but which has not run since. Ruby has given it
    /// the Mutex, or the element of a Queue, that it waited for, and will not offer that to another fiber. So
    /// the fiber takes it first, and the other reason ends its next wait.
    fn wake_after_all(&mut self, key: Key) -> bool {
        let Some(wait) = self.live(key) else { return false };
        match wait.outcome {
            Some(WaitEnd::Alarm(number)) => {
                wait.outcome = Some(WaitEnd::Woken);
                self.miss_first(number);
            }
            Some(WaitEnd::TimedOut) => {
                // The time has come already, so no limit is set any more.
                (wait.outcome, wait.limited) = (Some(WaitEnd::Woken), false);
            }
            Some(WaitEnd::Gone) => {
                wait.outcome = Some(WaitEnd::Woken);
                wait.strand.into_iter().for_each(|strand| strand.interruptible.set(true));
            }
            Some(WaitEnd::Woken | WaitEnd::Closed) | None => return false,
        }
        true
    }

    /// Returns whether this fiber was unblocked before it blocked, and forgets that.
    pub(crate) fn was_woken_early(&mut self, fiber: Value) -> bool {
        !self.early.is_empty() && self.early.remove(&fiber.id())
    }

    /// Takes the next ready fiber, and its strand.
    pub(crate) fn next(&mut self) -> Option<(Value, Option<&'static Strand>)> {
        while let Some(key) = self.ready.pop_front() {
            let Some(wait) = self.live(key) else { continue };
            let next = wait.fiber.map(|slot| (slot.get(), wait.strand));
            if std::mem::take(&mut wait.starts) {
                self.finish(key);
            }
            return next;
        }
        None
    }

    /// Takes the fiber that was pre-empted first, and its strand.
    pub(crate) fn next_preempted(&mut self) -> Option<(Value, Option<&'static Strand>)> {
        let key = self.preempted.pop_front()?;
        let wait = self.live(key)?;
        wait.fiber.map(|slot| (slot.get(), wait.strand))
    }

    pub(crate) fn preempted(&self) -> usize {
        self.preempted.len()
    }

    /// Returns whether no fiber waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.free.len() == self.waits.len()
    }

    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Ends the wait of a fiber that runs again. Returns the outcome; `None` when the fiber was unwound.
    pub(crate) fn finish(&mut self, key: Key) -> Option<WaitEnd> {
        let wait = self.live(key)?;
        let outcome = wait.outcome;
        let limited = std::mem::take(&mut wait.limited);
        let slot = wait.fiber.take();
        wait.strand = None;
        if !wait.interests.is_empty() {
            self.polled -= 1;
            self.unwatch(key);
        }
        if let Some(slot) = slot {
            self.by_fiber.remove(&slot.get().id());
            slot.set(NIL);
            self.slots.push(slot);
        }
        if limited && outcome != Some(WaitEnd::TimedOut) {
            let (waits, alarms) = (&self.waits, &self.alarms);
            self.timers.forget(|due| is_wanted(waits, alarms, due));
        }
        self.free.push(key.at);
        outcome
    }

    fn unwatch(&mut self, key: Key) {
        let interests = std::mem::take(&mut self.waits[key.at as usize].interests);
        for &(fd, _) in &interests {
            if let Some(interest) = self.interests.get_mut(&fd) {
                let before = interest.waits.len();
                interest.waits.retain(|(waiting, _)| *waiting != key);
                // A descriptor that has been reported is no longer armed.
                if interest.waits.is_empty() && before > 0 {
                    self.poller.disarm(fd);
                }
            }
        }
        let mut interests = interests;
        interests.clear();
        self.waits[key.at as usize].interests = interests;
    }

    /// Returns the descriptors and events that have ended a finished wait.
    pub(crate) fn fired(&self, key: Key) -> &[(RawFd, u32)] {
        &self.waits[key.at as usize].fired
    }

    // Descriptors.

    /// Returns whether a fiber waits for a descriptor.
    pub(crate) fn polls(&self) -> bool {
        self.polled > 0
    }

    pub(crate) fn poller_fd(&self) -> RawFd {
        self.poller.fd()
    }

    /// Processes all events that the poller reports.
    pub(crate) fn poll(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        while self.poller.take(&mut events) {}
        events.iter().for_each(|event| self.report(*event));
        events.clear();
        self.events = events;
    }

    fn report(&mut self, event: Event) {
        let Some(interest) = self.interests.get_mut(&event.fd) else { return };
        let mut waits = std::mem::take(&mut interest.waits);
        let concerned = |events: u32| events & event.events != 0;
        for &(key, events) in waits.iter().filter(|(_, events)| concerned(*events)) {
            self.waits[key.at as usize].fired.push((event.fd, events & event.events));
            self.wake(key, WaitEnd::Woken);
        }
        waits.retain(|(_, events)| !concerned(*events));
        let rest = waits.iter().fold(0, |all, (_, events)| all | events);
        let failed = rest != 0 && self.poller.arm(event.fd, rest, true).is_err();
        if failed {
            let left: Vec<Key> = waits.drain(..).map(|(key, _)| key).collect();
            for key in left {
                self.wake(key, WaitEnd::Woken);
            }
        }
        if let Some(interest) = self.interests.get_mut(&event.fd) {
            interest.waits = waits;
        }
    }

    /// Ends all waits for a descriptor that is about to be closed, because the system does not report that.
    /// Returns whether there were any.
    pub(crate) fn closes(&mut self, fd: RawFd) -> bool {
        let Some(interest) = self.interests.get_mut(&fd) else { return false };
        interest.known = false;
        let waits: Vec<(Key, u32)> = interest.waits.drain(..).collect();
        for &(key, _) in &waits {
            self.wake(key, WaitEnd::Closed);
        }
        !waits.is_empty()
    }

    // Timers.

    pub(crate) fn next_us(&self) -> Option<u64> {
        self.timers.next_us()
    }

    /// Ends the waits whose time has come.
    pub(crate) fn expire(&mut self, now_us: u64) {
        while let Some(due) = self.timers.pop(now_us) {
            if !is_wanted(&self.waits, &self.alarms, &due) {
                continue;
            }
            self.timers.came();
            match due {
                Due::Wait(key) => {
                    self.wake(key, WaitEnd::TimedOut);
                }
                Due::Alarm(number) => self.ring(number),
            }
        }
    }

    // Alarms: Timeout.timeout.

    /// Sets an alarm for a fiber that belongs to `strand`. Returns its number.
    pub(crate) fn set_alarm(
        &mut self,
        fiber: Value,
        strand: Option<&'static Strand>,
        at_us: u64,
        hold: RaisePolicy,
    ) -> u64 {
        self.last_alarm += 1;
        let number = self.last_alarm;
        self.alarms.insert(number, Alarm { fiber, strand, at_us, hold, due: false });
        self.timers.set(at_us, Due::Alarm(number));
        if let Some(strand) = strand {
            strand.has_alarm(number);
            if strand.ruby.get() != fiber {
                self.inner_alarms.entry(fiber.id()).or_default().push(number);
            }
        }
        number
    }

    /// Returns whether the app has left fibers inside `Timeout.timeout` that another strand may resume.
    pub(crate) fn has_inner_alarms(&self) -> bool {
        !self.inner_alarms.is_empty()
    }

    /// Records that a fiber goes on in this strand, and moves the alarms that it set in another strand.
    #[inline]
    pub(crate) fn runs(&mut self, fiber: Value, strand: &'static Strand) {
        if !self.inner_alarms.is_empty()
            && let Some(numbers) = self.inner_alarms.get(&fiber.id())
        {
            numbers.clone().into_iter().for_each(|number| self.moves(number, strand));
        }
    }

    #[cold]
    fn moves(&mut self, number: u64, strand: &'static Strand) {
        let is_missed = self.take_missed(number);
        let Some(alarm) = self.alarms.get_mut(&number) else { return };
        let before = alarm.strand.replace(strand);
        before.into_iter().for_each(|before| before.has_lost_alarm(number));
        strand.has_alarm(number);
        if is_missed {
            self.miss_first(number);
        }
    }

    /// Changes where an alarm may be raised.
    pub(crate) fn hold_alarm(&mut self, number: u64, hold: RaisePolicy) {
        self.alarms.get_mut(&number).into_iter().for_each(|alarm| alarm.hold = hold);
    }

    pub(crate) fn cancel_alarm(&mut self, number: u64) {
        self.forget_timer(number);
        self.take_missed(number);
        let Some(alarm) = self.alarms.remove(&number) else { return };
        alarm.strand.into_iter().for_each(|strand| strand.has_lost_alarm(number));
        if let Some(numbers) = self.inner_alarms.get_mut(&alarm.fiber.id()) {
            numbers.retain(|&other| other != number);
            if numbers.is_empty() {
                self.inner_alarms.remove(&alarm.fiber.id());
            }
        }
    }

    /// Marks the alarm's timer as not needed.
    fn forget_timer(&mut self, number: u64) {
        let Some(alarm) = self.alarms.get_mut(&number) else { return };
        if !std::mem::replace(&mut alarm.due, true) {
            let (waits, alarms) = (&self.waits, &self.alarms);
            self.timers.forget(|due| is_wanted(waits, alarms, due));
        }
    }

    fn ring(&mut self, number: u64) {
        let Some(alarm) = self.alarms.get_mut(&number) else { return };
        alarm.due = true;
        let (fiber, strand, hold) = (alarm.fiber, alarm.strand, alarm.hold);
        if hold != RaisePolicy::Never {
            let own = self.by_fiber.get(&fiber.id()).copied();
            if own.is_some_and(|key| self.wake(key, WaitEnd::Alarm(number))) {
                return;
            }
            if own.is_none() && strand.is_some_and(|strand| strand.wait.get().is_some()) {
                self.inner.push(number);
            }
        }
        self.missed.entry(owner(fiber, strand)).or_default().push_back(number);
    }

    /// Queues an alarm before the other missed ones: it was delivered to a wait that ended for another reason.
    pub(crate) fn miss_first(&mut self, number: u64) {
        if let Some(alarm) = self.alarms.get(&number) {
            self.missed.entry(owner(alarm.fiber, alarm.strand)).or_default().push_front(number);
        }
    }

    /// Returns whether the strand, or the fiber without a strand, has missed an alarm.
    #[inline]
    pub(crate) fn has_missed(&self, fiber: Value, strand: Option<&'static Strand>) -> bool {
        !self.missed.is_empty() && self.missed.contains_key(&owner(fiber, strand))
    }

    /// Lists the alarms that this fiber's owner has missed, the oldest first, with the fibers that set them:
    /// those that may be raised at `place`, or all for `None`.
    pub(crate) fn missed(
        &self,
        fiber: Value,
        strand: Option<&'static Strand>,
        place: Option<RaisePolicy>,
    ) -> Vec<(u64, Value)> {
        let numbers = self.missed.get(&owner(fiber, strand)).into_iter().flatten();
        let alarms = numbers.filter_map(|number| Some((*number, self.alarms.get(number)?)));
        alarms
            .filter(|(_, alarm)| place.is_none_or(|place| alarm.hold <= place))
            .map(|(number, alarm)| (number, alarm.fiber))
            .collect()
    }

    /// Removes an alarm from the missed ones. Returns whether it was among them.
    pub(crate) fn take_missed(&mut self, number: u64) -> bool {
        let Some(alarm) = self.alarms.get(&number) else { return false };
        let owner = owner(alarm.fiber, alarm.strand);
        let Some(numbers) = self.missed.get_mut(&owner) else { return false };
        let before = numbers.len();
        numbers.retain(|&missed| missed != number);
        let was = numbers.len() < before;
        if numbers.is_empty() {
            self.missed.remove(&owner);
        }
        was
    }

    /// Takes the alarms that were missed while their strands wait in other fibers.
    pub(crate) fn take_inner(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.inner)
    }

    /// Delivers a missed alarm to the fiber in which its strand waits.
    pub(crate) fn ring_inner(&mut self, number: u64) {
        let strand = self.alarms.get(&number).and_then(|alarm| alarm.strand);
        let waits = strand.and_then(|strand| strand.wait.get());
        if let Some(key) = waits
            && self.take_missed(number)
            && !self.wake(key, WaitEnd::Alarm(number))
        {
            self.miss_first(number);
        }
    }

    /// Lists a strand's alarms that have expired and have not been raised, with the fibers that set them.
    /// They occur when a call blocks the loop.
    pub(crate) fn unheard(&self, strand: &'static Strand, now_us: u64) -> Vec<(u64, Value)> {
        let alarms =
            strand.alarms().into_iter().filter_map(|number| Some((number, self.alarms.get(&number)?)));
        let is_missed = |number: u64, alarm: &Alarm| {
            let missed = self.missed.get(&owner(alarm.fiber, alarm.strand));
            missed.is_some_and(|missed| missed.contains(&number))
        };
        let unheard = alarms.filter(|&(number, alarm)| {
            alarm.hold != RaisePolicy::Never
                && alarm.at_us <= now_us
                && (!alarm.due || is_missed(number, alarm))
        });
        let mut found: Vec<(u64, u64, Value)> =
            unheard.map(|(number, alarm)| (alarm.at_us, number, alarm.fiber)).collect();
        found.sort_by_key(|(at_us, number, _)| (*at_us, *number));
        found.into_iter().map(|(_, number, fiber)| (number, fiber)).collect()
    }

    /// Removes an alarm that is raised from outside the loop.
    pub(crate) fn heard(&mut self, number: u64) {
        self.forget_timer(number);
        self.take_missed(number);
    }
}

/// Returns whether the wait or alarm that a timer was set for is still pending.
fn is_wanted(waits: &[Wait], alarms: &HashMap<u64, Alarm, FxBuildHasher>, due: &Due) -> bool {
    match due {
        Due::Wait(key) => waits
            .get(key.at as usize)
            .is_some_and(|wait| wait.generation == key.generation && wait.fiber.is_some() && wait.limited),
        Due::Alarm(number) => alarms.get(number).is_some_and(|alarm| !alarm.due),
    }
}
