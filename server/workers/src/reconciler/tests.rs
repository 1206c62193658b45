//! Tests the lives of workers and templates, and properties of all of them.

use super::templates::FIRST_WAIT;
use super::world::*;
use super::*;
use crate::process::ExitStatus;
use proptest::prelude::*;
use stats::{ReloadStep, ReloadWish};

fn table(wanted: usize, now: Instant) -> Reconciler {
    Reconciler::new(Capabilities::TEMPLATE, wish(vec![wanted]), 32, settings::Workers::exactly(1), now)
}

/// Takes a change and returns the acts that concern processes.
fn on(table: &mut Reconciler, seen: Change, now: Instant) -> Vec<Act> {
    of_processes(table.see(seen, now))
}

fn of_processes(mut acts: Vec<Act>) -> Vec<Act> {
    let resized = |act: &Act| matches!(act, Act::Reached(Milestone::Resized { .. }));
    acts.retain(|act| !matches!(act, Act::Log(_) | Act::Tell { .. } | Act::Reason { .. }) && !resized(act));
    acts
}

/// Returns a reconciler whose workers are all up, and the time.
fn settled(wanted: usize) -> (Reconciler, Instant) {
    let now = Instant::now();
    let mut table = table(wanted, now);
    let acts = on(&mut table, booted(FIRST), now);
    let seen = carry_out(&mut table, acts, now);
    assert_eq!(seen.last(), Some(&Act::Reached(Milestone::Settled)));
    (table, now)
}

/// Carries out all forks: each succeeds and its worker becomes ready. Returns all acts.
fn carry_out(table: &mut Reconciler, mut acts: Vec<Act>, now: Instant) -> Vec<Act> {
    let mut seen = Vec::new();
    while !acts.is_empty() {
        let act = acts.remove(0);
        if let Act::Fork { generation, index, serial, .. } = act {
            acts.extend(on(table, forked(generation, index, 100 + serial), now));
            acts.extend(on(table, Change::Ready(serial), now));
        }
        seen.push(act);
    }
    seen
}

fn booted(generation: Generation) -> Change {
    Change::Template { generation, usable: Ok(()) }
}

fn died(generation: Generation) -> Change {
    Change::Template { generation, usable: Err("it died".to_owned()) }
}

fn forked(generation: Generation, index: u32, pid: u32) -> Change {
    Change::Forked { generation, index, pid: Some(pid) }
}

fn exited(serial: Serial) -> Change {
    exited_with(serial, true)
}

fn exited_with(serial: Serial, served: bool) -> Change {
    Change::Ended { serial, served, end: End::Reported { status: ExitStatus::Signal(9), peak_kib: 1 } }
}

fn drained(serial: Serial) -> Change {
    let end = End::Reported { status: ExitStatus::Exit(0), peak_kib: 1 };
    Change::Ended { serial, served: true, end }
}

fn lost(serial: Serial) -> Change {
    Change::Ended { serial, served: true, end: End::Link }
}

fn ended(serial: Serial) -> Change {
    Change::Ended { serial, served: true, end: End::Process }
}

fn start(generation: Generation, release: ReleaseId) -> Act {
    Act::StartTemplate { generation, release }
}

fn fork(generation: Generation, index: u32, serial: Serial) -> Act {
    Act::Fork { generation, pool: PoolIndex::DEFAULT, index, serial }
}

fn open(serial: Serial) -> Act {
    Act::Open { serial, share: None }
}

fn close(serial: Serial) -> Act {
    Act::Close { serial, leaves: None }
}

fn signal(serial: Serial, signal: WorkerSignal) -> Act {
    Act::Signal { serial, generation: Some(FIRST), pid: 100 + serial, signal }
}

fn unresponsive(generation: Generation) -> Act {
    let why = TemplateEnd::Failed { why: "does not respond", place: String::new() };
    Act::EndTemplate { generation, why }
}

