//! Tests the states of a reload one by one, and then reloads while any process may die.

use super::world::*;
use super::*;
use proptest::prelude::*;
use settings::Step as Size;
use stats::ReloadOutcome::{Done, Failed, NoWayBack, Reverted, Superseded, Undone};
use stats::{ReloadStep, ReloadWish};
use std::collections::BTreeSet;

const WANTED: usize = 3;

fn plan() -> Plan {
    let (watch, keep) = (Some(SECOND), 30 * SECOND);
    Plan { probe: true, watch, share: 10, keep, ..Plan::default() }
}

fn world(plan: Plan) -> World {
    World::with(WANTED, plan)
}

fn until(world: &mut World, stage: &str) {
    for _ in 0..100 {
        if world.stage() == Some(stage) {
            return;
        }
        world.work(1);
    }
    panic!("it is never {stage}: {:?}", world.acts);
}

#[test]
fn new_code_proves_itself_and_takes_over_and_the_old_template_stays_for_a_while() {
    let mut world = world(plan());
    world.reload();
    world.work(60);
    assert_eq!(world.outcome_kinds(), [Done], "{:?}", world.acts);
    assert_eq!(world.generations(), BTreeSet::from([2]));
    assert_eq!(world.templates, BTreeSet::from([1, 2]), "the old template is kept");
    assert_eq!(world.stage(), Some("settling"));
    world.now += 30 * SECOND;
    world.work(1);
    assert_eq!((world.templates.len(), world.stage()), (1, None));
}

#[test]
fn each_step_is_told_to_the_caller_and_shown_as_it_is_now() {
    let mut world = world(Plan { watch: Some(10 * SECOND), ..plan() });
    let acts = world.machine.reload(ReloadWish::Reload, Some(7), world.now);
    world.carry_out(acts);
    let shown = |world: &World| {
        let (_, stage, text) = world.machine.reload_stage(world.now).unwrap();
        (stats::CountedKind::name(stage), text)
    };
    assert_eq!(shown(&world), ("booting", "loading the app beside the old one".to_owned()));
    for (generation, does) in [(1, "repeats"), (2, "repeats"), (2, "has repeated")] {
        let text = format!("generation {generation} {does} requests");
        let acts = world.machine.see(Change::Warming { generation, text }, world.now);
        world.carry_out(acts);
    }
    assert_eq!(shown(&world), ("booting", "generation 2 has repeated requests".to_owned()));
    until(&mut world, "watching");
    world.now += 4 * SECOND;
    let text = "one worker serves up to 10 % of the requests for 6 s more";
    assert_eq!(shown(&world), ("watching", text.to_owned()));
    until(&mut world, "settling");
    assert_eq!(shown(&world).1, "for 30 s more `firebrick reload --undo` goes back at once");
    let told: Vec<String> = world
        .acts
        .iter()
        .filter_map(|act| match act {
            Act::Tell { to: 7, step: ReloadStep::Step { stage, text } } => Some(format!("{stage}: {text}")),
            Act::Tell { to: 7, step: ReloadStep::Done { .. } } => Some("done".to_owned()),
            _ => None,
        })
        .collect();
    let stages = told.iter().map(|line| line.split(':').next().unwrap()).collect::<Vec<_>>();
    let expected = [
        "booting", "booting", "booting", "booting", "probing", "watching", "watching", "rolling", "rolling",
        "rolling", "done",
    ];
    assert_eq!(stages, expected, "{told:?}");
    assert_eq!(told[9], "rolling: 3 of 3 workers run the new code");
}

#[test]
fn the_way_back_needs_no_boot() {
    let mut world = world(plan());
    world.reload();
    world.work(60);
    assert_eq!(world.undo(), 1);
    assert!(world.booting.is_empty());
    world.work(20);
    assert_eq!(world.outcome_kinds(), [Done, Undone], "{:?}", world.acts);
    assert_eq!((world.generations(), &world.templates), (BTreeSet::from([1]), &BTreeSet::from([1])));
    assert_eq!(world.undo(), 0, "there is nothing more to undo");
}

