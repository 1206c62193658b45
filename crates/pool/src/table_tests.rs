//! The process table, told as stories.

use super::*;
use proptest::prelude::*;

const PATIENCE: Patience = Patience { boot: Duration::from_secs(60), shutdown: Duration::from_secs(30) };

fn table(wanted: usize) -> Table {
    Table::new(wanted, 8, PATIENCE)
}

/// Plays the template's part: every fork succeeds and every worker gets ready.
fn settle(table: &mut Table, mut actions: Vec<Action>, now: Instant) -> Vec<Action> {
    let mut seen = Vec::new();
    while !actions.is_empty() {
        let action = actions.remove(0);
        if let Action::Fork { index, serial } = action {
            actions.extend(table.on(Event::Forked { index, pid: 100 + serial }, now));
            actions.extend(table.on(Event::Ready(serial), now));
        }
        seen.push(action);
    }
    seen
}

fn exited(serial: Serial) -> Event {
    Event::Exited { pid: 100 + serial, end: End::Signal(9), peak_kib: 1 }
}

#[test]
fn workers_are_forked_one_by_one_until_all_are_up() {
    let (mut table, now) = (table(2), Instant::now());
    let first = table.on(Event::TemplateBooted, now);
    assert_eq!(first, [Action::Fork { index: 0, serial: 1 }]);
    let seen = settle(&mut table, first, now);
    assert_eq!(seen.last(), Some(&Action::Settled));
    assert_eq!(table.rows().filter(|row| row.stage == Stage::Up).count(), 2);
}

#[test]
fn a_worker_may_be_ready_before_its_fork_is_reported() {
    let (mut table, now) = (table(1), Instant::now());
    table.on(Event::TemplateBooted, now);
    assert_eq!(table.on(Event::Ready(1), now), []);
    let actions = table.on(Event::Forked { index: 0, pid: 101 }, now);
    assert_eq!(actions, [Action::Open(1), Action::Settled]);
}

#[test]
fn a_dead_worker_is_replaced() {
    let (mut table, now) = (table(1), Instant::now());
    let actions = table.on(Event::TemplateBooted, now);
    settle(&mut table, actions, now);
    let later = now + YOUNG;
    let actions = table.on(exited(1), later);
    let [Action::Bury(grave), Action::Fork { index: 0, serial: 2 }] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((grave.cause, grave.end), (Cause::Crashed, Some(End::Signal(9))));
}

#[test]
fn workers_that_die_young_are_replaced_ever_more_slowly() {
    let (mut table, mut now) = (table(1), Instant::now());
    let mut actions = table.on(Event::TemplateBooted, now);
    let mut waits = Vec::new();
    let mut serial = 0;
    while waits.len() < 6 {
        let forked = actions.iter().any(|action| matches!(action, Action::Fork { .. }));
        if forked {
            serial += 1;
            table.on(Event::Forked { index: 0, pid: 100 + serial }, now);
            actions = table.on(exited(serial), now);
            waits.extend(
                actions.iter().filter_map(|a| if let Action::Bury(g) = a { Some(g.wait) } else { None }),
            );
        } else {
            now += Duration::from_millis(100);
            actions = table.on(Event::Tick, now);
        }
    }
    assert!(waits.windows(2).all(|pair| pair[0] < pair[1]), "{waits:?}");
}

#[test]
fn a_lost_link_counts_as_a_death_before_the_end_is_reported() {
    let (mut table, mut now) = (table(1), Instant::now());
    table.on(Event::TemplateBooted, now);
    table.on(Event::Forked { index: 0, pid: 101 }, now);
    assert_eq!(table.on(Event::LinkLost(1), now), [Action::Close(1)], "no replacement yet");
    now += FIRST_WAIT / 2;
    let actions = table.on(exited(1), now);
    assert!(
        matches!(&actions[..], [Action::Bury(Grave { cause: Cause::Crashed, wait: Some(_), .. })]),
        "{actions:?}"
    );
    assert!(matches!(&table.on(Event::Tick, now + FIRST_WAIT)[..], [Action::Fork { .. }]));
}

#[test]
fn a_server_that_never_had_a_worker_gives_up() {
    let (mut table, mut now) = (table(1), Instant::now());
    let mut actions = table.on(Event::TemplateBooted, now);
    for serial in 1..=HOPELESS {
        while !actions.contains(&Action::Fork { index: 0, serial }) {
            now += Duration::from_millis(100);
            actions = table.on(Event::Tick, now);
        }
        table.on(Event::Forked { index: 0, pid: 100 + serial }, now);
        actions = table.on(exited(serial), now);
    }
    assert!(actions.contains(&Action::Hopeless), "{actions:?}");
}

