//! Tests the lives of workers and templates, and properties of all of them.

use super::generation::FIRST_WAIT;
use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

const TIMEOUTS: Timeouts = Timeouts { boot: Duration::from_secs(60), shutdown: Duration::from_secs(30) };
const SECOND: Duration = Duration::from_secs(1);

fn table(wanted: usize, now: Instant) -> Table {
    Table::new(wanted, 32, TIMEOUTS, now)
}

/// Returns a table whose workers are all up, and the time.
fn settled(wanted: usize) -> (Table, Instant) {
    let now = Instant::now();
    let mut table = table(wanted, now);
    let actions = table.on(Event::TemplateBooted(FIRST), now);
    let seen = carry_out(&mut table, actions, now);
    assert_eq!(seen.last(), Some(&Action::Settled));
    (table, now)
}

/// Carries out all forks: each succeeds and its worker becomes ready. Returns all actions.
fn carry_out(table: &mut Table, mut actions: Vec<Action>, now: Instant) -> Vec<Action> {
    let mut seen = Vec::new();
    while !actions.is_empty() {
        let action = actions.remove(0);
        if let Action::Fork { generation, index, serial } = action {
            actions.extend(table.on(Event::Forked { generation, index, pid: 100 + serial }, now));
            actions.extend(table.on(Event::Ready(serial), now));
        }
        seen.push(action);
    }
    seen
}

fn exited(serial: Serial) -> Event {
    exited_with(serial, FIRST, true)
}

fn exited_with(serial: Serial, generation: Generation, served: bool) -> Event {
    Event::Exited { generation, pid: 100 + serial, status: ExitStatus::Signal(9), peak_kib: 1, served }
}

fn drained(serial: Serial, generation: Generation) -> Event {
    Event::Exited { generation, pid: 100 + serial, status: ExitStatus::Exit(0), peak_kib: 1, served: true }
}

fn lost(serial: Serial) -> Event {
    Event::LinkLost { serial, served: true }
}

fn ended(serial: Serial) -> Event {
    Event::Ended { serial, served: true }
}

fn start(generation: Generation, code: Code) -> Action {
    Action::StartTemplate { generation, code }
}

fn fork(generation: Generation, index: u32, serial: Serial) -> Action {
    Action::Fork { generation, index, serial }
}

fn signal(serial: Serial, name: &'static str) -> Action {
    Action::Signal { serial, generation: Some(FIRST), pid: 100 + serial, name }
}

fn gone(actions: &[Action]) -> Vec<&WorkerExit> {
    actions
        .iter()
        .filter_map(|action| if let Action::Gone(exit) = action { Some(exit) } else { None })
        .collect()
}

fn is_fork(action: &Action) -> bool {
    matches!(action, Action::Fork { .. })
}

fn up(table: &Table) -> Vec<Serial> {
    table.rows().filter(|row| row.stage == Stage::Up).map(|row| row.serial).collect()
}

#[test]
fn workers_are_forked_one_by_one_until_all_are_up() {
    let now = Instant::now();
    let mut table = table(2, now);
    let first = table.on(Event::TemplateBooted(FIRST), now);
    assert_eq!(first, [fork(FIRST, 0, 1)]);
    let seen = carry_out(&mut table, first, now);
    assert_eq!(seen.last(), Some(&Action::Settled));
    assert_eq!(up(&table), [1, 2]);
}

#[test]
fn a_worker_may_be_ready_before_its_fork_is_reported() {
    let now = Instant::now();
    let mut table = table(1, now);
    table.on(Event::TemplateBooted(FIRST), now);
    assert_eq!(table.on(Event::Ready(1), now), []);
    let actions = table.on(Event::Forked { generation: FIRST, index: 0, pid: 101 }, now);
    assert_eq!(actions, [Action::Open(1), Action::Settled]);
}

#[test]
fn a_worker_may_die_before_its_fork_is_reported() {
    let now = Instant::now();
    let mut table = table(1, now);
    table.on(Event::TemplateBooted(FIRST), now);
    assert_eq!(table.on(Event::LinkLost { serial: 1, served: false }, now), []);
    let actions = table.on(Event::Forked { generation: FIRST, index: 0, pid: 101 }, now);
    assert_eq!(actions, [Action::Close(1)]);
    assert_eq!(gone(&table.on(exited(1), now)).len(), 1);
}