#[test]
fn an_app_that_cannot_be_loaded_changes_nothing() {
    let mut world = world(plan());
    let before = world.open.clone();
    world.reload();
    world.kill_template(2);
    assert_eq!(world.outcomes(), [(Failed, "it died".to_owned())]);
    assert_eq!((&world.open, world.stage()), (&before, None));
}

#[test]
fn settings_that_cannot_be_read_change_nothing_and_the_way_back_stays() {
    let mut world = world(plan());
    world.reload();
    world.work(60);
    let acts = world.machine.reload(ReloadWish::Reload, Some(3), world.now);
    let Some(Act::Try(Trial::Read(release))) = acts.last() else { panic!("{acts:?}") };
    let acts = world.machine.see(Change::Read(*release, Err("a mistake".to_owned())), world.now);
    let end = Act::Tell { to: 3, step: ReloadStep::end(Err("a mistake".to_owned())) };
    assert!(acts.contains(&end), "{acts:?}");
    assert_eq!(world.undo(), 1);
    world.work(30);
    assert_eq!(world.outcome_kinds(), [Done, Undone]);
}

#[test]
fn a_hang_at_boot_ends_with_the_boot_timeout_and_says_where_it_was() {
    let mut world = world(plan());
    world.reload();
    world.booting.clear();
    world.machine.loading(2, "app.rb:3\n".to_owned());
    world.now += 61 * SECOND;
    world.work(1);
    let why = "its template did not load the app within timeouts.worker_boot; it was here:\napp.rb:3";
    assert_eq!(world.outcomes(), [(Failed, why.to_owned())]);
    assert_eq!(world.templates, BTreeSet::from([1]));
}

#[test]
fn a_template_that_does_not_fork_in_time_counts_as_frozen_and_ends_the_trial() {
    let mut world = world(plan());
    world.reload();
    world.boot();
    assert_eq!(world.forking.map(|(generation, ..)| generation), Some(2));
    world.now += ORDER_TIMEOUT - SECOND;
    world.tick();
    assert!(world.templates.contains(&2), "it has time");
    world.now += 2 * SECOND;
    world.tick();
    world.work(10);
    assert_eq!(world.outcome_kinds(), [Failed], "{:?}", world.acts);
    assert_eq!((world.generations(), world.templates), (BTreeSet::from([1]), BTreeSet::from([1])));
}

#[test]
fn a_probe_that_fails_ends_the_trial_without_a_request_of_a_client() {
    let mut world = world(plan());
    world.reload();
    world.boot();
    world.fork();
    world.ready(4);
    assert_eq!(world.stage(), Some("probing"));
    assert!(!world.open.contains(&4));
    world.answer(Err("GET /up returned 500"));
    world.work(10);
    assert_eq!(world.outcomes(), [(Failed, "GET /up returned 500".to_owned())]);
    assert_eq!((world.generations(), world.open.len()), (BTreeSet::from([1]), WANTED));
}

/// Lets everything go on but the boot of one template.
fn work_while_it_boots(world: &mut World, slow: Generation, rounds: usize) {
    world.booting.retain(|booting| *booting != slow);
    world.work(rounds);
    world.booting.push(slow);
}

/// The old template dies while new code is loaded, and its replacement is slow. Then the new template dies.
#[test]
fn a_template_that_was_ordered_for_the_old_code_does_not_bring_it_back() {
    let mut world = world(Plan::default());
    world.reload();
    world.kill_template(1);
    assert_eq!((world.releases[&2], world.releases[&3]), (2, 1), "the old code may still be needed");
    work_while_it_boots(&mut world, 3, 60);
    assert_eq!(world.outcome_kinds(), [Done], "{:?}", world.acts);
    world.kill_template(2);
    world.boot();
    world.work(60);
    assert_eq!(world.releases_that_serve(), BTreeSet::from([2]), "{:?}", world.acts);
    world.check_rest();
}