fn gone(acts: &[Act]) -> Vec<&WorkerExit> {
    acts.iter().filter_map(|act| if let Act::Gone(exit) = act { Some(exit) } else { None }).collect()
}

fn is_fork(act: &Act) -> bool {
    matches!(act, Act::Fork { .. })
}

fn up(table: &Reconciler) -> Vec<Serial> {
    table.rows().filter(|row| row.state == WorkerState::Ready).map(|row| row.serial).collect()
}

fn resize(table: &mut Reconciler, more: bool, now: Instant) -> Vec<Act> {
    of_processes(table.resize(more, false, now))
}

fn want(table: &mut Reconciler, number: usize, now: Instant) -> Vec<Act> {
    table.now = now;
    table.want(number, "because");
    of_processes(table.settle_all())
}

fn recycle(table: &mut Reconciler, serial: Serial, now: Instant) -> Vec<Act> {
    table.now = now;
    table.recycle(serial);
    of_processes(table.settle_all())
}

fn kill(table: &mut Reconciler, serial: Serial, now: Instant) -> Vec<Act> {
    table.now = now;
    table.kill_worker(serial, Cause::Ordered);
    of_processes(table.settle_all())
}

#[test]
fn workers_are_forked_one_by_one_until_all_are_up() {
    let now = Instant::now();
    let mut table = table(2, now);
    let first = on(&mut table, booted(FIRST), now);
    assert_eq!(first, [fork(FIRST, 0, 1)]);
    let seen = carry_out(&mut table, first, now);
    assert_eq!(seen.last(), Some(&Act::Reached(Milestone::Settled)));
    assert_eq!(up(&table), [1, 2]);
}

#[test]
fn a_worker_may_be_ready_before_its_fork_is_reported() {
    let now = Instant::now();
    let mut table = table(1, now);
    on(&mut table, booted(FIRST), now);
    assert_eq!(on(&mut table, Change::Ready(1), now), []);
    let acts = on(&mut table, forked(FIRST, 0, 101), now);
    assert_eq!(acts, [open(1), Act::Reached(Milestone::Settled)]);
}

#[test]
fn a_worker_may_die_before_its_fork_is_reported() {
    let now = Instant::now();
    let mut table = table(1, now);
    on(&mut table, booted(FIRST), now);
    assert_eq!(on(&mut table, Change::Ended { serial: 1, served: false, end: End::Link }, now), []);
    let acts = on(&mut table, forked(FIRST, 0, 101), now);
    assert_eq!(acts, [close(1)]);
    assert_eq!(gone(&on(&mut table, exited(1), now)).len(), 1);
}

#[test]
fn a_dead_worker_is_replaced_at_once_however_young() {
    let (mut table, now) = settled(1);
    for serial in 1..20 {
        let acts = on(&mut table, exited(serial), now);
        let [Act::Gone(exit), Act::Fork { index: 0, serial: next, .. }] = &acts[..] else {
            panic!("{acts:?}")
        };
        assert_eq!((exit.cause, exit.status, exit.wait), (Cause::Crashed, Some(ExitStatus::Signal(9)), None));
        assert_eq!(*next, serial + 1);
        carry_out(&mut table, vec![fork(FIRST, 0, *next)], now);
    }
}

#[test]
fn workers_that_exit_without_having_served_are_replaced_gently() {
    let (mut table, start) = settled(1);
    let (mut now, mut forks, mut serial) = (start, 0, 1);
    while now < start + 30 * SECOND {
        let mut acts = on(&mut table, exited_with(serial, false), now);
        while !acts.iter().any(is_fork) {
            now += Duration::from_millis(100);
            acts = on(&mut table, Change::Tick, now);
        }
        forks += 1;
        serial += 1;
        let index =
            acts.iter().find_map(|a| if let Act::Fork { index, .. } = a { Some(*index) } else { None });
        carry_out(&mut table, vec![fork(FIRST, index.unwrap(), serial)], now);
        now += Duration::from_millis(10);
    }
    assert!((10..30).contains(&forks), "{forks} forks in 30 s");
    let acts = on(&mut table, exited_with(serial, false), now + templates::SHORT_LIFE);
    assert!(acts.iter().any(is_fork), "one that lived for longer is replaced at once");
}

