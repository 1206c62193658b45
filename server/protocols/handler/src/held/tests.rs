//! Tests the counts, the waiting of requests, and the choice of displaced responses.

use super::*;
use crate::held::account::{ResponseTurn, TurnFuture};
use crate::held::ledger::{LEAST_FILES, LEAST_MEMORY, Ledger, MEMORY};
use crate::held::pace::Pace;
use proptest::prelude::*;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

const LIMITS: Limits = Limits { descriptors: 64, memory: 64 << 20, disk: 1 << 30, uploads: 16 };

fn accounts(count: usize) -> (Rc<Ledger>, Vec<Rc<Account>>) {
    let ledger = Ledger::limited(LIMITS);
    let accounts = (0..count).map(|_| Rc::new(Account::of(ledger.clone()))).collect();
    (ledger, accounts)
}

fn response(account: &Rc<Account>) -> Rc<Holding> {
    Holding::new(account.clone(), || (), || None)
}

/// Creates many responses with one file each.
fn files(account: &Rc<Account>, count: usize) -> Vec<(Rc<Holding>, Hold)> {
    let file = |_| {
        let holding = response(account);
        let hold = holding.hold(Amount::FILE);
        (holding, hold)
    };
    (0..count).map(file).collect()
}

fn poll(waiting: &mut TurnFuture) -> Option<ResponseTurn> {
    match Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(turn) => Some(turn),
        Poll::Pending => None,
    }
}

#[test]
fn what_is_held_is_counted_until_it_is_dropped() {
    let (ledger, accounts) = accounts(1);
    let one = response(&accounts[0]);
    let hold = one.hold(Amount { descriptors: 1, memory: 10, disk: 0 });
    let other = one.hold(Amount { disk: 7, ..Amount::default() });
    assert_eq!(accounts[0].held(), Amount { descriptors: 1, memory: 10, disk: 7 });
    hold.set(Amount::of_memory(4));
    assert_eq!(ledger.held.get(), Amount { descriptors: 0, memory: 4, disk: 7 });
    drop((hold, one, other));
    assert_eq!((ledger.held.get(), accounts[0].held()), Default::default());
    assert!(of_thread().holdings.borrow().is_empty());
}

#[test]
fn a_connection_with_its_share_waits_and_others_do_not() {
    let (_, accounts) = accounts(2);
    let mut held = files(&accounts[0], 3);
    assert!(!accounts[0].is_full());
    held.extend(files(&accounts[0], 1));
    assert!(accounts[0].is_full() && !accounts[1].must_wait());
    let (mut first, mut second) = (accounts[0].turn(), accounts[0].turn());
    assert!(poll(&mut first).is_none() && poll(&mut second).is_none());
    held.pop();
    let turn = poll(&mut first).expect("room for one");
    assert!(poll(&mut second).is_none(), "what the first one will hold is not known");
    drop(turn);
    assert!(poll(&mut second).is_some(), "nothing");
}

#[test]
fn a_turn_is_not_lost_with_its_request() {
    let (_, accounts) = accounts(1);
    let mut held = files(&accounts[0], 4);
    let mut waiting: Vec<TurnFuture> = (0..3).map(|_| accounts[0].turn()).collect();
    assert!(waiting.iter_mut().all(|one| poll(one).is_none()));
    drop(waiting.remove(1));
    held.pop();
    // The first request was woken and is dropped.
    drop(waiting.remove(0));
    assert!(poll(&mut waiting[0]).is_some());
    assert!(!accounts[0].must_wait());
}

#[test]
fn memory_has_a_share_too() {
    let (_, accounts) = accounts(2);
    let one = response(&accounts[0]);
    let hold = one.hold(Amount::of_memory(CONNECTION_MEMORY));
    assert!(!accounts[0].is_full());
    hold.set(Amount::of_memory(CONNECTION_MEMORY + 1));
    assert!(accounts[0].is_full() && !accounts[1].is_full());
}

#[test]
fn the_longest_stalled_leaves_first_and_those_that_move_stay() {
    let (ledger, accounts) = accounts(3);
    let stalled = files(&accounts[0], 32);
    let moving = files(&accounts[1], 32);
    moving[0].0.took(100_000, Instant::now());
    let newcomer = files(&accounts[2], 1);
    let left: Vec<bool> = stalled.iter().map(|(one, _)| one.is_displaced()).collect();
    assert!(left[0] && left[1] && !left[2], "one, and a sixty-fourth");
    assert!(moving.iter().chain(&newcomer).all(|(one, _)| !one.is_displaced()));
    assert_eq!(ledger.leaving.get().descriptors, 2);
    drop(stalled);
    assert_eq!((ledger.leaving.get().descriptors, ledger.held.get().descriptors), (0, 33));
}