/// As before, but the replacement has loaded the old code, and some of its workers are leaving.
#[test]
fn a_template_of_the_old_code_whose_workers_leave_does_not_bring_it_back() {
    let mut world = world(plan());
    world.reload();
    world.kill_template(1);
    world.boot();
    assert_eq!(world.booting, [2]);
    work_while_it_boots(&mut world, 2, 60);
    assert_eq!(world.generations(), BTreeSet::from([3]));
    until(&mut world, "rolling");
    for _ in 0..200 {
        world.now += SECOND / 100;
        world.fork();
        let booting: Vec<Serial> = world
            .machine
            .rows()
            .filter(|row| row.state == WorkerState::Booting)
            .map(|row| row.serial)
            .collect();
        booting.into_iter().for_each(|serial| world.ready(serial));
    }
    assert_eq!(world.outcome_kinds(), [Done], "{:?}", world.acts);
    assert!(world.generations().contains(&3), "its workers take their time");
    world.kill_template(2);
    world.work(60);
    assert_eq!(world.releases_that_serve(), BTreeSet::from([2]), "{:?}", world.acts);
    world.check_rest();
}

/// The new template dies after the reload, its replacement is slow, and the reload is undone. Then the old template dies.
#[test]
fn a_template_that_was_ordered_for_the_new_code_does_not_bring_it_back_after_an_undo() {
    let mut world = world(plan());
    world.reload();
    until(&mut world, "settling");
    world.kill_template(2);
    assert_eq!(world.releases[&3], 2);
    assert_eq!(world.undo(), 1);
    work_while_it_boots(&mut world, 3, 60);
    assert_eq!(world.outcome_kinds(), [Done, Undone], "{:?}", world.acts);
    world.kill_template(1);
    world.boot();
    world.work(60);
    assert_eq!(world.releases_that_serve(), BTreeSet::from([1]), "{:?}", world.acts);
    world.check_rest();
}

#[test]
fn a_verdict_against_it_ends_the_trial() {
    let mut world = world(plan());
    world.reload();
    until(&mut world, "watching");
    world.judge(Err("30 % of its requests raise"));
    assert_eq!(world.machine.reload_stage(world.now).unwrap().2, "the old code serves on");
    world.work(10);
    assert_eq!(world.outcome_kinds(), [Reverted], "clients have met it");
    assert_eq!(world.generations(), BTreeSet::from([1]));
}

#[test]
fn one_death_while_workers_take_over_is_an_accident_and_three_are_not() {
    let mut world = world(Plan { keep: SECOND, ..Plan::default() });
    world.reload();
    let mut killed = 0;
    while world.stage() != Some("reverting") && killed < 20 {
        world.boot();
        world.fork();
        let row = world.machine.rows().find(|row| row.state == WorkerState::Booting);
        if let Some(row) = row {
            world.ready(row.serial);
            let new =
                world.machine.rows().filter(|row| row.generation == 2 && row.state == WorkerState::Ready);
            if world.stage() == Some("rolling") && new.count() > 1 {
                world.kill_worker(row.serial);
                killed += 1;
            }
        }
        world.now += SECOND;
        world.tick();
    }
    assert_eq!(killed, 3);
    world.work(30);
    assert_eq!(world.outcome_kinds(), [Reverted], "{:?}", world.acts);
    assert!(world.outcomes()[0].1.starts_with("3 of its workers died; the last: worker"));
    assert_eq!(world.generations(), BTreeSet::from([1]));
}

#[test]
fn a_new_template_that_dies_while_workers_are_replaced_brings_the_old_ones_back() {
    let mut world = world(Plan { keep: SECOND, ..Plan::default() });
    world.reload();
    until(&mut world, "rolling");
    world.kill_template(2);
    world.work(30);
    assert_eq!(world.outcome_kinds(), [Reverted], "{:?}", world.acts);
    assert_eq!((world.generations(), world.open.len()), (BTreeSet::from([1]), WANTED));
}