#[test]
fn workers_that_fail_while_they_boot_are_replaced_ever_more_slowly() {
    let mut now = Instant::now();
    let mut table = table(1, now);
    let mut acts = on(&mut table, booted(FIRST), now);
    let (mut waits, mut serial) = (Vec::new(), 0);
    while waits.len() < 6 {
        if acts.iter().any(is_fork) {
            serial += 1;
            on(&mut table, forked(FIRST, 0, 100 + serial), now);
            acts = on(&mut table, exited(serial), now);
            waits.extend(gone(&acts).iter().map(|exit| exit.wait));
        } else {
            now += Duration::from_millis(100);
            acts = on(&mut table, Change::Tick, now);
        }
    }
    assert!(waits.windows(2).all(|pair| pair[0] < pair[1]), "{waits:?}");
}

#[test]
fn a_lost_link_counts_as_a_death_before_the_exit_is_reported() {
    let mut now = Instant::now();
    let mut table = table(1, now);
    on(&mut table, booted(FIRST), now);
    on(&mut table, forked(FIRST, 0, 101), now);
    assert_eq!(on(&mut table, lost(1), now), [close(1)], "no replacement yet");
    now += FIRST_WAIT / 2;
    let acts = on(&mut table, exited(1), now);
    assert!(
        matches!(&acts[..], [Act::Gone(WorkerExit { cause: Cause::Crashed, wait: Some(_), .. })]),
        "{acts:?}"
    );
    assert!(matches!(&on(&mut table, Change::Tick, now + FIRST_WAIT)[..], [Act::Fork { .. }]));
}

#[test]
fn a_server_that_never_had_a_worker_gives_up() {
    let mut now = Instant::now();
    let mut table = table(1, now);
    let mut acts = on(&mut table, booted(FIRST), now);
    for serial in 1..=HOPELESS {
        while !acts.contains(&fork(FIRST, 0, serial)) {
            now += Duration::from_millis(100);
            acts = on(&mut table, Change::Tick, now);
        }
        on(&mut table, forked(FIRST, 0, 100 + serial), now);
        acts = on(&mut table, exited(serial), now);
    }
    assert!(acts.contains(&Act::Reached(Milestone::Hopeless(Hopeless::Workers))), "{acts:?}");
}

#[test]
fn a_worker_that_boots_too_long_is_killed_and_counts_as_failed() {
    let (mut table, now) = settled(1);
    on(&mut table, exited(1), now);
    on(&mut table, forked(FIRST, 0, 102), now);
    let nearly = now + TIMEOUTS.boot - KILL_AFTER;
    assert_eq!(
        on(&mut table, Change::Tick, nearly),
        [signal(2, WorkerSignal::Backtraces)],
        "it says where it is"
    );
    assert_eq!(on(&mut table, Change::Tick, nearly), [], "once");
    assert_eq!(on(&mut table, Change::Tick, now + TIMEOUTS.boot)[0], signal(2, WorkerSignal::Kill));
    let acts = on(&mut table, exited(2), now + TIMEOUTS.boot);
    assert_eq!(gone(&acts)[0].cause, Cause::SlowBoot);
}

#[test]
fn a_stuck_worker_is_replaced_and_killed_when_its_other_requests_have_finished() {
    let (mut table, now) = settled(1);
    let acts = on(&mut table, Change::Health(1, Health::Stuck), now);
    assert_eq!(acts[..2], [close(1), signal(1, WorkerSignal::Backtraces)]);
    assert!(matches!(acts[2], Act::Fork { serial: 2, .. }), "its replacement does not wait");
    carry_out(&mut table, vec![acts[2].clone()], now);
    assert_eq!(on(&mut table, Change::Tick, now + 5 * SECOND), [], "others are served");
    on(&mut table, Change::Health(1, Health::OthersFinished), now + 6 * SECOND);
    assert_eq!(on(&mut table, Change::Tick, now + 6 * SECOND), [signal(1, WorkerSignal::Kill)]);
    let acts = on(&mut table, exited(1), now + 6 * SECOND);
    assert_eq!(gone(&acts)[0].cause, Cause::Stuck);
}