#[test]
fn a_dead_worker_is_replaced_at_once_however_young() {
    let (mut table, now) = settled(1);
    for serial in 1..20 {
        let actions = table.on(exited(serial), now);
        let [Action::Gone(exit), Action::Fork { index: 0, serial: next, .. }] = &actions[..] else {
            panic!("{actions:?}")
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
        let mut actions = table.on(exited_with(serial, FIRST, false), now);
        while !actions.iter().any(is_fork) {
            now += Duration::from_millis(100);
            actions = table.on(Event::Tick, now);
        }
        forks += 1;
        serial += 1;
        let index =
            actions.iter().find_map(|a| if let Action::Fork { index, .. } = a { Some(*index) } else { None });
        carry_out(&mut table, vec![fork(FIRST, index.unwrap(), serial)], now);
        now += Duration::from_millis(10);
    }
    assert!((10..30).contains(&forks), "{forks} forks in 30 s");
    let actions = table.on(exited_with(serial, FIRST, false), now + generation::SHORT_LIFE);
    assert!(actions.iter().any(is_fork), "one that lived for longer is replaced at once");
}

#[test]
fn workers_that_fail_while_they_boot_are_replaced_ever_more_slowly() {
    let mut now = Instant::now();
    let mut table = table(1, now);
    let mut actions = table.on(Event::TemplateBooted(FIRST), now);
    let (mut waits, mut serial) = (Vec::new(), 0);
    while waits.len() < 6 {
        if actions.iter().any(is_fork) {
            serial += 1;
            table.on(Event::Forked { generation: FIRST, index: 0, pid: 100 + serial }, now);
            actions = table.on(exited(serial), now);
            waits.extend(gone(&actions).iter().map(|exit| exit.wait));
        } else {
            now += Duration::from_millis(100);
            actions = table.on(Event::Tick, now);
        }
    }
    assert!(waits.windows(2).all(|pair| pair[0] < pair[1]), "{waits:?}");
}

#[test]
fn a_lost_link_counts_as_a_death_before_the_exit_is_reported() {
    let mut now = Instant::now();
    let mut table = table(1, now);
    table.on(Event::TemplateBooted(FIRST), now);
    table.on(Event::Forked { generation: FIRST, index: 0, pid: 101 }, now);
    assert_eq!(table.on(lost(1), now), [Action::Close(1)], "no replacement yet");
    now += FIRST_WAIT / 2;
    let actions = table.on(exited(1), now);
    assert!(
        matches!(&actions[..], [Action::Gone(WorkerExit { cause: Cause::Crashed, wait: Some(_), .. })]),
        "{actions:?}"
    );
    assert!(matches!(&table.on(Event::Tick, now + FIRST_WAIT)[..], [Action::Fork { .. }]));
}

#[test]
fn a_server_that_never_had_a_worker_gives_up() {
    let mut now = Instant::now();
    let mut table = table(1, now);
    let mut actions = table.on(Event::TemplateBooted(FIRST), now);
    for serial in 1..=HOPELESS {
        while !actions.contains(&fork(FIRST, 0, serial)) {
            now += Duration::from_millis(100);
            actions = table.on(Event::Tick, now);
        }
        table.on(Event::Forked { generation: FIRST, index: 0, pid: 100 + serial }, now);
        actions = table.on(exited(serial), now);
    }
    assert!(actions.contains(&Action::Hopeless(Hopeless::Workers)), "{actions:?}");
}

#[test]
fn a_worker_that_boots_too_long_is_killed_and_counts_as_failed() {
    let (mut table, now) = settled(1);
    table.on(exited(1), now);
    table.on(Event::Forked { generation: FIRST, index: 0, pid: 102 }, now);
    let nearly = now + TIMEOUTS.boot - KILL_AFTER;
    assert_eq!(table.on(Event::Tick, nearly), [signal(2, "PWR")], "it says where it is");
    assert_eq!(table.on(Event::Tick, nearly), [], "once");
    assert_eq!(table.on(Event::Tick, now + TIMEOUTS.boot)[0], signal(2, "KILL"));
    let actions = table.on(exited(2), now + TIMEOUTS.boot);
    assert_eq!(gone(&actions)[0].cause, Cause::SlowBoot);
}

#[test]
fn a_stuck_worker_is_replaced_and_killed_when_its_other_requests_have_finished() {
    let (mut table, now) = settled(1);
    let actions = table.on(Event::Stuck(1), now);
    assert_eq!(actions[..2], [Action::Close(1), signal(1, "PWR")]);
    assert!(matches!(actions[2], Action::Fork { serial: 2, .. }), "its replacement does not wait");
    carry_out(&mut table, vec![actions[2].clone()], now);
    assert_eq!(table.on(Event::Tick, now + 5 * SECOND), [], "others are served");
    table.on(Event::OthersFinished(1), now + 6 * SECOND);
    assert_eq!(table.on(Event::Tick, now + 6 * SECOND), [signal(1, "KILL")]);
    let actions = table.on(exited(1), now + 6 * SECOND);
    assert_eq!(gone(&actions)[0].cause, Cause::Stuck);
}

#[test]
fn a_stuck_worker_gets_a_second_for_its_backtraces_and_shutdown_for_its_requests() {
    let (mut table, now) = settled(1);
    let actions = table.on(Event::Stuck(1), now);
    carry_out(&mut table, actions, now);
    table.on(Event::OthersFinished(1), now);
    assert_eq!(table.on(Event::Tick, now + KILL_AFTER / 2), []);
    assert_eq!(table.on(Event::Tick, now + KILL_AFTER), [signal(1, "KILL")]);
    let (mut table, now) = settled(1);
    let actions = table.on(Event::Stuck(1), now);
    carry_out(&mut table, actions, now);
    assert_eq!(table.on(Event::Tick, now + TIMEOUTS.shutdown), [signal(1, "KILL")]);
}

#[test]
fn a_frozen_worker_is_killed_and_replaced_at_once() {
    let (mut table, now) = settled(1);
    let actions = table.on(Event::Frozen(1), now);
    assert_eq!(actions, [Action::Close(1), signal(1, "KILL"), fork(FIRST, 1, 2)]);
    let actions = table.on(exited(1), now);
    assert_eq!(gone(&actions)[0].cause, Cause::Frozen);
}

#[test]
fn a_suspended_worker_is_replaced_but_may_come_back() {
    let (mut table, now) = settled(1);
    assert_eq!(table.on(Event::Suspended { serial: 1, idle_thread: true }, now), []);
    let actions = table.on(Event::Tick, now + ABSENT);
    assert_eq!(actions, [fork(FIRST, 1, 2)]);
    carry_out(&mut table, actions, now + ABSENT);
    assert_eq!(table.on(Event::Resumed(1), now + 2 * ABSENT), [Action::Close(2)]);
    assert_eq!(up(&table), [1]);
}

#[test]
fn a_busy_worker_is_not_replaced() {
    let (mut table, now) = settled(1);
    table.on(Event::Suspended { serial: 1, idle_thread: false }, now);
    assert_eq!(table.on(Event::Tick, now + 10 * ABSENT), []);
}

#[test]
fn more_and_fewer() {
    let (mut table, now) = settled(1);
    let actions = table.on(Event::More, now);
    carry_out(&mut table, actions, now);
    assert_eq!(table.rows().count(), 2);
    assert_eq!(table.on(Event::Fewer, now), [Action::Close(2)]);
    assert_eq!(table.on(Event::Fewer, now), [], "one stays");
}

#[test]
fn a_worker_that_is_being_forked_leaves_before_one_that_serves() {
    let (mut table, now) = settled(1);
    assert_eq!(table.on(Event::More, now), [fork(FIRST, 1, 2)]);
    assert_eq!(table.on(Event::Fewer, now), []);
    let forked = Event::Forked { generation: FIRST, index: 1, pid: 102 };
    assert_eq!(table.on(forked, now), [Action::Close(2)]);
    assert_eq!(up(&table), [1]);
}

#[test]
fn a_worker_is_named_that_leaves() {
    let (mut table, now) = settled(3);
    assert!(table.is_complete() && table.is_staffed());
    assert_eq!(table.on(Event::Retire(2), now), [Action::Close(2)]);
    assert_eq!((table.wanted(), up(&table)), (2, vec![1, 3]));
    assert!(table.is_complete(), "that it has not gone yet is of no account");
    assert_eq!(table.on(Event::Retire(2), now), [], "it is leaving");
    assert_eq!(table.on(Event::Retire(9), now), [], "there is none");
    table.on(Event::Retire(3), now);
    assert_eq!(table.on(Event::Retire(1), now), [], "one stays");
    assert_eq!((table.wanted(), up(&table)), (1, vec![1]));
}

#[test]
fn so_many_are_wanted() {
    let (mut table, now) = settled(2);
    let actions = table.on(Event::Want(4), now);
    assert!(!table.is_complete() && !table.is_staffed());
    carry_out(&mut table, actions, now);
    assert_eq!(up(&table), [1, 2, 3, 4]);
    assert!(table.is_complete());
    assert_eq!(table.on(Event::Want(2), now), [Action::Close(4), Action::Close(3)]);
    table.on(Event::Want(0), now);
    assert_eq!(table.wanted(), 1);
    table.on(Event::Want(99), now);
    assert_eq!((table.wanted(), table.slots()), (32, 32));
}

#[test]
fn while_a_worker_is_replaced_the_table_is_staffed_but_not_complete() {
    let (mut table, now) = settled(2);
    let actions = table.on(Event::Recycle(1), now);
    assert!(table.is_staffed() && !table.is_complete());
    carry_out(&mut table, actions, now);
    assert!(table.is_staffed() && table.is_complete());
    table.on(Event::Kill(2), now);
    assert!(!table.is_staffed());
    table.on(Event::Drain, now);
    assert!(!table.is_staffed() && !table.is_complete());
}

#[test]
fn draining_ends_empty_and_kills_workers_that_do_not_finish() {
    let (mut table, now) = settled(2);
    assert_eq!(table.on(Event::Drain, now), [Action::Close(1), Action::Close(2)]);
    assert_eq!(gone(&table.on(drained(1, FIRST), now))[0].cause, Cause::Ordered);
    assert_eq!(table.on(Event::Tick, now + TIMEOUTS.shutdown), [signal(2, "KILL")]);
    let actions = table.on(exited(2), now + TIMEOUTS.shutdown);
    assert!(matches!(
        &actions[..],
        [Action::Gone(WorkerExit { cause: Cause::SlowDrain, .. }), Action::Empty]
    ));
}

#[test]
fn workers_of_a_dead_template_serve_until_those_of_a_new_one_take_over() {
    let (mut table, now) = settled(2);
    assert_eq!(table.on(Event::TemplateGone(FIRST), now), [start(2, FIRST_CODE)]);
    assert_eq!(table.signal_by(101), None);
    assert_eq!(up(&table), [1, 2]);
    let actions = table.on(Event::TemplateBooted(2), now);
    assert_eq!(actions, [fork(2, 2, 3)]);
    let seen = carry_out(&mut table, actions, now);
    assert_eq!(
        seen[1..],
        [Action::Open(3), Action::Close(2), fork(2, 3, 4), Action::Open(4), Action::Close(1)]
    );
    let actions = [table.on(lost(1), now), table.on(lost(2), now)].concat();
    assert_eq!(gone(&actions), Vec::<&WorkerExit>::new(), "they may still be there");
    let actions = [table.on(ended(1), now), table.on(ended(2), now)].concat();
    assert_eq!(
        gone(&actions).iter().map(|exit| exit.serial).collect::<Vec<_>>(),
        [1, 2],
        "no template reports it"
    );
}

#[test]
fn a_template_that_does_not_fork_in_time_is_replaced() {
    let (mut table, now) = settled(2);
    assert_eq!(table.on(exited(1), now)[1], fork(FIRST, 0, 3));
    assert_eq!(table.on(Event::Tick, now + ORDER_TIMEOUT - SECOND), []);
    let actions = table.on(Event::Tick, now + ORDER_TIMEOUT);
    let why = TemplateEnd::Unresponsive;
    assert_eq!(actions[0], Action::EndTemplate { generation: FIRST, why });
    assert_eq!(gone(&actions)[0].serial, 3, "the fork that never came");
    assert_eq!(actions.last(), Some(&start(2, FIRST_CODE)));
    let actions = table.on(Event::TemplateBooted(2), now);
    carry_out(&mut table, actions, now);
    assert_eq!(table.rows().filter(|row| row.stage == Stage::Up && row.generation == 2).count(), 2);
}

#[test]
fn a_template_that_does_not_report_an_exit_is_replaced() {
    let (mut table, now) = settled(1);
    let actions = table.on(ended(1), now);
    assert_eq!(actions[0], Action::Close(1));
    carry_out(&mut table, actions, now);
    assert_eq!(table.on(Event::Tick, now + KILL_AFTER), [], "nobody is there to be killed");
    let actions = table.on(Event::Tick, now + ORDER_TIMEOUT);
    assert!(actions.contains(&Action::EndTemplate { generation: FIRST, why: TemplateEnd::Unresponsive }));
    assert_eq!(gone(&actions)[0].serial, 1);
    assert_eq!(up(&table), [2]);
}

#[test]
fn a_worker_whose_links_have_ended_is_killed_and_its_template_left_alone_until_it_has_ended() {
    let (mut table, now) = settled(1);
    let actions = table.on(lost(1), now);
    assert_eq!(actions[0], Action::Close(1));
    carry_out(&mut table, actions, now);
    assert_eq!(table.on(Event::Tick, now + KILL_AFTER), [signal(1, "KILL")]);
    let late = now + 2 * ORDER_TIMEOUT;
    assert_eq!(table.on(Event::Tick, late), [signal(1, "KILL")], "the template has nothing to report");
    assert_eq!(table.on(ended(1), late), []);
    assert_eq!(gone(&table.on(exited(1), late)).len(), 1);
}

#[test]
fn a_worker_ends_by_its_process_whoever_holds_its_links() {
    let (mut table, now) = settled(2);
    table.on(Event::TemplateGone(FIRST), now);
    let actions = table.on(ended(1), now);
    assert_eq!(actions[0], Action::Close(1));
    let exit = gone(&actions)[0];
    assert_eq!((exit.serial, exit.cause, exit.killed), (1, Cause::Crashed, false));
    let actions = [table.on(Event::Drain, now), table.on(ended(2), now)].concat();
    assert_eq!(actions.last(), Some(&Action::Empty), "{actions:?}");
}

#[test]
fn a_worker_that_has_ended_goes_with_the_template_that_should_have_reported_it() {
    let (mut table, now) = settled(2);
    assert_eq!(gone(&table.on(ended(1), now)).len(), 0);
    let actions = table.on(Event::TemplateGone(FIRST), now);
    assert_eq!(
        gone(&actions).iter().map(|exit| exit.serial).collect::<Vec<_>>(),
        [1, 3],
        "3 was being forked"
    );
    assert_eq!(table.on(ended(1), now), [], "once");
}

#[test]
fn a_server_whose_templates_die_before_a_worker_is_ready_gives_up() {
    let mut now = Instant::now();
    let mut table = table(1, now);
    for generation in FIRST..FIRST + HOPELESS {
        let forks = table.on(Event::TemplateBooted(generation), now);
        assert!(forks.iter().any(is_fork), "{forks:?}");
        let actions = table.on(Event::TemplateGone(generation), now);
        let gives_up = actions.contains(&Action::Hopeless(Hopeless::Templates));
        assert_eq!(gives_up, generation == HOPELESS, "{actions:?}");
        now += RETRY_AT_START;
        let again = table.on(Event::Tick, now);
        assert_eq!(again.contains(&start(generation + 1, FIRST_CODE)), !gives_up, "{again:?}");
    }
}

#[test]
fn a_template_that_dies_later_is_tried_as_long_as_it_takes() {
    let (mut table, mut now) = settled(1);
    let mut actions = table.on(Event::TemplateGone(FIRST), now);
    for generation in 2..20 {
        while !actions.contains(&start(generation, FIRST_CODE)) {
            now += SECOND;
            actions = table.on(Event::Tick, now);
        }
        table.on(Event::TemplateBooted(generation), now);
        actions = table.on(Event::TemplateGone(generation), now);
        assert!(!actions.iter().any(|action| matches!(action, Action::Hopeless(_))));
    }
    assert_eq!(up(&table), [1]);
}

#[test]
fn a_template_loads_the_code_that_it_was_asked_for_with() {
    let (mut table, now) = settled(1);
    assert_eq!(table.on(Event::TemplateGone(FIRST), now), [start(2, FIRST_CODE)]);
    let new = FIRST_CODE + 1;
    assert_eq!(
        table.on(Event::TrialGeneration(new), now),
        [start(3, new)],
        "whatever has been started meanwhile"
    );
    assert_eq!([2, 3].map(|generation| table.code_of(generation)), [Some(FIRST_CODE), Some(new)]);
    table.on(Event::InForce(new), now);
    table.on(Event::TemplateBooted(2), now);
    assert_eq!(table.on(Event::TemplateFailed(3), now), [], "a trial is nobody's place to take");
    table.on(Event::Forked { generation: 2, index: 1, pid: 102 }, now);
    table.on(Event::Ready(2), now);
    assert_eq!(table.on(Event::TemplateGone(2), now), [start(4, new)], "what is in force by then");
}

#[test]
fn in_place_a_template_that_dies_while_old_workers_leave_has_no_successor() {
    let (mut table, now) = settled(2);
    table.on(Event::Vacate(1), now);
    assert_eq!(table.on(Event::TemplateGone(FIRST), now), []);
    assert_eq!(table.on(Event::Tick, now + 2 * RETRY), []);
    assert_eq!(table.on(Event::TrialGeneration(2), now), [start(2, 2)]);
    let (mut table, now) = settled(2);
    table.on(Event::Vacate(1), now);
    table.on(Event::TemplateGone(FIRST), now);
    assert_eq!(table.on(Event::Reoccupy, now), [start(2, FIRST_CODE)], "it does not take place after all");
}

#[test]
fn a_stopped_template_does_not_hold_up_the_end() {
    let (mut table, now) = settled(1);
    table.on(Event::Drain, now);
    table.on(ended(1), now);
    let actions = table.on(Event::Tick, now + ORDER_TIMEOUT);
    assert_eq!(actions.last(), Some(&Action::Empty), "{actions:?}");
}

#[test]
fn a_template_that_boots_too_long_is_tried_again_later() {
    let (mut table, now) = settled(1);
    table.on(Event::TemplateGone(FIRST), now);
    assert_eq!(table.on(Event::Tick, now + TIMEOUTS.boot - SECOND), []);
    let now = now + TIMEOUTS.boot;
    let why = TemplateEnd::BootTimeout;
    assert_eq!(table.on(Event::Tick, now), [Action::EndTemplate { generation: 2, why }]);
    assert_eq!(table.on(Event::Tick, now + RETRY - SECOND), []);
    assert_eq!(table.on(Event::Tick, now + RETRY), [start(3, FIRST_CODE)]);
    assert_eq!(table.on(Event::TemplateFailed(3), now + RETRY), []);
    assert_eq!(table.on(Event::Tick, now + 2 * RETRY), [start(4, FIRST_CODE)]);
    assert_eq!(up(&table), [1], "the old worker serves all the time");
}

#[test]
fn a_new_generation_takes_over_one_worker_at_a_time() {
    let (mut table, now) = settled(3);
    assert_eq!(table.on(Event::NewGeneration, now), [start(2, FIRST_CODE)]);
    assert_eq!(table.on(Event::NewGeneration, now), [], "it boots already");
    assert_eq!(up(&table), [1, 2, 3], "the old generation serves while the new one boots");
    let actions = table.on(Event::TemplateBooted(2), now);
    let mut seen = carry_out(&mut table, actions, now);
    for serial in [3, 2, 1] {
        seen.extend(table.on(drained(serial, FIRST), now));
    }
    let drains: Vec<_> = seen.iter().filter(|a| matches!(a, Action::Open(_) | Action::Close(_))).collect();
    let [open, close] = [Action::Open, Action::Close];
    assert_eq!(drains, [&open(4), &close(3), &open(5), &close(2), &open(6), &close(1)]);
    assert_eq!(up(&table), [4, 5, 6]);
    assert_eq!(gone(&seen).len(), 3);
    let why = TemplateEnd::Replaced;
    assert_eq!(seen.last(), Some(&Action::EndTemplate { generation: FIRST, why }));
    assert_eq!(table.generations.len(), 1);
}

#[test]
fn a_new_generation_that_does_not_boot_leaves_the_old_one_untouched() {
    let (mut table, now) = settled(2);
    table.on(Event::NewGeneration, now);
    assert_eq!(table.on(Event::TemplateFailed(2), now), []);
    assert_eq!(table.on(Event::Tick, now + RETRY), [], "no retry while there is a template");
    assert_eq!(up(&table), [1, 2]);
    assert_eq!(table.on(exited(2), now)[1], fork(FIRST, 1, 3));
}

#[test]
fn a_new_generation_whose_workers_fail_leaves_the_old_one_untouched() {
    let (mut table, mut now) = settled(2);
    table.on(Event::NewGeneration, now);
    let mut actions = table.on(Event::TemplateBooted(2), now);
    let (mut serial, mut seen) = (2, Vec::new());
    for _ in 0..HOPELESS {
        serial += 1;
        while !actions.iter().any(is_fork) {
            now += Duration::from_millis(100);
            actions = table.on(Event::Tick, now);
        }
        table.on(Event::Forked { generation: 2, index: 2, pid: 100 + serial }, now);
        actions = table.on(exited_with(serial, 2, false), now);
        seen.extend(actions.clone());
    }
    let why = TemplateEnd::Broken;
    assert!(seen.contains(&Action::EndTemplate { generation: 2, why }), "{seen:?}");
    assert_eq!(gone(&seen).len(), HOPELESS as usize);
    assert_eq!(table.on(Event::Tick, now + 60 * SECOND), []);
    assert_eq!(up(&table), [1, 2]);
    assert_eq!(table.on(exited(1), now)[1], fork(FIRST, 0, serial + 1), "the old template goes on forking");
}

#[test]
fn a_worker_that_dies_while_the_new_generation_is_unproven_is_replaced_by_the_old_one() {
    let (mut table, now) = settled(2);
    table.on(Event::NewGeneration, now);
    let probe = table.on(Event::TemplateBooted(2), now);
    assert_eq!(probe, [fork(2, 2, 3)]);
    table.on(Event::Forked { generation: 2, index: 2, pid: 103 }, now);
    assert_eq!(table.on(exited(1), now)[1], fork(FIRST, 0, 4));
}

/// Acts as the front and the processes in the property tests.
struct World {
    table: Table,
    now: Instant,
    forking: Option<(Generation, u32, Serial)>,
    begun: HashSet<Serial>,
    gone: HashSet<Serial>,
    templates: HashSet<Generation>,
    booting: Vec<Generation>,
    /// Generations whose templates workers have left behind or will leave behind.
    left: HashSet<Generation>,
}

impl World {
    fn new(wanted: usize) -> World {
        let now = Instant::now();
        World {
            table: table(wanted, now),
            now,
            forking: None,
            begun: HashSet::new(),
            gone: HashSet::new(),
            templates: HashSet::from([FIRST]),
            booting: vec![FIRST],
            left: HashSet::new(),
        }
    }

    fn on(&mut self, event: Event) -> Result<(), TestCaseError> {
        for action in self.table.on(event, self.now) {
            match action {
                Action::Fork { generation, index, serial } => {
                    prop_assert!(self.templates.contains(&generation), "a fork without a template");
                    prop_assert!(self.forking.replace((generation, index, serial)).is_none(), "two forks");
                    self.begun.insert(serial);
                }
                Action::StartTemplate { generation, .. } => {
                    prop_assert!(self.templates.insert(generation));
                    self.booting.push(generation);
                }
                Action::Promote { serial, generation } => {
                    prop_assert!(up(&self.table).len() >= self.table.wanted(), "it has a successor");
                    prop_assert!(!up(&self.table).contains(&serial));
                    prop_assert!(self.templates.insert(generation) && self.left.insert(generation));
                    self.booting.push(generation);
                }
                Action::EndTemplate { generation, .. } => {
                    prop_assert!(self.templates.remove(&generation));
                    self.booting.retain(|&booting| booting != generation);
                    self.forking = self.forking.filter(|(by, ..)| *by != generation);
                }
                Action::Gone(exit) => {
                    prop_assert!(self.begun.contains(&exit.serial), "never forked");
                    prop_assert!(self.gone.insert(exit.serial), "gone twice");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn step(&mut self, step: u8, number: u32) -> Result<(), TestCaseError> {
        let generation =
            self.table.rows().find(|row| row.serial == number).map_or(FIRST, |row| row.generation);
        let newest = self.templates.iter().max().copied().unwrap_or(FIRST);
        let event = match step {
            0 => return self.boot(),
            1 | 2 => match self.forking.take() {
                Some((generation, index, serial)) => Event::Forked { generation, index, pid: 100 + serial },
                None => Event::Tick,
            },
            3 | 4 => Event::Ready(number),
            5 => exited_with(number, generation, number.is_multiple_of(2)),
            6 => Event::LinkLost { serial: number, served: true },
            7 => Event::Stuck(number),
            8 => Event::More,
            9 => Event::Fewer,
            10 => Event::NewGeneration,
            11 => {
                self.templates.remove(&newest);
                self.booting.retain(|&booting| booting != newest);
                self.forking = self.forking.filter(|(by, ..)| *by != newest);
                Event::TemplateGone(newest)
            }
            12 => Event::Suspended { serial: number, idle_thread: true },
            13 => Event::Resumed(number),
            14 => Event::Frozen(number),
            15 => Event::Recycle(number),
            16 => Event::Kill(number),
            17 => Event::Retire(number),
            18 => Event::Want(number as usize % 6),
            19 => Event::Promote(number),
            20 => Event::Demote(number),
            21 => Event::Ended { serial: number, served: true },
            _ => {
                self.now += 2 * SECOND;
                Event::Tick
            }
        };
        self.on(event)
    }

    /// Makes a template ready. One that a worker has left behind takes over.
    fn boot(&mut self) -> Result<(), TestCaseError> {
        let Some(generation) = self.booting.pop() else { return self.on(Event::Tick) };
        self.on(Event::TemplateBooted(generation))?;
        if self.left.contains(&generation) { self.on(Event::Roll(generation)) } else { Ok(()) }
    }

    /// Lets everything work from now on: templates boot, forks succeed, workers become ready, closed and
    /// killed ones exit.
    fn recover(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..200 {
            self.now += SECOND;
            self.on(Event::Tick)?;
            while !self.booting.is_empty() {
                self.boot()?;
            }
            while let Some((generation, index, serial)) = self.forking.take() {
                self.on(Event::Forked { generation, index, pid: 100 + serial })?;
                self.on(Event::Ready(serial))?;
            }
            let rows: Vec<Row> = self.table.rows().collect();
            for row in rows {
                match row.stage {
                    Stage::Booting => self.on(Event::Ready(row.serial))?,
                    Stage::Up => self.on(Event::Resumed(row.serial))?,
                    Stage::Leaving if self.templates.contains(&row.generation) => {
                        self.on(exited_with(row.serial, row.generation, true))?;
                    }
                    Stage::Leaving => self.on(ended(row.serial))?,
                }
            }
        }
        Ok(())
    }
}

#[test]
fn a_recycled_worker_serves_until_its_successor_is_ready() {
    let (mut table, now) = settled(2);
    assert_eq!(table.on(Event::Recycle(1), now), [fork(FIRST, 2, 3)]);
    assert_eq!(table.on(Event::Forked { generation: FIRST, index: 2, pid: 103 }, now), []);
    assert_eq!(up(&table), [1, 2]);
    assert_eq!(table.on(Event::Ready(3), now), [Action::Open(3), Action::Close(1)]);
    assert_eq!(up(&table), [2, 3]);
    let actions = table.on(drained(1, FIRST), now);
    assert_eq!((gone(&actions)[0].cause, actions.iter().any(is_fork)), (Cause::Ordered, false));
}

#[test]
fn a_recycled_worker_stays_when_its_successor_fails() {
    let (mut table, now) = settled(1);
    assert_eq!(table.on(Event::Recycle(1), now), [fork(FIRST, 1, 2)]);
    let again = table.on(Event::ForkFailed { generation: FIRST, index: 1 }, now);
    assert_eq!((up(&table), again.last()), (vec![1], Some(&fork(FIRST, 1, 3))), "it is tried again");
    let forked = Event::Forked { generation: FIRST, index: 1, pid: 103 };
    assert_eq!(table.on(forked, now), []);
    table.on(exited_with(3, FIRST, false), now);
    assert_eq!(up(&table), [1]);
    table.on(Event::TemplateGone(FIRST), now);
    assert_eq!(up(&table), [1], "nor when the template dies");
}

/// Returns a table with a promoted worker whose successor is ready.
fn promoted() -> (Table, Instant) {
    let (mut table, now) = settled(2);
    assert_eq!(table.on(Event::Promote(1), now), [fork(FIRST, 2, 3)]);
    table.on(Event::Forked { generation: FIRST, index: 2, pid: 103 }, now);
    let promote = Action::Promote { serial: 1, generation: 2 };
    assert_eq!(table.on(Event::Ready(3), now), [Action::Open(3), promote, Action::Close(1)]);
    (table, now)
}

#[test]
fn a_promoted_worker_leaves_a_template_behind_when_its_successor_is_ready() {
    let (mut table, now) = promoted();
    assert_eq!(gone(&table.on(drained(1, FIRST), now)).len(), 1);
    assert_eq!(table.census(2).template, TemplateStage::Booting);
    assert_eq!(table.on(Event::TemplateBooted(2), now), [fork(2, 0, 4)], "a worker on trial");
    table.on(Event::Forked { generation: 2, index: 0, pid: 104 }, now);
    table.on(Event::Keep(FIRST), now);
    table.on(Event::Roll(2), now);
    let actions = table.on(Event::Ready(4), now);
    let next = [Action::Open(4), Action::Close(3), fork(2, 3, 5)];
    assert_eq!(actions, next, "it takes over, one at a time");
}

#[test]
fn a_promoted_worker_may_take_as_long_as_any_to_finish() {
    let (mut table, now) = promoted();
    let late = |actions: &[Action]| {
        let why = TemplateEnd::BootTimeout;
        actions.contains(&Action::EndTemplate { generation: 2, why })
    };
    table.on(drained(1, FIRST), now + TIMEOUTS.shutdown - SECOND);
    assert!(!late(&table.on(Event::Tick, now + TIMEOUTS.shutdown + TIMEOUTS.boot - SECOND)));
    assert!(late(&table.on(Event::Tick, now + TIMEOUTS.shutdown + TIMEOUTS.boot)));
    assert_eq!(up(&table), [2, 3]);
    assert_eq!(table.census(2).template, TemplateStage::Gone);
}

#[test]
fn a_demoted_worker_is_replaced_and_no_more() {
    let (mut table, now) = settled(2);
    table.on(Event::Promote(1), now);
    table.on(Event::Demote(1), now);
    table.on(Event::Forked { generation: FIRST, index: 2, pid: 103 }, now);
    assert_eq!(table.on(Event::Ready(3), now), [Action::Open(3), Action::Close(1)]);
}

#[test]
fn a_promoted_worker_that_dies_leaves_nothing() {
    let (mut table, now) = settled(2);
    table.on(Event::Promote(1), now);
    table.on(Event::Forked { generation: FIRST, index: 2, pid: 103 }, now);
    let actions = table.on(exited(1), now);
    assert!(!actions.iter().any(|action| matches!(action, Action::Promote { .. })), "{actions:?}");
    assert_eq!(table.on(Event::Ready(3), now), [Action::Open(3)]);
    assert_eq!(table.last_generation(), FIRST);
}

#[test]
fn a_worker_that_is_killed_is_replaced_at_once() {
    let (mut table, now) = settled(2);
    let actions = table.on(Event::Kill(1), now);
    assert_eq!(actions, [Action::Close(1), signal(1, "KILL"), fork(FIRST, 2, 3)]);
    let actions = table.on(exited(1), now);
    assert_eq!((gone(&actions)[0].killed, gone(&actions)[0].cause), (true, Cause::Ordered));
}

/// Returns an attached table whose worker is up.
fn attached() -> (Table, Instant) {
    let now = Instant::now();
    let mut table = Table::attached(TIMEOUTS, now);
    let actions = table.on(Event::TemplateBooted(FIRST), now);
    let seen = carry_out(&mut table, actions, now);
    assert_eq!(seen, [fork(FIRST, 0, 1), Action::Open(1), Action::Settled]);
    (table, now)
}

#[test]
fn an_attached_worker_is_never_replaced() {
    let (mut table, now) = attached();
    let orders = [
        Event::NewGeneration,
        Event::TrialGeneration(FIRST_CODE + 1),
        Event::Frozen(1),
        Event::Stuck(1),
        Event::Recycle(1),
        Event::Promote(1),
        Event::Kill(1),
        Event::More,
        Event::Fewer,
        Event::Want(3),
    ];
    for order in orders {
        assert_eq!(table.on(order, now), []);
    }
    table.on(Event::Suspended { serial: 1, idle_thread: true }, now);
    assert_eq!(table.on(Event::Tick, now + ABSENT * 2), [], "there is nobody to take its place");
}

#[test]
fn the_end_of_an_attached_worker_is_the_end() {
    for event in [drained(1, FIRST), exited(1)] {
        let (mut table, now) = attached();
        let actions = table.on(event, now);
        assert!(matches!(actions[..], [Action::Gone(_), Action::Empty]), "{actions:?}");
        assert_eq!(table.on(Event::Tick, now + SECOND * 60), [Action::Empty]);
    }
}

#[test]
fn an_attached_process_that_leaves_takes_its_worker_along() {
    let (mut table, now) = attached();
    let actions = table.on(Event::TemplateGone(FIRST), now);
    assert!(matches!(actions[..], [Action::Close(1), Action::Gone(_), Action::Empty]), "{actions:?}");
}

#[test]
fn an_attached_worker_that_does_not_finish_is_told_so() {
    let (mut table, now) = attached();
    assert_eq!(table.on(Event::Drain, now), [Action::Close(1)]);
    let late = now + TIMEOUTS.shutdown;
    assert_eq!(table.on(Event::Tick, late), [signal(1, "KILL")]);
    let actions = table.on(drained(1, FIRST), late);
    assert!(matches!(actions[..], [Action::Gone(_), Action::Empty]), "{actions:?}");
}

#[test]
fn an_attached_worker_that_cannot_start_is_the_end() {
    let now = Instant::now();
    let mut table = Table::attached(TIMEOUTS, now);
    table.on(Event::TemplateBooted(FIRST), now);
    let actions = table.on(Event::ForkFailed { generation: FIRST, index: 0 }, now);
    assert!(matches!(actions[..], [Action::Gone(_), Action::Empty]), "{actions:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// For any events: one fork at a time, by a template that exists, and no worker is gone twice or without
    /// having been forked. When everything works again, only the newest generation serves, with the wanted
    /// number of workers, and all others were reported gone.
    #[test]
    fn bookkeeping_holds(steps in proptest::collection::vec((0u8..25, 1u32..12), 1..150)) {
        let mut world = World::new(3);
        for (step, number) in steps {
            world.step(step, number)?;
        }
        world.recover()?;
        let rows: Vec<Row> = world.table.rows().collect();
        prop_assert_eq!(rows.iter().filter(|row| row.stage == Stage::Up).count(), world.table.wanted());
        let newest = rows.iter().map(|row| row.generation).max();
        prop_assert!(rows.iter().all(|row| Some(row.generation) == newest));
        prop_assert_eq!(world.begun.len(), world.gone.len() + rows.len());
        prop_assert_eq!(world.templates.len(), 1);
    }
}
