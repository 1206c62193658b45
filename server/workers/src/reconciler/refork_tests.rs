//! Tests reforks that succeed and reforks that fail at each step.

use super::*;
use crate::reconciler::world::*;
use ReforkOutcome::{Done, Dropped, Failed, Reverted};
use std::collections::BTreeSet;

fn seen(serial: Serial, age: u32, requests: u64) -> Figures {
    Figures { serial, age: age * SECOND, requests, pss: None }
}

/// Starts with workers that have served enough requests, and one of them chosen.
fn begun() -> World {
    let mut world = World::with(2, Plan::default());
    world.machine.wish.refork_after = Some(50);
    world.step(Step::Warm, 0);
    world
}

fn until(world: &mut World, name: &str) {
    for _ in 0..100 {
        if world.stage() == Some(name) {
            return;
        }
        world.work(1);
    }
    panic!("it is never {name}: {:?}", world.acts);
}

fn at(name: &str) -> World {
    let mut world = begun();
    until(&mut world, name);
    world
}

fn ends(world: &World) -> Vec<ReforkOutcome> {
    let end = |act: &Act| match act {
        Act::Reached(Milestone::Reforked { outcome, .. }) => Some(*outcome),
        _ => None,
    };
    world.acts.iter().filter_map(end).collect()
}

/// Kills a worker of the new generation that has just been forked.
fn kill_new(world: &mut World) {
    for _ in 0..20 {
        world.fork();
        let new = world.machine.rules.reload.generation();
        let booting = |row: &Row| Some(row.generation) == new && row.state == WorkerState::Booting;
        let row = world.machine.rows().find(booting);
        if let Some(row) = row {
            return world.kill_worker(row.serial);
        }
        world.now += SECOND;
        world.tick();
    }
    panic!("there is none: {:?}", world.machine);
}

#[test]
fn the_oldest_worker_that_is_warm_is_chosen() {
    assert_eq!(choose(&[], 10, None), None);
    assert_eq!(choose(&[seen(1, 5, 9), seen(2, 9, 8)], 10, None), None);
    assert_eq!(choose(&[seen(1, 5, 10), seen(2, 9, 12), seen(3, 10, 9)], 10, None), Some(2));
    assert_eq!(choose(&[seen(4, 5, 10), seen(3, 5, 10)], 10, None), Some(3), "of the same age the first");
}

#[test]
fn a_worker_that_is_too_large_is_not_chosen() {
    let large = Figures { pss: Some(101), ..seen(1, 9, 99) };
    let small = Figures { pss: Some(100), ..seen(2, 5, 99) };
    assert_eq!(choose(&[large, small], 10, Some(100)), Some(2));
    assert_eq!(choose(&[large], 10, Some(100)), None);
    assert_eq!(choose(&[large, small], 10, None), Some(1), "there is no limit");
    assert_eq!(choose(&[seen(3, 9, 99)], 10, Some(100)), Some(3), "it has not been measured");
}

#[test]
fn a_refork_from_beginning_to_end() {
    let mut world = begun();
    assert_eq!((world.stage(), world.open.len()), (Some("replacing"), 2), "its successor is not ready yet");
    until(&mut world, "becoming");
    assert!(world.acts.contains(&Act::Close { serial: 1, leaves: Some(2) }), "{:?}", world.acts);
    until(&mut world, "rolling");
    assert_eq!(world.machine.rules.reload.generation(), Some(2));
    until(&mut world, "settling");
    world.work(1);
    assert_eq!((world.generations(), &world.templates), (BTreeSet::from([2]), &BTreeSet::from([1, 2])));
    world.now += SETTLE;
    world.work(1);
    assert_eq!((ends(&world), &world.templates), (vec![Done], &BTreeSet::from([2])));
    assert!(world.said("refork: all workers were forked from a warm one ("));
    assert_eq!(world.machine.reforks(), 1);
    world.reload();
    world.work(60);
    assert_eq!(world.machine.reforks(), 0, "counting begins anew");
    world.check_rest();
}

#[test]
fn there_is_no_refork_while_the_way_back_of_a_reload_is_open_or_from_a_source_that_cannot_fork() {
    let mut world = World::with(2, Plan { keep: SECOND, ..Plan::default() });
    world.machine.wish.refork_after = Some(50);
    world.reload();
    while world.stage() != Some("settling") {
        world.work(1);
    }
    world.step(Step::Warm, 0);
    assert_eq!(world.stage(), Some("settling"));
    world.now += SECOND;
    world.work(5);
    world.machine.source.can_fork = false;
    world.step(Step::Warm, 0);
    assert_eq!(world.stage(), None);
    world.machine.source.can_fork = true;
    world.step(Step::Warm, 0);
    assert_eq!(world.stage(), Some("replacing"));
}

#[test]
fn a_worker_that_ends_before_its_successor_is_ready_is_no_failure() {
    let mut world = begun();
    world.kill_worker(2);
    assert_eq!(ends(&world), []);
    world.kill_worker(1);
    assert_eq!(ends(&world), [Dropped]);
    assert!(!world.acts.iter().any(|act| matches!(act, Act::Close { leaves: Some(_), .. })));
    world.work(20);
    world.step(Step::Warm, 0);
    assert_eq!(world.stage(), Some("replacing"), "at once");
}