#[test]
fn a_stuck_worker_gets_a_second_for_its_backtraces_and_shutdown_for_its_requests() {
    let (mut table, now) = settled(1);
    let acts = on(&mut table, Change::Health(1, Health::Stuck), now);
    carry_out(&mut table, acts, now);
    on(&mut table, Change::Health(1, Health::OthersFinished), now);
    assert_eq!(on(&mut table, Change::Tick, now + KILL_AFTER / 2), []);
    assert_eq!(on(&mut table, Change::Tick, now + KILL_AFTER), [signal(1, WorkerSignal::Kill)]);
    let (mut table, now) = settled(1);
    let acts = on(&mut table, Change::Health(1, Health::Stuck), now);
    carry_out(&mut table, acts, now);
    assert_eq!(on(&mut table, Change::Tick, now + TIMEOUTS.shutdown), [signal(1, WorkerSignal::Kill)]);
}

#[test]
fn a_frozen_worker_is_killed_and_replaced_at_once() {
    let (mut table, now) = settled(1);
    let acts = on(&mut table, Change::Health(1, Health::Frozen), now);
    assert_eq!(acts, [close(1), signal(1, WorkerSignal::Kill), fork(FIRST, 1, 2)]);
    let acts = on(&mut table, exited(1), now);
    assert_eq!(gone(&acts)[0].cause, Cause::Frozen);
}

#[test]
fn a_suspended_worker_is_replaced_but_may_come_back() {
    let (mut table, now) = settled(1);
    assert_eq!(on(&mut table, Change::Health(1, Health::Suspended { idle_thread: true }), now), []);
    let acts = on(&mut table, Change::Tick, now + ABSENT);
    assert_eq!(acts, [fork(FIRST, 1, 2)]);
    carry_out(&mut table, acts, now + ABSENT);
    assert_eq!(on(&mut table, Change::Health(1, Health::Resumed), now + 2 * ABSENT), [close(2)]);
    assert_eq!(up(&table), [1]);
}

#[test]
fn a_busy_worker_is_not_replaced() {
    let (mut table, now) = settled(1);
    on(&mut table, Change::Health(1, Health::Suspended { idle_thread: false }), now);
    assert_eq!(on(&mut table, Change::Tick, now + 10 * ABSENT), []);
}

#[test]
fn more_and_fewer() {
    let (mut table, now) = settled(1);
    let acts = resize(&mut table, true, now);
    carry_out(&mut table, acts, now);
    assert_eq!(table.rows().count(), 2);
    assert_eq!(resize(&mut table, false, now), [close(2)]);
    assert_eq!(resize(&mut table, false, now), [], "one stays");
}

#[test]
fn a_worker_that_is_being_forked_leaves_before_one_that_serves() {
    let (mut table, now) = settled(1);
    assert_eq!(resize(&mut table, true, now), [fork(FIRST, 1, 2)]);
    assert_eq!(resize(&mut table, false, now), []);
    let forked = forked(FIRST, 1, 102);
    assert_eq!(on(&mut table, forked, now), [close(2)]);
    assert_eq!(up(&table), [1]);
}

#[test]
fn so_many_are_wanted() {
    let (mut table, now) = settled(2);
    let acts = want(&mut table, 4, now);
    assert!(!table.is_complete() && !table.is_staffed());
    carry_out(&mut table, acts, now);
    assert_eq!(up(&table), [1, 2, 3, 4]);
    assert!(table.is_complete());
    assert_eq!(want(&mut table, 2, now), [close(4), close(3)]);
    want(&mut table, 0, now);
    assert_eq!(table.wanted(), 1);
    want(&mut table, 99, now);
    assert_eq!((table.wanted(), table.slots()), (32, 32));
}