#[test]
fn without_an_old_template_there_is_no_way_back() {
    let mut world = world(Plan { keep: SECOND, ..Plan::default() });
    world.reload();
    until(&mut world, "rolling");
    world.undo();
    world.kill_template(1);
    world.work(30);
    assert_eq!(world.outcome_kinds(), [NoWayBack], "{:?}", world.acts);
    assert_eq!((world.generations(), world.open.len()), (BTreeSet::from([2]), WANTED));
}

#[test]
fn the_spare_does_not_serve_when_the_template_dies_in_which_the_new_code_is() {
    let mut world = world(plan());
    world.reload();
    world.work(60);
    world.kill_template(2);
    assert_eq!(world.booting, [3], "new code again, not the old");
    world.work(40);
    assert_eq!(
        (world.generations(), world.releases_that_serve()),
        (BTreeSet::from([3]), BTreeSet::from([2]))
    );
}

#[test]
fn an_undo_waits_for_all_workers_of_the_new_code_whichever_template_has_forked_them() {
    let mut world = world(plan());
    world.reload();
    world.work(60);
    world.kill_template(2);
    world.work(40);
    assert_eq!(world.undo(), 1);
    assert_eq!(world.stage(), Some("reverting"), "workers of the third template serve");
    world.work(40);
    assert_eq!(world.outcome_kinds(), [Done, Undone], "{:?}", world.acts);
    assert_eq!(
        (world.generations(), world.releases_that_serve()),
        (BTreeSet::from([1]), BTreeSet::from([1]))
    );
}

#[test]
fn the_caller_of_an_undo_and_that_of_the_reload_learn_how_it_ended_for_them() {
    let ends = |world: &World, to| {
        let ends = |act: &Act| match act {
            Act::Tell { to: told, step: ReloadStep::Done { done } } if *told == to => Some(Ok(done.clone())),
            Act::Tell { to: told, step: ReloadStep::Failed { failed } } if *told == to => {
                Some(Err(failed.clone()))
            }
            _ => None,
        };
        world.acts.iter().filter_map(ends).collect::<Vec<_>>()
    };
    for (stage, caller, stops) in [
        ("watching", None, false),
        ("watching", Some(7), false),
        ("rolling", None, false),
        ("rolling", Some(7), false),
        ("rolling", Some(7), true),
    ] {
        let mut world = world(plan());
        let acts = world.machine.reload(ReloadWish::Reload, caller, world.now);
        world.carry_out(acts);
        until(&mut world, stage);
        let acts = world.machine.reload(ReloadWish::Undo, Some(8), world.now);
        world.carry_out(acts);
        assert_eq!(ends(&world, 8), [], "nothing has been undone yet");
        if stops {
            let acts = world.machine.drain(world.now);
            world.carry_out(acts);
            assert_eq!(ends(&world, 8), [Err("the server is stopping".to_owned())]);
            continue;
        }
        world.work(40);
        let text = "the reload under way is undone: the old code serves".to_owned();
        assert_eq!(ends(&world, 8), [Ok(text)]);
        let failed = caller.map(|_| Err("it was undone".to_owned()));
        assert_eq!(ends(&world, 7), Vec::from_iter(failed));
        assert_eq!(world.outcome_kinds(), [Undone]);
        assert_eq!(world.releases_that_serve(), BTreeSet::from([1]));
    }
}

#[test]
fn a_template_loads_the_code_that_it_was_ordered_with_whatever_dies_meanwhile() {
    let mut world = world(plan());
    let acts = world.machine.reload(ReloadWish::Reload, None, world.now);
    let [.., Act::Try(Trial::Read(release))] = acts[..] else { panic!("{acts:?}") };
    let acts = world.machine.see(Change::Read(release, Ok(plan())), world.now);
    assert_eq!(acts, [Act::Try(Trial::Weigh)]);
    world.kill_template(FIRST);
    assert_eq!(world.acts.last(), Some(&Act::StartTemplate { generation: 2, release: FIRST_RELEASE }));
    let acts = world.machine.see(Change::Weighed(crate::trial::Figures::default()), world.now);
    assert!(acts.contains(&Act::StartTemplate { generation: 3, release }), "{acts:?}");
}

