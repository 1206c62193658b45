//! Tests reloads in place: fewer workers meanwhile, one template at a time, no undo.

use super::world::*;
use super::*;
use proptest::prelude::*;
use stats::ReloadOutcome::{Done, Failed};
use std::collections::BTreeSet;

const WANTED: usize = 3;

fn world(wanted: usize, serving: usize) -> World {
    let plan = Plan { probe: true, keep: 30 * SECOND, ..Plan::default() };
    let mut world = World::with(wanted, plan);
    world.serving = serving;
    world
}

#[test]
fn in_place_old_workers_leave_before_the_new_code_is_loaded() {
    let mut world = world(WANTED, 1);
    world.reload();
    assert_eq!((world.open.len(), world.stage()), (1, Some("vacating")));
    assert_eq!(world.templates, BTreeSet::from([1]), "two workers are still leaving");
    let leaving = world.machine.rows().filter(|row| row.state == WorkerState::Draining);
    let leaving: Vec<Serial> = leaving.map(|row| row.serial).collect();
    leaving.into_iter().for_each(|serial| world.kill_worker(serial));
    assert_eq!((&world.templates, world.stage()), (&BTreeSet::from([2]), Some("booting")));
    world.work(60);
    assert_eq!(world.outcome_kinds(), [Done], "{:?}", world.acts);
    assert_eq!((world.generations(), world.open.len()), (BTreeSet::from([2]), WANTED));
    assert_eq!(world.undo(), 0, "there is no way back");
}

#[test]
fn in_place_code_that_cannot_be_loaded_leaves_the_old_workers_and_the_old_code_comes_back() {
    let mut world = world(WANTED, 1);
    world.reload();
    for serial in 1..=3 {
        if world.row(serial).is_some_and(|row| row.state == WorkerState::Draining) {
            world.kill_worker(serial);
        }
    }
    world.kill_template(2);
    let (outcome, why) = world.outcomes().remove(0);
    assert!(why.starts_with("it died") && why.contains("1 old workers serve on"), "{why}");
    assert_eq!((outcome, world.open.len(), &*world.booting), (Failed, 1, &[3][..]), "the code of before");
    world.work(60);
    assert_eq!((world.generations(), world.open.len()), (BTreeSet::from([3]), WANTED));
    world.check_rest();
}

#[test]
fn in_place_an_undo_while_workers_leave_restores_them() {
    let mut world = world(WANTED, 1);
    world.reload();
    assert_eq!(world.stage(), Some("vacating"));
    world.kill_template(FIRST);
    world.serving = 0;
    world.undo();
    world.work(60);
    world.check_rest();
}

#[test]
fn in_place_the_new_code_serves_although_the_old_template_dies_while_workers_leave() {
    let mut world = world(WANTED, 1);
    world.reload();
    world.kill_template(FIRST);
    assert_eq!(world.stage(), Some("booting"), "there is nothing to wait for");
    assert_eq!(world.templates, BTreeSet::from([2]), "it has no other successor");
    world.work(60);
    assert_eq!(world.outcome_kinds(), [Done], "{:?}", world.acts);
    assert_eq!(world.releases_that_serve(), BTreeSet::from([FIRST_RELEASE + 1]));
}

#[test]
fn in_place_a_template_that_was_being_replaced_already_makes_room() {
    let mut world = world(WANTED, 1);
    world.kill_template(FIRST);
    assert_eq!(world.booting, [2], "its successor");
    world.reload();
    assert_eq!(world.templates, BTreeSet::from([3]), "one template at a time");
    world.work(60);
    assert_eq!(world.outcome_kinds(), [Done], "{:?}", world.acts);
    assert_eq!(world.releases_that_serve(), BTreeSet::from([FIRST_RELEASE + 1]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// For any order of steps: the intended number of workers serves, and at most one more process exists,
    /// until the old ones have gone.
    #[test]
    fn in_place_bounds_the_workers_on_both_sides(
        moves in proptest::collection::vec((0u8..8, 1u32..30), 1..200),
        wanted in 1usize..7,
        serving in 1usize..7,
    ) {
        let serving = serving.min(wanted.saturating_sub(1)).max(1);
        let mut world = world(wanted, serving);
        world.reload();
        for (what, number) in moves {
            if !world.advance(what, number) {
                world.answer(Ok("200"));
            }
            prop_assert!(world.open.len() >= serving, "{} serve, not {serving}", world.open.len());
            let old_left = world.machine.rows().any(|row| row.generation == FIRST);
            if old_left && world.stage() != Some("vacating") {
                prop_assert!(world.machine.rows().count() <= serving + 1, "{:?}", world.machine);
                prop_assert!(world.templates.len() <= 1);
            }
        }
        world.work(150);
        prop_assert_eq!(world.outcome_kinds(), [Done], "{:?}", world.acts);
        prop_assert_eq!((world.open.len(), world.generations()), (wanted, BTreeSet::from([2])));
    }
}
