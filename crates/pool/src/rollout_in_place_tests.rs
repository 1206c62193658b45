//! Tests reloads in place: fewer workers meanwhile, one template at a time, no undo.

use super::*;

fn in_place() -> Plan {
    Plan { probe: true, in_place: true, keep: 30 * SECOND, ..Plan::default() }
}

#[test]
fn in_place_old_workers_leave_before_the_new_code_is_loaded() {
    let mut world = World::new(in_place());
    world.request();
    assert_eq!((world.open.len(), world.rollout.stage()), (1, Some(Stage::Vacating)));
    assert_eq!(world.templates, BTreeSet::from([1]), "two workers are still leaving");
    let leaving = world.table.rows().filter(|row| row.stage == table::Stage::Leaving);
    let leaving: Vec<u32> = leaving.map(|row| row.serial).collect();
    leaving.into_iter().for_each(|serial| world.kill_worker(serial));
    world.observe();
    assert_eq!((&world.templates, world.rollout.stage()), (&BTreeSet::from([2]), Some(Stage::Booting)));
    world.work(60);
    assert!(matches!(world.outcomes()[..], [Outcome::Done(_)]), "{:?}", world.orders);
    assert_eq!((world.generations(), world.open.len()), (BTreeSet::from([2]), WANTED));
    assert!(world.rollout.undo(&world.facts()).is_err(), "there is no way back");
}

#[test]
fn in_place_code_that_cannot_be_loaded_leaves_the_old_workers_and_the_old_code_comes_back() {
    let mut world = World::new(in_place());
    world.request();
    while world.rollout.stage() == Some(Stage::Vacating) {
        let booting = std::mem::take(&mut world.booting);
        world.work(1);
        world.booting.extend(booting);
        world.booting.clear();
    }
    world.booting = vec![2];
    world.kill_template(2);
    world.observe();
    let Outcome::Failed(why) = world.outcomes()[0] else { panic!("{:?}", world.orders) };
    assert!(why.starts_with("it died") && why.contains("1 old workers serve on"), "{why}");
    assert_eq!((world.open.len(), world.booting.clone()), (1, vec![3]), "the code of before is loaded again");
    world.work(60);
    assert_eq!((world.generations(), world.open.len()), (BTreeSet::from([3]), WANTED));
}

#[test]
fn in_place_the_new_code_serves_although_the_old_template_dies_while_workers_leave() {
    let mut world = World::new(in_place());
    world.request();
    world.kill_template(FIRST);
    world.observe();
    assert_eq!(world.rollout.stage(), Some(Stage::Booting), "there is nothing to wait for");
    world.work(60);
    assert!(matches!(world.outcomes()[..], [Outcome::Done(_)]), "{:?}", world.orders);
    assert_eq!(world.codes_that_serve(), BTreeSet::from([FIRST_CODE + 1]));
}

#[test]
fn in_place_a_template_that_was_being_replaced_already_makes_room() {
    let mut world = World::new(in_place());
    world.kill_template(FIRST);
    assert_eq!(world.booting, [2], "its successor");
    world.request();
    world.observe();
    assert_eq!(world.templates, BTreeSet::from([3]), "one template at a time");
    world.work(60);
    assert!(matches!(world.outcomes()[..], [Outcome::Done(_)]), "{:?}", world.orders);
    assert_eq!(world.codes_that_serve(), BTreeSet::from([FIRST_CODE + 1]));
}

#[test]
fn what_has_no_room_fails_before_anything_happens() {
    let mut world = World::new(plan());
    let orders = world.rollout.request(world.plan.clone(), FIRST, world.now);
    assert_eq!(orders, [Order::Weigh]);
    let orders = world.rollout.weighed(Err("no room".to_owned()), &world.facts());
    assert_eq!(orders, [Order::Finish(Outcome::Failed("no room".to_owned()))]);
    assert!(!world.rollout.is_busy());
}

#[test]
fn who_never_answers_does_not_hold_the_reload_up() {
    let mut world = World::new(plan());
    drop(world.rollout.request(world.plan.clone(), FIRST, world.now));
    world.observe();
    assert!(world.booting.is_empty());
    world.now += 10 * SECOND;
    world.observe();
    assert_eq!(world.booting, [2]);
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
        let mut world = World::with(wanted, in_place());
        let serving = serving.min(wanted);
        world.serving = serving;
        world.request();
        for (what, number) in moves {
            match what {
                0 => world.boot(),
                1 | 2 => world.fork(),
                3..=5 => world.on(Event::Ready(number)),
                6 => {
                    let row = world.row(number);
                    if row.is_some_and(|row| row.stage == table::Stage::Leaving) {
                        world.kill_worker(number);
                    }
                }
                _ => world.answer(Ok("200".to_owned())),
            }
            world.observe();
            prop_assert!(world.open.len() >= serving, "{} serve, not {serving}", world.open.len());
            let old_left = world.table.rows().any(|row| row.generation == FIRST);
            let leaving_first = world.rollout.stage() == Some(Stage::Vacating);
            if old_left && !leaving_first {
                prop_assert!(world.table.rows().count() <= serving + 1, "{:?}", world.table);
                prop_assert!(world.templates.len() <= 1);
            }
        }
        world.work(150);
        prop_assert!(matches!(world.outcomes()[..], [Outcome::Done(_)]), "{:?}", world.orders);
        prop_assert_eq!((world.open.len(), world.generations()), (wanted, BTreeSet::from([2])));
    }

    /// The same while any process may die and orders may come at any time: in the end all wanted workers of
    /// one generation serve, and each reload has ended once.
    #[test]
    fn in_place_whatever_dies(steps in proptest::collection::vec((0u8..14, 1u32..16), 1..120), serving in 1usize..4) {
        let mut world = World::new(in_place());
        world.serving = serving;
        let mut asked = 0;
        for (step, number) in steps {
            match step {
                0 | 1 if !world.rollout.is_busy() => asked += world.asks_to_reload(),
                2 => asked += world.asks_to_undo(),
                3 => world.kill_worker(number),
                4 => world.kill_template(number % 6 + 1),
                5 => world.answer(Err("500".to_owned())),
                6 | 7 => world.boot(),
                8 | 9 => world.fork(),
                10 | 11 => world.on(Event::Ready(number)),
                12 => world.answer(Ok("200".to_owned())),
                _ => {
                    world.now += 2 * SECOND;
                    world.on(Event::Tick);
                }
            }
            world.observe();
        }
        world.work(150);
        world.now += 30 * SECOND;
        world.work(150);
        prop_assert!(!world.rollout.is_busy(), "{:?}", world.rollout);
        prop_assert_eq!(world.outcomes().len(), asked);
        prop_assert_eq!(world.open.len(), WANTED);
        prop_assert_eq!(world.generations().len(), 1);
        prop_assert_eq!(&world.templates, &world.generations());
        prop_assert_eq!(world.codes_that_serve(), BTreeSet::from([world.code_to_serve()]), "{:?}", world.orders);
    }
}