#[test]
fn while_a_worker_is_replaced_the_table_is_staffed_but_not_complete() {
    let (mut table, now) = settled(2);
    let acts = recycle(&mut table, 1, now);
    assert!(table.is_staffed() && !table.is_complete());
    carry_out(&mut table, acts, now);
    assert!(table.is_staffed() && table.is_complete());
    kill(&mut table, 2, now);
    assert!(!table.is_staffed());
    of_processes(table.drain(now));
    assert!(!table.is_staffed() && !table.is_complete());
}

#[test]
fn draining_ends_empty_and_kills_workers_that_do_not_finish() {
    let (mut table, now) = settled(2);
    assert_eq!(of_processes(table.drain(now)), [close(1), close(2)]);
    assert_eq!(gone(&on(&mut table, drained(1), now))[0].cause, Cause::Ordered);
    assert_eq!(on(&mut table, Change::Tick, now + TIMEOUTS.shutdown), [signal(2, WorkerSignal::Kill)]);
    let acts = on(&mut table, exited(2), now + TIMEOUTS.shutdown);
    assert!(matches!(
        &acts[..],
        [Act::Gone(WorkerExit { cause: Cause::SlowDrain, .. }), Act::Reached(Milestone::Empty)]
    ));
}

#[test]
fn workers_of_a_dead_template_serve_until_those_of_a_new_one_take_over() {
    let (mut table, now) = settled(2);
    assert_eq!(on(&mut table, died(FIRST), now), [start(2, FIRST_RELEASE)]);
    assert_eq!(table.signal_by(1), None);
    assert_eq!(up(&table), [1, 2]);
    let acts = on(&mut table, booted(2), now);
    assert_eq!(acts, [fork(2, 2, 3)]);
    let seen = carry_out(&mut table, acts, now);
    assert_eq!(seen[1..], [open(3), close(2), fork(2, 3, 4), open(4), close(1)]);
    let acts = [on(&mut table, lost(1), now), on(&mut table, lost(2), now)].concat();
    assert_eq!(gone(&acts), Vec::<&WorkerExit>::new(), "they may still be there");
    let acts = [on(&mut table, ended(1), now), on(&mut table, ended(2), now)].concat();
    assert_eq!(
        gone(&acts).iter().map(|exit| exit.serial).collect::<Vec<_>>(),
        [1, 2],
        "no template reports it"
    );
}

#[test]
fn a_template_that_does_not_fork_in_time_is_replaced() {
    let (mut table, now) = settled(2);
    assert_eq!(on(&mut table, exited(1), now)[1], fork(FIRST, 0, 3));
    assert_eq!(on(&mut table, Change::Tick, now + ORDER_TIMEOUT - SECOND), []);
    let acts = on(&mut table, Change::Tick, now + ORDER_TIMEOUT);
    assert_eq!(acts[0], unresponsive(FIRST));
    assert_eq!(gone(&acts)[0].serial, 3, "the fork that never came");
    assert_eq!(acts.last(), Some(&start(2, FIRST_RELEASE)));
    let acts = on(&mut table, booted(2), now);
    carry_out(&mut table, acts, now);
    assert_eq!(table.rows().filter(|row| row.state == WorkerState::Ready && row.generation == 2).count(), 2);
}

#[test]
fn a_template_that_does_not_report_an_exit_is_replaced() {
    let (mut table, now) = settled(1);
    let acts = on(&mut table, ended(1), now);
    assert_eq!(acts[0], close(1));
    carry_out(&mut table, acts, now);
    assert_eq!(on(&mut table, Change::Tick, now + KILL_AFTER), [], "nobody is there to be killed");
    let acts = on(&mut table, Change::Tick, now + ORDER_TIMEOUT);
    assert!(acts.contains(&unresponsive(FIRST)));
    assert_eq!(gone(&acts)[0].serial, 1);
    assert_eq!(up(&table), [2]);
}