#[test]
fn the_newest_of_the_waiting_reloads_follows_and_the_others_end() {
    let mut world = world(plan());
    world.reload();
    for caller in [1, 2] {
        let acts = world.machine.reload(ReloadWish::Reload, Some(caller), world.now);
        world.carry_out(acts);
    }
    let ends = |world: &World, caller| {
        world.acts.iter().any(|act| matches!(act, Act::Tell { to, step } if *to == caller && step.is_end()))
    };
    assert!(ends(&world, 1) && !ends(&world, 2));
    assert!(world.acts.contains(&Act::Reached(Milestone::Superseded)));
    world.work(120);
    assert!(ends(&world, 2));
    assert_eq!(world.outcome_kinds(), [Done, Done]);
    assert_eq!(world.releases_that_serve(), BTreeSet::from([3]));
    assert!(!world.outcome_kinds().contains(&Superseded));
}

#[test]
fn a_server_that_stops_ends_the_reload_and_the_one_that_waits() {
    let mut world = world(plan());
    world.reload();
    let acts = world.machine.reload(ReloadWish::Reload, Some(1), world.now);
    world.carry_out(acts);
    let acts = world.machine.drain(world.now);
    world.carry_out(acts);
    assert_eq!(world.outcomes(), [(Failed, "the server is stopping".to_owned())]);
    let refused = world.machine.reload(ReloadWish::Reload, Some(2), world.now);
    let stopping = |to| Act::Tell { to, step: ReloadStep::end(Err("the server is stopping".to_owned())) };
    assert!(world.acts.contains(&stopping(1)) && refused.contains(&stopping(2)));
    world.work(10);
    assert_eq!(world.acts.last(), Some(&Act::Reached(Milestone::Empty)));
}

#[test]
fn what_has_no_room_fails_before_anything_happens() {
    let mut world = world(plan());
    let acts = world.machine.reload(ReloadWish::Reload, None, world.now);
    let [.., Act::Try(Trial::Read(release))] = acts[..] else { panic!("{acts:?}") };
    world.machine.see(Change::Read(release, Ok(plan())), world.now);
    let figures = crate::trial::Figures { available: Some(1), template: 2, ..Default::default() };
    world.see(Change::Weighed(figures));
    assert_eq!(world.outcome_kinds(), [Failed]);
    assert!(world.outcomes()[0].1.contains("not enough memory") && world.booting.is_empty());
}

#[test]
fn a_memory_check_without_result_does_not_hold_the_reload_up() {
    let mut world = world(plan());
    let acts = world.machine.reload(ReloadWish::Reload, None, world.now);
    let [.., Act::Try(Trial::Read(release))] = acts[..] else { panic!("{acts:?}") };
    world.machine.see(Change::Read(release, Ok(plan())), world.now);
    world.tick();
    assert!(world.booting.is_empty());
    world.now += 10 * SECOND;
    world.tick();
    assert_eq!(world.booting, [2]);
}

/// Returns the number of workers that boot or serve, including those on trial.
fn staying(world: &World) -> usize {
    world.machine.rows().filter(|row| row.state != WorkerState::Draining).count()
}

#[test]
fn a_step_replaces_as_many_at_a_time() {
    let mut world = World::with(4, Plan { step: Size::Percent(50), ..Plan::default() });
    world.reload();
    world.boot();
    let mut most = 0;
    for _ in 0..20 {
        // Forked one after the other, and ready at the same time.
        (0..4).for_each(|_| world.fork());
        most = most.max(staying(&world));
        let booting = world.machine.rows().filter(|row| row.state == WorkerState::Booting);
        let booting: Vec<Serial> = booting.map(|row| row.serial).collect();
        booting.into_iter().for_each(|serial| world.ready(serial));
    }
    assert_eq!(most, 6, "two more than wanted");
    assert_eq!(world.outcome_kinds(), [Done], "{:?}", world.acts);
}