#[test]
fn a_template_that_cannot_be_made_is_a_failure() {
    let mut world = at("becoming");
    world.kill_template(2);
    assert_eq!(ends(&world), [Failed]);
    assert!(world.said("refork failed, the workers stay those of the old template: it died"));
    world.work(20);
    world.step(Step::Warm, 0);
    assert_eq!(world.stage(), None, "not at once");
    world.now += PAUSE;
    world.step(Step::Warm, 0);
    assert_eq!(world.stage(), Some("replacing"));
}

#[test]
fn a_promoted_worker_may_take_as_long_as_any_to_finish() {
    let mut world = at("becoming");
    let booting = std::mem::take(&mut world.booting);
    world.kill_worker(1);
    world.now += TIMEOUTS.shutdown + TIMEOUTS.boot - SECOND;
    world.tick();
    assert_eq!((world.stage(), booting), (Some("becoming"), vec![2]));
    world.now += SECOND;
    world.tick();
    assert_eq!(ends(&world), [Failed]);
    assert!(world.said("did not load the app within timeouts.worker_boot"));
    assert_eq!((world.open.len(), world.templates), (2, BTreeSet::from([1])));
}

#[test]
fn the_old_generation_returns_when_the_first_new_worker_does_not_get_ready() {
    let mut world = at("becoming");
    world.boot();
    assert_eq!(world.stage(), Some("rolling"));
    kill_new(&mut world);
    assert_eq!((ends(&world), world.machine.rules.reload.generation()), (vec![Reverted], None));
    world.work(60);
    assert_eq!(world.generations(), BTreeSet::from([1]));
    world.check_rest();
}

#[test]
fn the_old_generation_returns_after_three_deaths_but_not_after_one() {
    for name in ["rolling", "settling"] {
        let mut world = at(name);
        world.work(5);
        for death in 1..=DEATHS {
            assert_eq!(ends(&world), [], "after {} deaths", death - 1);
            let new = world.machine.rules.reload.generation();
            let up = |row: &Row| Some(row.generation) == new && row.state == WorkerState::Ready;
            let row = world.machine.rows().filter(up).last().expect("a worker");
            world.kill_worker(row.serial);
            if death < DEATHS {
                world.work(3);
            }
        }
        assert_eq!(ends(&world), [Reverted], "{name}");
        assert!(world.said("3 of its workers died; the last: worker"));
    }
}

#[test]
fn the_old_generation_returns_when_the_new_template_dies() {
    for name in ["rolling", "settling"] {
        let mut world = at(name);
        world.kill_template(2);
        assert_eq!(ends(&world), [Reverted]);
        world.work(60);
        assert_eq!((world.generations(), ends(&world)), (BTreeSet::from([1]), vec![Reverted]));
        world.check_rest();
    }
}

#[test]
fn after_three_failures_in_a_row_nothing_is_tried_until_the_next_reload() {
    let mut world = begun();
    for failures in 1..=FAILURES {
        until(&mut world, "becoming");
        world.kill_template(1 + failures);
        assert_eq!(world.said("until the next reload"), failures == FAILURES);
        world.now += PAUSE;
        world.work(20);
        world.step(Step::Warm, 0);
    }
    assert_eq!((world.stage(), ends(&world)), (None, vec![Failed; FAILURES as usize]));
    world.reload();
    world.work(60);
    world.step(Step::Warm, 0);
    assert_eq!(world.stage(), Some("replacing"));
}

#[test]
fn a_success_makes_up_for_failures() {
    let mut world = at("becoming");
    world.kill_template(2);
    world.now += PAUSE;
    world.work(20);
    world.step(Step::Warm, 0);
    until(&mut world, "settling");
    world.now += SETTLE;
    world.work(5);
    assert_eq!((ends(&world), world.machine.rules.refork.failures), (vec![Failed, Done], 0));
}

#[test]
fn a_reload_waits_only_while_workers_are_replaced() {
    for (name, outcome) in [("replacing", Dropped), ("becoming", Dropped), ("settling", Done)] {
        let mut world = at(name);
        assert_eq!(world.reload(), 1, "{name}");
        assert_eq!((ends(&world), world.machine.rules.refork.failures), (vec![outcome], 0));
        world.work(100);
        assert_eq!(world.outcome_kinds(), [stats::ReloadOutcome::Done], "{name}");
        world.check_rest();
    }
    let mut world = at("rolling");
    assert_eq!(world.reload(), 0);
    world.work(200);
    assert_eq!(world.outcome_kinds(), [stats::ReloadOutcome::Done]);
    world.check_rest();
}

#[test]
fn nothing_begins_when_the_server_ends() {
    let mut world = at("rolling");
    let acts = world.machine.drain(world.now);
    world.carry_out(acts);
    assert_eq!((world.stage(), ends(&world)), (None, vec![]));
    world.step(Step::Warm, 0);
    assert_eq!(world.stage(), None);
}