#[test]
fn a_worker_whose_links_have_ended_is_killed_and_its_template_left_alone_until_it_has_ended() {
    let (mut table, now) = settled(1);
    let acts = on(&mut table, lost(1), now);
    assert_eq!(acts[0], close(1));
    carry_out(&mut table, acts, now);
    assert_eq!(on(&mut table, Change::Tick, now + KILL_AFTER), [signal(1, WorkerSignal::Kill)]);
    let late = now + 2 * ORDER_TIMEOUT;
    assert_eq!(
        on(&mut table, Change::Tick, late),
        [signal(1, WorkerSignal::Kill)],
        "the template has nothing to report"
    );
    assert_eq!(on(&mut table, ended(1), late), []);
    assert_eq!(gone(&on(&mut table, exited(1), late)).len(), 1);
}

#[test]
fn a_worker_ends_by_its_process_whoever_holds_its_links() {
    let (mut table, now) = settled(2);
    on(&mut table, died(FIRST), now);
    let acts = on(&mut table, ended(1), now);
    assert_eq!(acts[0], close(1));
    let exit = gone(&acts)[0];
    assert_eq!((exit.serial, exit.cause, exit.killed), (1, Cause::Crashed, false));
    let acts = [of_processes(table.drain(now)), on(&mut table, ended(2), now)].concat();
    assert_eq!(acts.last(), Some(&Act::Reached(Milestone::Empty)), "{acts:?}");
}

#[test]
fn a_worker_that_has_ended_goes_with_the_template_that_should_have_reported_it() {
    let (mut table, now) = settled(2);
    assert_eq!(gone(&on(&mut table, ended(1), now)).len(), 0);
    let acts = on(&mut table, died(FIRST), now);
    assert_eq!(gone(&acts).iter().map(|exit| exit.serial).collect::<Vec<_>>(), [1, 3], "3 was being forked");
    assert_eq!(on(&mut table, ended(1), now), [], "once");
}

#[test]
fn a_server_whose_templates_die_before_a_worker_is_ready_gives_up() {
    let mut now = Instant::now();
    let mut table = table(1, now);
    for generation in FIRST..FIRST + HOPELESS {
        let forks = on(&mut table, booted(generation), now);
        assert!(forks.iter().any(is_fork), "{forks:?}");
        let acts = on(&mut table, died(generation), now);
        let gives_up = acts.contains(&Act::Reached(Milestone::Hopeless(Hopeless::Templates)));
        assert_eq!(gives_up, generation == HOPELESS, "{acts:?}");
        now += RETRY_AT_START;
        let again = on(&mut table, Change::Tick, now);
        assert_eq!(again.contains(&start(generation + 1, FIRST_RELEASE)), !gives_up, "{again:?}");
    }
}

#[test]
fn a_template_that_dies_later_is_tried_as_long_as_it_takes() {
    let (mut table, mut now) = settled(1);
    let mut acts = on(&mut table, died(FIRST), now);
    for generation in 2..20 {
        while !acts.contains(&start(generation, FIRST_RELEASE)) {
            now += SECOND;
            acts = on(&mut table, Change::Tick, now);
        }
        on(&mut table, booted(generation), now);
        acts = on(&mut table, died(generation), now);
        assert!(!acts.iter().any(|action| matches!(action, Act::Reached(Milestone::Hopeless(_)))));
    }
    assert_eq!(up(&table), [1]);
}

#[test]
fn a_stopped_template_does_not_hold_up_the_end() {
    let (mut table, now) = settled(1);
    of_processes(table.drain(now));
    on(&mut table, ended(1), now);
    let acts = on(&mut table, Change::Tick, now + ORDER_TIMEOUT);
    assert_eq!(acts.last(), Some(&Act::Reached(Milestone::Empty)), "{acts:?}");
}