/// Something that happens during a reload.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Reload,
    Undo,
    Probed(bool),
    Judged(bool),
    Step(Step),
}

fn turns() -> impl Strategy<Value = (Turn, u32)> {
    let turn = prop_oneof![
        2 => Just(Turn::Reload),
        1 => Just(Turn::Undo),
        2 => prop::bool::weighted(0.7).prop_map(Turn::Probed),
        2 => prop::bool::weighted(0.7).prop_map(Turn::Judged),
        12 => steps().prop_map(|(step, _)| Turn::Step(step)),
    ];
    (turn, 1u32..16)
}

fn take(world: &mut World, turn: Turn, number: u32) -> usize {
    match turn {
        Turn::Reload => return world.reload(),
        Turn::Undo => return world.undo(),
        Turn::Probed(good) => world.answer(if good { Ok("200") } else { Err("500") }),
        Turn::Judged(false) => world.judge(Err("worse")),
        Turn::Judged(true) if world.machine.watched(world.now).is_some_and(|(_, over)| over) => {
            world.judge(Ok("as before"));
        }
        Turn::Judged(true) => {}
        Turn::Step(step) => world.step(step, number),
    }
    0
}

/// Returns whether what happens may take away a worker that serves.
fn takes_away(turn: Turn) -> bool {
    let Turn::Step(step) = turn else { return false };
    matches!(step, Step::KillWorker | Step::LoseLink | Step::Health(_) | Step::Size(_) | Step::Pools(_))
}

#[test]
fn a_shadow_has_a_baseline_of_the_old_code_and_no_client_meets_either() {
    let mut world = world(Plan { shadow: Some(SECOND), ..plan() });
    let open = world.open.clone();
    world.reload();
    until(&mut world, "shadowing");
    world.work(5);
    let (old, new, over) = world.machine.shadowed(world.now).unwrap();
    assert_eq!((world.row(old).unwrap().generation, world.row(new).unwrap().generation, over), (1, 2, false));
    assert_eq!(world.open, open, "clients meet neither");
    assert!(world.machine.is_staffed() && world.up().len() == WANTED + 2);
    until(&mut world, "watching");
    world.work(2);
    assert_eq!(world.row(old), None, "the baseline leaves");
    world.work(60);
    assert_eq!(world.outcome_kinds(), [Done]);
    assert_eq!(world.generations(), BTreeSet::from([2]));
}

#[test]
fn a_shadow_may_end_a_reload_before_clients_meet_it() {
    let mut world = world(Plan { shadow: Some(9 * SECOND), ..plan() });
    let open = world.open.clone();
    world.reload();
    until(&mut world, "shadowing");
    world.work(5);
    world.judge(Err("a key is missing"));
    world.work(20);
    assert_eq!(world.outcomes(), [(Failed, "a key is missing".to_owned())]);
    assert_eq!((world.open.clone(), world.up().len()), (open, WANTED));
}

#[test]
fn without_a_baseline_a_reload_goes_on() {
    for dies in [0, 5] {
        let mut world = world(Plan { shadow: Some(9 * SECOND), ..plan() });
        world.reload();
        until(&mut world, "shadowing");
        world.work(dies);
        world.fork();
        let baseline =
            world.machine.rows().find(|row| world.machine.is_baseline(row.serial)).map(|row| row.serial);
        world.kill_worker(baseline.unwrap());
        world.work(60);
        assert!(world.said("nothing is compared"), "{:?}", world.acts);
        assert_eq!(world.outcome_kinds(), [Done]);
    }
    let mut world = self::world(Plan { shadow: Some(SECOND), ..plan() });
    world.reload();
    until(&mut world, "shadowing");
    world.kill_template(1);
    world.work(60);
    assert_eq!(world.outcome_kinds(), [Done], "{:?}", world.acts);
}