#[test]
fn a_slow_client_is_worth_more_than_one_that_takes_a_little_for_many() {
    let (_, accounts) = accounts(3);
    let many = files(&accounts[0], 63);
    let slow = files(&accounts[1], 1);
    many[5].0.took(20_000, Instant::now());
    slow[0].0.took(5_000, Instant::now());
    let _newcomer = files(&accounts[2], 1);
    assert!(!slow[0].0.is_displaced());
    assert_eq!(many.iter().filter(|(one, _)| one.is_displaced()).count(), 2);
}

#[test]
fn the_newest_stay_although_others_have_taken_much_before_they_stalled() {
    let (_, accounts) = accounts(3);
    let stalled = files(&accounts[0], 63);
    stalled.iter().for_each(|(one, _)| one.took(500_000, Instant::now()));
    let new = files(&accounts[1], 1);
    let newcomers = files(&accounts[2], 4);
    assert!(new.iter().chain(&newcomers).all(|(one, _)| !one.is_displaced()));
    assert!(stalled[0].0.is_displaced() && !stalled[62].0.is_displaced());
}

#[test]
fn those_that_have_paused_leave_before_those_that_move_however_much_they_took_at_first() {
    let (_, accounts) = accounts(3);
    let paused = files(&accounts[0], 32);
    let before = Instant::now().checked_sub(PAUSE).unwrap();
    paused.iter().for_each(|(one, _)| one.took(500_000, before));
    let moving = files(&accounts[1], 32);
    moving.iter().for_each(|(one, _)| one.took(1, Instant::now()));
    let _newcomer = files(&accounts[2], 1);
    assert!(paused[0].0.is_displaced() && moving.iter().all(|(one, _)| !one.is_displaced()));
}

#[test]
fn one_that_leaves_is_told_once() {
    let (_, accounts) = accounts(2);
    let told = Rc::new(Cell::new(0));
    let count = told.clone();
    let one = Holding::new(accounts[0].clone(), move || count.update(|n| n + 1), || None);
    let hold = one.hold(Amount::FILE);
    let _others = files(&accounts[1], 70);
    assert!(one.is_displaced() && told.get() == 1);
    drop((hold, one));
}

#[test]
fn a_burst_at_the_beginning_does_not_hide_that_a_client_reads_nothing() {
    let (_, accounts) = accounts(1);
    let (acknowledged, start) = (Rc::new(Cell::new(0)), Instant::now());
    let count = acknowledged.clone();
    let one = Holding::new(accounts[0].clone(), || (), move || Some(count.get()));
    let is_stalled = |second| one.stalled_since(start + Duration::from_secs(second)).is_some();
    one.took(4 << 20, start);
    assert!(!(2..17).any(is_stalled) && is_stalled(17), "15 s after the first look");
    acknowledged.set(1);
    assert!(!(18..33).any(is_stalled) && is_stalled(33), "15 s after the last acknowledged byte");
    one.took(1, start + Duration::from_secs(34));
    assert!(!(34..49).any(is_stalled) && is_stalled(49), "15 s after the last byte");
}

#[test]
fn for_memory_only_those_leave_that_hardly_move() {
    let (_, accounts) = accounts(4);
    let part = Amount::of_memory(LIMITS.memory / 2);
    let responses: Vec<Rc<Holding>> = accounts.iter().map(response).collect();
    let _holds: Vec<_> = responses.iter().take(3).map(|one| one.hold(part)).collect();
    assert!(responses.iter().all(|one| !one.is_displaced()), "they have just begun");
    of_thread().vain.set(None);
    std::thread::sleep(STALLED);
    responses[0].took(1 << 20, Instant::now());
    responses[1].took(1 << 20, Instant::now());
    let _more = responses[3].hold(Amount::of_memory(1));
    let left: Vec<bool> = responses.iter().map(|one| one.is_displaced()).collect();
    assert_eq!(left, [false, false, true, false]);
}

#[test]
fn a_connection_may_have_as_many_uploads_as_are_free() {
    use crate::held::Upload;
    let (ledger, accounts) = accounts(2);
    let mut places: Vec<Upload> = std::iter::from_fn(|| Upload::begin(Some(&accounts[0]))).collect();
    assert_eq!(places.len(), LIMITS.uploads as usize / 2);
    let others: Vec<Upload> = std::iter::from_fn(|| Upload::begin(Some(&accounts[1]))).collect();
    assert_eq!(others.len(), LIMITS.uploads as usize / 4);
    places.iter_mut().for_each(|place| place.grow(100));
    drop((places, others));
    assert_eq!((ledger.uploads.get(), accounts[0].uploads.get()), (0, 0));
}