#[test]
fn a_template_that_boots_too_long_is_tried_again_later() {
    let (mut table, now) = settled(1);
    on(&mut table, died(FIRST), now);
    assert_eq!(on(&mut table, Change::Tick, now + TIMEOUTS.boot - SECOND), []);
    let now = now + TIMEOUTS.boot;
    let why = "did not load the app within timeouts.worker_boot";
    let why = TemplateEnd::Failed { why, place: String::new() };
    assert_eq!(on(&mut table, Change::Tick, now), [Act::EndTemplate { generation: 2, why }]);
    assert_eq!(on(&mut table, Change::Tick, now + RETRY - SECOND), []);
    assert_eq!(on(&mut table, Change::Tick, now + RETRY), [start(3, FIRST_RELEASE)]);
    assert_eq!(on(&mut table, died(3), now + RETRY), []);
    assert_eq!(on(&mut table, Change::Tick, now + 2 * RETRY), [start(4, FIRST_RELEASE)]);
    assert_eq!(up(&table), [1], "the old worker serves all the time");
}

#[test]
fn a_recycled_worker_serves_until_its_successor_is_ready() {
    let (mut table, now) = settled(2);
    assert_eq!(recycle(&mut table, 1, now), [fork(FIRST, 2, 3)]);
    assert_eq!(on(&mut table, forked(FIRST, 2, 103), now), []);
    assert_eq!(up(&table), [1, 2]);
    assert_eq!(on(&mut table, Change::Ready(3), now), [open(3), close(1)]);
    assert_eq!(up(&table), [2, 3]);
    let acts = on(&mut table, drained(1), now);
    assert_eq!((gone(&acts)[0].cause, acts.iter().any(is_fork)), (Cause::Ordered, false));
}

#[test]
fn a_recycled_worker_stays_when_its_successor_fails() {
    let (mut table, now) = settled(1);
    assert_eq!(recycle(&mut table, 1, now), [fork(FIRST, 1, 2)]);
    let again = on(&mut table, Change::Forked { generation: FIRST, index: 1, pid: None }, now);
    assert_eq!((up(&table), again.last()), (vec![1], Some(&fork(FIRST, 1, 3))), "it is tried again");
    let forked = forked(FIRST, 1, 103);
    assert_eq!(on(&mut table, forked, now), []);
    on(&mut table, exited_with(3, false), now);
    assert_eq!(up(&table), [1]);
    on(&mut table, died(FIRST), now);
    assert_eq!(up(&table), [1], "nor when the template dies");
}

#[test]
fn a_worker_that_is_killed_is_replaced_at_once() {
    let (mut table, now) = settled(2);
    let acts = kill(&mut table, 1, now);
    assert_eq!(acts, [close(1), signal(1, WorkerSignal::Kill), fork(FIRST, 2, 3)]);
    let acts = on(&mut table, exited(1), now);
    assert_eq!((gone(&acts)[0].killed, gone(&acts)[0].cause), (true, Cause::Ordered));
}

fn attached_at(now: Instant) -> Reconciler {
    Reconciler::new(Capabilities::ATTACHED, wish(vec![1]), 1, settings::Workers::exactly(1), now)
}

/// Returns a reconciler whose only worker is the process that has started the front, and is up.
fn attached() -> (Reconciler, Instant) {
    let now = Instant::now();
    let mut table = attached_at(now);
    let acts = on(&mut table, booted(FIRST), now);
    let seen = carry_out(&mut table, acts, now);
    assert_eq!(seen, [fork(FIRST, 0, 1), open(1), Act::Reached(Milestone::Settled)]);
    (table, now)
}

#[test]
fn an_attached_worker_is_never_replaced() {
    let (mut table, now) = attached();
    for health in [Health::Frozen, Health::Stuck] {
        assert_eq!(on(&mut table, Change::Health(1, health), now), []);
    }
    assert_eq!([true, false].map(|more| resize(&mut table, more, now)), [vec![], vec![]]);
    let refused = |acts: Vec<Act>| {
        let end = |act: &Act| matches!(act, Act::Tell { to: 7, step: ReloadStep::Failed { .. } });
        acts.len() == 1 && acts.iter().all(end)
    };
    assert!(
        [ReloadWish::Reload, ReloadWish::Undo]
            .map(|wish| table.reload(wish, Some(7), now))
            .into_iter()
            .all(refused)
    );
    on(&mut table, Change::Health(1, Health::Suspended { idle_thread: true }), now);
    assert_eq!(on(&mut table, Change::Tick, now + ABSENT * 2), [], "there is nothing to take its place");
}