#[test]
fn a_worker_on_trial_that_something_else_stops_is_replaced_and_the_reload_goes_on() {
    let mut world = world(Plan { shadow: Some(9 * SECOND), watch: Some(9 * SECOND), ..plan() });
    world.reload();
    until(&mut world, "shadowing");
    world.work(5);
    let (_, new, _) = world.machine.shadowed(world.now).unwrap();
    world.see(Change::Health(new, Health::Stopping));
    until(&mut world, "watching");
    assert!(world.said("the worker of the new code has ended: nothing is compared"), "{:?}", world.acts);
    world.work(10);
    let (watched, _) = world.machine.watched(world.now).unwrap();
    world.see(Change::Health(watched, Health::Stopping));
    world.work(60);
    let compared: Vec<_> = world
        .acts
        .iter()
        .filter_map(|act| match act {
            Act::Try(Trial::Watch { serial, time, .. }) => Some((*serial, *time)),
            _ => None,
        })
        .collect();
    let [(first, whole), (second, rest)] = compared[..] else { panic!("{compared:?}") };
    assert!(first == watched && second != watched, "{compared:?}");
    assert!(whole == 9 * SECOND && rest < 8 * SECOND, "the time is not longer: {compared:?}");
    world.work(60);
    assert_eq!(world.outcome_kinds(), [Done], "{:?}", world.acts);
}

#[test]
fn workers_that_are_not_forked_have_no_shadow() {
    let mut world = World::booting(vec![2], Capabilities::SPAWNED);
    world.work(40);
    world.plan = Plan { shadow: Some(SECOND), ..plan() };
    world.reload();
    world.work(80);
    assert!(world.said("none could have the old code: nothing is compared"), "{:?}", world.acts);
    assert!(!world.said("shadowing") && world.outcome_kinds() == [Done], "{:?}", world.acts);
}

#[test]
fn an_ordered_shadow_counts_and_in_place_there_is_none() {
    let mut world = world(plan());
    let acts = world.machine.reload(ReloadWish::Shadowed(SECOND), None, world.now);
    world.carry_out(acts);
    until(&mut world, "shadowing");
    world.work(60);
    world.plan = Plan { shadow: Some(SECOND), ..plan() };
    world.serving = 1;
    world.acts.clear();
    world.now += 60 * SECOND;
    world.work(5);
    world.reload();
    world.work(100);
    assert!(!world.said("shadowing") && world.outcome_kinds() == [Done], "{:?}", world.acts);
}