#[test]
fn threads_share_what_the_process_has() {
    let new = |threads, memory| Limits::new(threads, memory, u64::MAX);
    let (one, four) = (new(1, u64::MAX), new(4, u64::MAX));
    assert_eq!(one.descriptors / 4, four.descriptors);
    assert_eq!((one.memory, four.memory), (MEMORY, LEAST_MEMORY));
    assert_eq!(new(1_000_000, u64::MAX).uploads, LEAST_FILES as u32);
    assert_eq!(new(0, u64::MAX), one);
    let little = |threads| new(threads, 200 << 20).memory;
    assert_eq!([1, 2].map(little), [100 << 20, LEAST_MEMORY]);
    assert_eq!(new(4, 64 << 20).memory, 32 << 20, "never more than half of what there is");
}

#[derive(Debug, Clone)]
enum Act {
    Begin(usize),
    Hold(usize, u32, u64),
    Change(usize, u32, u64),
    Took(usize, usize),
    End(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        (0usize..4).prop_map(Act::Begin),
        (any::<usize>(), 0u32..3, 0u64..1 << 20).prop_map(|(at, files, bytes)| Act::Hold(at, files, bytes)),
        (any::<usize>(), 0u32..3, 0u64..1 << 20).prop_map(|(at, files, bytes)| Act::Change(at, files, bytes)),
        (any::<usize>(), 0usize..100_000).prop_map(|(at, bytes)| Act::Took(at, bytes)),
        any::<usize>().prop_map(Act::End),
    ];
    proptest::collection::vec(act, 1..200)
}

proptest! {
    /// The totals match what exists, no response is displaced while there is room, and nothing is left at the
    /// end.
    #[test]
    fn the_sums_are_right(acts in acts()) {
        let (ledger, accounts) = accounts(4);
        let mut responses: Vec<(usize, Rc<Holding>, Vec<Hold>)> = Vec::new();
        for act in acts {
            let pick = |at: usize, len: usize| (len > 0).then(|| at % len);
            let amount = |descriptors, memory| Amount { descriptors, memory, disk: 0 };
            let before = ledger.held.get().descriptors;
            let leaving = responses.iter().filter(|(_, one, _)| one.is_displaced()).count();
            match act {
                Act::Begin(at) => responses.push((at, response(&accounts[at]), Vec::new())),
                Act::Hold(at, files, bytes) => if let Some(at) = pick(at, responses.len()) {
                    let hold = responses[at].1.hold(amount(files, bytes));
                    responses[at].2.push(hold);
                },
                Act::Change(at, files, bytes) => {
                    let hold = pick(at, responses.len()).and_then(|at| responses[at].2.last());
                    hold.into_iter().for_each(|hold| hold.set(amount(files, bytes)));
                }
                Act::Took(at, bytes) => if let Some(at) = pick(at, responses.len()) {
                    responses[at].1.took(bytes, Instant::now());
                },
                Act::End(at) => if let Some(at) = pick(at, responses.len()) {
                    responses.swap_remove(at);
                },
            }
            let sum = |of: Option<usize>| responses.iter()
                .filter(|(account, ..)| of.is_none_or(|of| of == *account))
                .flat_map(|(.., holds)| holds).fold(Amount::default(), |all, hold| all + hold.amount());
            prop_assert_eq!(ledger.held.get(), sum(None));
            for (at, account) in accounts.iter().enumerate() { prop_assert_eq!(account.held(), sum(Some(at))); }
            let left = responses.iter().filter(|(_, one, _)| one.is_displaced());
            let gone = left.clone().map(|(_, one, _)| one.held.get()).fold(Amount::default(), |all, held| all + held);
            prop_assert_eq!(ledger.leaving.get(), gone);
            let now = ledger.held.get().descriptors;
            prop_assert!(left.count() <= leaving || before.max(now) > LIMITS.descriptors);
        }
        drop(responses);
        prop_assert_eq!(ledger.held.get(), Amount::default());
        prop_assert_eq!(ledger.leaving.get(), Amount::default());
        prop_assert!(of_thread().holdings.borrow().is_empty());
    }
}

#[test]
fn a_pace_begins_slowly() {
    let now = Instant::now();
    assert_eq!(Pace::new(now).rate(now), 0);
}