#[test]
fn the_end_of_an_attached_worker_is_the_end() {
    for event in [drained(1), exited(1)] {
        let (mut table, now) = attached();
        let acts = on(&mut table, event, now);
        assert!(matches!(acts[..], [Act::Gone(_), Act::Reached(Milestone::Empty)]), "{acts:?}");
        assert_eq!(on(&mut table, Change::Tick, now + SECOND * 60), [Act::Reached(Milestone::Empty)]);
    }
}

#[test]
fn an_attached_process_that_leaves_takes_its_worker_along() {
    let (mut table, now) = attached();
    let acts = on(&mut table, died(FIRST), now);
    assert!(
        matches!(acts[..], [Act::Close { serial: 1, .. }, Act::Gone(_), Act::Reached(Milestone::Empty)]),
        "{acts:?}"
    );
}

#[test]
fn an_attached_worker_that_does_not_finish_is_told_so() {
    let (mut table, now) = attached();
    assert_eq!(of_processes(table.drain(now)), [close(1)]);
    let late = now + TIMEOUTS.shutdown;
    assert_eq!(on(&mut table, Change::Tick, late), [signal(1, WorkerSignal::Kill)]);
    let acts = on(&mut table, drained(1), late);
    assert!(matches!(acts[..], [Act::Gone(_), Act::Reached(Milestone::Empty)]), "{acts:?}");
}

#[test]
fn an_attached_worker_that_cannot_start_is_the_end() {
    let now = Instant::now();
    let mut table = attached_at(now);
    on(&mut table, booted(FIRST), now);
    let acts = on(&mut table, Change::Forked { generation: FIRST, index: 0, pid: None }, now);
    assert!(matches!(acts[..], [Act::Gone(_), Act::Reached(Milestone::Empty)]), "{acts:?}");
}

/// Returns the counts of both pools as wanted by the next fork orders.
fn by_pool(acts: &[Act]) -> [usize; 2] {
    [0, 1].map(|pool| {
        acts.iter()
            .filter(|act| matches!(act, Act::Fork { pool: one, .. } if *one == PoolIndex(pool)))
            .count()
    })
}

#[test]
fn each_pool_has_its_own_number_of_workers() {
    let mut world = World::booting(vec![2, 3], Capabilities::TEMPLATE);
    world.work(20);
    assert_eq!((by_pool(&world.acts), world.open.len()), ([2, 3], 5));
    assert!(world.machine.is_complete());
    world.acts.clear();
    world.reload();
    world.work(60);
    assert_eq!((by_pool(&world.acts), world.open.len()), ([2, 3], 5), "{:?}", world.outcomes());
    assert_eq!(world.generations().into_iter().collect::<Vec<_>>(), [2]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// For any steps: one fork at a time, by a template that exists, and no worker is gone twice or without
    /// having been forked. When everything works again, only the newest generation serves, with the wanted
    /// number of workers of each pool, and all others were reported gone.
    #[test]
    fn bookkeeping_holds(steps in proptest::collection::vec(steps(), 1..150), reforks: bool, others in 0usize..3) {
        let counts = if others == 0 { vec![3] } else { vec![2, others] };
        let mut world = World::booting(counts.clone(), Capabilities::TEMPLATE);
        world.machine.wish.refork_after = reforks.then_some(50);
        for (step, number) in steps {
            world.step(step, number);
        }
        world.work(300);
        world.check_rest();
        for (pool, count) in &world.machine.wish.counts {
            prop_assert_eq!(world.machine.up(*pool), *count);
        }
    }
}