#[test]
fn a_reload_without_a_shadow_can_be_ordered() {
    let mut world = world(Plan { shadow: Some(SECOND), ..plan() });
    let acts = world.machine.reload(ReloadWish::Shadowed(Duration::ZERO), None, world.now);
    world.carry_out(acts);
    world.work(100);
    assert!(!world.said("shadowing") && world.outcome_kinds() == [Done], "{:?}", world.acts);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// Any process may be killed at any time, and orders may come at any time, in place and beside. No order
    /// removes a worker that is needed. When everything works again, one generation serves with all its
    /// workers, nothing is left behind, the code in force serves, and each reload has ended exactly once.
    #[test]
    fn whatever_dies(
        turns in proptest::collection::vec(turns(), 1..120),
        probe: bool,
        shadow: bool,
        watch: bool,
        step in 1u32..4,
        serving in 0usize..4,
        reforks: bool,
    ) {
        let watch = watch.then_some(SECOND);
        let shadow = shadow.then_some(SECOND);
        let plan = Plan { probe, shadow, watch, share: 10, step: Size::Workers(step), keep: 5 * SECOND };
        let mut world = world(plan);
        world.serving = serving;
        world.machine.wish.refork_after = reforks.then_some(50);
        let mut begun = 0;
        for (turn, number) in turns {
            let before = world.open.len();
            begun += take(&mut world, turn, number);
            if serving == 0 && !takes_away(turn) {
                let least = before.min(world.machine.wanted());
                prop_assert!(world.open.len() >= least, "{turn:?}: {before} to {}", world.open.len());
            }
        }
        world.machine.wish.refork_after = None;
        world.work(150);
        world.now += 30 * SECOND;
        world.work(250);
        // A reload that has waited was begun by the end of another one.
        let milestones = world.acts.iter().filter(|act| **act == Act::Reached(Milestone::Began(ReloadKind::Reload)));
        prop_assert!(begun <= milestones.clone().count());
        prop_assert_eq!(world.outcomes().len(), milestones.count());
        world.check_rest();
    }

    /// For any order of forks and workers, as long as none is late: while new code takes over, no pool has fewer
    /// ready workers than wanted, and in the end all workers of every pool are new.
    #[test]
    fn no_pool_falls_short_while_new_code_takes_over(
        moves in proptest::collection::vec((0u8..8, 1u32..40), 1..200),
        counts in proptest::collection::vec(1usize..4, 2..4),
        step in 1u32..4,
    ) {
        let mut world = World::booting(counts.clone(), Capabilities::TEMPLATE);
        world.work(30);
        let pause = ORDER_TIMEOUT / 2 / 200;
        world.plan = Plan { step: Size::Workers(step), keep: pause, shadow: Some(pause), ..Plan::default() };
        world.acts.clear();
        world.reload();
        for (what, number) in moves {
            if !world.advance(what, number) {
                world.now += pause;
            }
            for (pool, count) in (0..).map(PoolIndex).zip(&counts) {
                prop_assert!(world.open_in(pool) >= *count, "{} of {count} in {pool:?}", world.open_in(pool));
            }
        }
        world.work(200);
        prop_assert_eq!(world.outcome_kinds(), [Done], "{:?}", world.acts);
        let open: Vec<usize> = (0..counts.len() as u8).map(|pool| world.open_in(PoolIndex(pool))).collect();
        prop_assert_eq!((open, world.generations()), (counts, BTreeSet::from([2])));
    }

    /// For any order of forks and workers, as long as none is late: there are never fewer ready workers than
    /// wanted, and never more staying workers than wanted plus a step plus the one on trial.
    #[test]
    fn a_step_bounds_the_workers_on_both_sides(
        moves in proptest::collection::vec((0u8..8, 1u32..40), 1..200),
        wanted in 1usize..8,
        step in 1u32..10,
        shadow: bool,
        watch: bool,
    ) {
        let step = Size::Workers(step);
        // However many moves a fork waits for: a template that is late with it counts as frozen, and the
        // reload fails.
        let pause = ORDER_TIMEOUT / 2 / 200;
        let (shadow, watch) = (shadow.then_some(pause), watch.then_some(pause));
        let plan = Plan { probe: watch.is_some(), shadow, watch, share: 10, step, keep: pause };
        let mut world = World::with(wanted, plan);
        world.reload();
        for (what, number) in moves {
            if !world.advance(what, number) {
                world.now += pause;
                take(&mut world, Turn::Probed(true), 0);
                take(&mut world, Turn::Judged(true), 0);
            }
            prop_assert!(world.open.len() >= wanted, "{} of {wanted} ready", world.open.len());
            let rolling = world.stage() == Some("rolling");
            // The one on trial, and its baseline.
            let most = wanted + if rolling { step.of(wanted) } else { 1 + usize::from(shadow.is_some()) };
            prop_assert!(staying(&world) <= most, "{} workers, {most} allowed", staying(&world));
        }
        world.work(150);
        prop_assert_eq!(world.outcome_kinds(), [Done], "{:?}", world.acts);
        prop_assert_eq!((world.open.len(), world.generations()), (wanted, BTreeSet::from([2])));
    }
}