#[test]
fn a_stuck_worker_may_say_last_words_and_is_killed() {
    let (mut table, now) = (table(1), Instant::now());
    let actions = table.on(Event::TemplateBooted, now);
    settle(&mut table, actions, now);
    let actions = table.on(Event::Stuck(1), now);
    assert_eq!(actions[..2], [Action::Close(1), Action::Signal { pid: 101, name: "PWR" }]);
    assert!(matches!(actions[2], Action::Fork { serial: 2, .. }), "its replacement does not wait");
    let actions = table.on(Event::Tick, now + LAST_WORDS);
    assert_eq!(actions, [Action::Signal { pid: 101, name: "KILL" }]);
    let actions = table.on(exited(1), now + LAST_WORDS);
    assert!(matches!(&actions[0], Action::Bury(Grave { cause: Cause::Stuck, .. })));
}

#[test]
fn more_and_fewer() {
    let (mut table, now) = (table(1), Instant::now());
    let actions = table.on(Event::TemplateBooted, now);
    settle(&mut table, actions, now);
    let actions = table.on(Event::More, now);
    settle(&mut table, actions, now);
    assert_eq!(table.rows().count(), 2);
    assert_eq!(table.on(Event::Fewer, now), [Action::Close(2)]);
    assert_eq!(table.on(Event::Fewer, now), [], "one stays");
}

#[test]
fn draining_ends_empty_and_kills_those_who_do_not_finish() {
    let (mut table, now) = (table(2), Instant::now());
    let actions = table.on(Event::TemplateBooted, now);
    settle(&mut table, actions, now);
    assert_eq!(table.on(Event::Drain, now), [Action::Close(1), Action::Close(2)]);
    let end = Event::Exited { pid: 101, end: End::Exit(0), peak_kib: 1 };
    assert!(matches!(&table.on(end, now)[..], [Action::Bury(Grave { cause: Cause::Ordered, .. })]));
    assert_eq!(table.on(Event::Tick, now + PATIENCE.shutdown), [Action::Signal { pid: 102, name: "KILL" }]);
    let actions = table.on(exited(2), now + PATIENCE.shutdown);
    assert!(matches!(&actions[..], [Action::Bury(Grave { cause: Cause::SlowDrain, .. }), Action::Empty]));
}

#[test]
fn a_lost_template_is_started_again_and_its_workers_are_let_go() {
    let (mut table, now) = (table(1), Instant::now());
    let actions = table.on(Event::TemplateBooted, now);
    settle(&mut table, actions, now);
    assert!(!table.is_orphan(101));
    assert_eq!(table.on(Event::TemplateGone, now), [Action::Close(1), Action::StartTemplate]);
    assert!(table.is_orphan(101));
    let actions = table.on(Event::TemplateBooted, now);
    assert_eq!(actions, [Action::Fork { index: 1, serial: 2 }]);
    assert!(matches!(&table.on(Event::LinkLost(1), now)[..], [Action::Bury(_)]));
}

proptest! {
    /// Whatever happens: one fork at a time, and nobody is buried twice or buried without having been forked.
    #[test]
    fn bookkeeping_holds(steps in proptest::collection::vec((0u8..9, 1u32..6), 1..120)) {
        let (mut table, mut now) = (table(3), Instant::now());
        let mut buried = std::collections::HashSet::new();
        let mut begun = std::collections::HashSet::new();
        let mut forking: Option<(u32, Serial)> = None;
        for (step, serial) in steps {
            let event = match step {
                0 => Event::TemplateBooted,
                1 => match forking.take() {
                    Some((index, serial)) => Event::Forked { index, pid: 100 + serial },
                    None => Event::Tick,
                },
                2 => Event::Ready(serial),
                3 => exited(serial),
                4 => Event::LinkLost(serial),
                5 => Event::Stuck(serial),
                6 => Event::More,
                7 => Event::Fewer,
                _ => { now += Duration::from_secs(2); Event::Tick }
            };
            for action in table.on(event, now) {
                match action {
                    Action::Fork { index, serial } => {
                        prop_assert!(forking.replace((index, serial)).is_none());
                        begun.insert(serial);
                    }
                    Action::Bury(grave) => {
                        prop_assert!(begun.contains(&grave.serial));
                        prop_assert!(buried.insert(grave.serial));
                    }
                    _ => {}
                }
            }
        }
    }
}
