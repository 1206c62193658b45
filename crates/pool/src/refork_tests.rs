//! Tests reforks that succeed, reforks that fail at each step, and properties of all of them.

use super::*;
use crate::table::Census;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);
const OLD: Generation = 4;
const NEW: Generation = 5;

fn seen(serial: Serial, age: u32, requests: u64) -> Seen {
    Seen { serial, age: age * SECOND, requests, pss: None }
}

fn census(template: TemplateStage, ready: usize) -> Census {
    Census { template, ready, staying: ready, all: ready }
}

/// Returns the facts with two wanted workers, `new` ready ones of the new generation and `old` of the old
/// one.
fn facts(new: usize, old: usize) -> Facts {
    let up = TemplateStage::Up;
    Facts { new: census(up, new), old: census(up, old), others: old, wanted: 2 }
}

fn booting() -> Facts {
    Facts { new: census(TemplateStage::Booting, 0), ..facts(0, 2) }
}

/// Returns a refork whose worker has been told to finish.
fn becoming(now: Instant) -> Refork {
    let mut refork = Refork::new(now);
    assert_eq!(refork.begin(7, OLD, now), [Order::Promote(7)]);
    assert_eq!(refork.promoted(7, NEW), []);
    refork
}

fn rolling(now: Instant) -> Refork {
    let mut refork = becoming(now);
    assert_eq!(refork.observe(&facts(0, 2), now), [Order::Keep(OLD), Order::Roll(NEW)]);
    refork
}

fn settling(now: Instant) -> Refork {
    let mut refork = rolling(now);
    assert_eq!(refork.observe(&facts(1, 1), now), []);
    assert!(refork.is_rolling());
    assert_eq!(refork.observe(&facts(2, 0), now), []);
    assert!(!refork.is_rolling());
    refork
}

fn says(orders: &[Order], text: &str) -> bool {
    orders.iter().any(|order| matches!(order, Order::Say(line) if line.contains(text)))
}

fn ends(orders: &[Order]) -> Vec<ReforkOutcome> {
    let end = |order: &Order| if let Order::Finish(outcome, _) = order { Some(*outcome) } else { None };
    orders.iter().filter_map(end).collect()
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
    let large = Seen { pss: Some(101), ..seen(1, 9, 99) };
    let small = Seen { pss: Some(100), ..seen(2, 5, 99) };
    assert_eq!(choose(&[large, small], 10, Some(100)), Some(2));
    assert_eq!(choose(&[large], 10, Some(100)), None);
    assert_eq!(choose(&[large, small], 10, None), Some(1), "there is no limit");
    assert_eq!(choose(&[seen(3, 9, 99)], 10, Some(100)), Some(3), "it has not been measured");
}

#[test]
fn a_refork_from_beginning_to_end() {
    let now = Instant::now();
    let mut refork = Refork::new(now);
    assert_eq!(refork.may_begin(now), Some(0));
    assert_eq!(refork.begin(7, OLD, now), [Order::Promote(7)]);
    assert_eq!((refork.may_begin(now), refork.new_generation()), (None, None));
    assert_eq!(refork.observe(&facts(0, 2), now), [], "its successor is not ready yet");
    assert_eq!(refork.promoted(7, NEW), []);
    assert_eq!(refork.worker_gone(7), []);
    assert_eq!(refork.observe(&booting(), now), [], "it finishes its requests");
    assert_eq!(refork.observe(&facts(0, 2), now), [Order::Keep(OLD), Order::Roll(NEW)]);
    assert_eq!((refork.new_generation(), refork.old_generation()), (Some(NEW), Some(OLD)));
    assert_eq!(refork.observe(&facts(2, 1), now), [], "an old one serves still");
    assert_eq!(refork.observe(&facts(2, 0), now + SECOND), []);
    assert_eq!(refork.observe(&facts(2, 0), now + SETTLE), []);
    let end = refork.observe(&facts(2, 0), now + SECOND + SETTLE);
    assert_eq!(end[..2], [Order::Spare(OLD), Order::Abandon(OLD)]);
    assert!(says(&end, "(6.0 s)"), "{end:?}");
    assert_eq!(ends(&end), [ReforkOutcome::Done]);
    assert_eq!((refork.may_begin(now), refork.new_generation()), (Some(1), None));
    refork.reloaded();
    assert_eq!(refork.may_begin(now), Some(0), "counting begins anew");
}

#[test]
fn a_worker_that_ends_before_its_successor_is_ready_is_no_failure() {
    let now = Instant::now();
    let mut refork = Refork::new(now);
    refork.begin(7, OLD, now);
    assert_eq!(refork.worker_gone(6), []);
    assert_eq!(refork.may_begin(now), None);
    assert_eq!(ends(&refork.worker_gone(7)), [ReforkOutcome::Dropped]);
    assert_eq!(refork.may_begin(now), Some(0));
    assert_eq!(
        refork.promoted(7, NEW),
        [Order::Abandon(NEW)],
        "whatever it still leaves behind is not wanted"
    );
}

#[test]
fn a_template_that_is_not_to_be_had_is_a_failure() {
    let now = Instant::now();
    let mut refork = becoming(now);
    let orders = refork.template_failed("its template died", now);
    assert_eq!(orders[0], Order::Abandon(NEW));
    assert!(says(&orders, "its template died"), "{orders:?}");
    assert_eq!(ends(&orders), [ReforkOutcome::Failed]);
    assert_eq!(refork.may_begin(now), None, "not at once");
    assert_eq!(refork.may_begin(now + PAUSE), Some(0));
}

#[test]
fn the_old_generation_returns_when_the_first_new_worker_does_not_get_ready() {
    let now = Instant::now();
    let mut refork = rolling(now);
    assert_eq!(refork.worker_died("worker 2 crashed", &facts(0, 2), now)[0], Order::Roll(OLD));
    assert_eq!(refork.new_generation(), None);
    assert_eq!(becoming(now).worker_died("worker 2 crashed", &booting(), now)[0], Order::Abandon(NEW));
}

#[test]
fn the_old_generation_returns_after_three_deaths_but_not_after_one() {
    let now = Instant::now();
    for mut refork in [rolling(now), settling(now)] {
        assert_eq!(refork.worker_died("worker 2 crashed", &facts(1, 1), now), []);
        assert_eq!(refork.worker_died("worker 3 crashed", &facts(1, 1), now), []);
        let orders = refork.worker_died("worker 4 crashed", &facts(1, 1), now);
        assert_eq!(orders[0], Order::Roll(OLD));
        assert!(says(&orders, "the last: worker 4 crashed"), "{orders:?}");
        assert_eq!(ends(&orders), [ReforkOutcome::Reverted]);
    }
}

#[test]
fn the_old_generation_returns_when_the_new_template_dies() {
    let now = Instant::now();
    for mut refork in [rolling(now), settling(now)] {
        assert_eq!(refork.template_failed("its template died", now)[0], Order::Roll(OLD));
        assert_eq!(refork.template_failed("its template died", now), [], "it is said once");
    }
}

#[test]
fn after_three_failures_in_a_row_nothing_is_tried_until_the_next_reload() {
    let now = Instant::now();
    let mut refork = Refork::new(now);
    let fail = |refork: &mut Refork, at: Instant| {
        refork.begin(7, OLD, at);
        refork.promoted(7, NEW);
        refork.template_failed("its template died", at)
    };
    for _ in 1..FAILURES {
        assert!(!says(&fail(&mut refork, now), "until the next reload"));
    }
    assert!(says(&fail(&mut refork, now), "until the next reload"));
    assert_eq!(refork.may_begin(now + 1000 * PAUSE), None);
    refork.reloaded();
    assert_eq!(refork.may_begin(now + PAUSE), Some(0));
}

#[test]
fn a_success_makes_up_for_failures() {
    let now = Instant::now();
    let mut refork = becoming(now);
    refork.template_failed("its template died", now);
    for _ in 0..FAILURES {
        let at = now + PAUSE;
        refork.begin(7, OLD, at);
        refork.promoted(7, NEW);
        refork.observe(&facts(0, 2), at);
        refork.observe(&facts(2, 0), at);
        refork.observe(&facts(2, 0), at + SETTLE);
        refork.begin(8, OLD, at);
        refork.promoted(8, NEW);
        refork.template_failed("its template died", now);
    }
    assert!(refork.may_begin(now + PAUSE).is_some());
}

#[test]
fn a_reload_waits_only_while_workers_are_replaced() {
    let now = Instant::now();
    let mut refork = Refork::new(now);
    assert_eq!(refork.give_way(now), []);
    refork.begin(7, OLD, now);
    let orders = refork.give_way(now);
    assert_eq!((&orders[0], ends(&orders)), (&Order::Demote(7), vec![ReforkOutcome::Dropped]));
    let mut refork = becoming(now);
    assert!(!refork.is_rolling());
    let orders = refork.give_way(now);
    assert_eq!((&orders[0], ends(&orders)), (&Order::Abandon(NEW), vec![ReforkOutcome::Dropped]));
    assert_eq!(refork.may_begin(now), Some(0), "that was no failure");
    let mut refork = settling(now);
    assert_eq!(refork.give_way(now)[..2], [Order::Spare(OLD), Order::Abandon(OLD)]);
    assert_eq!(refork.may_begin(now), Some(1), "it was as good as over");
}

#[test]
fn nothing_begins_when_the_server_ends() {
    let now = Instant::now();
    let mut refork = rolling(now);
    refork.stop();
    assert_eq!((refork.may_begin(now), refork.observe(&facts(2, 0), now)), (None, vec![]));
}

proptest! {
    /// For any order of events: the old generation is never spared before all workers are new, a kept
    /// template is always spared or takes over again, there is one refork at a time, an undisturbed refork
    /// ends, and each refork ends once.
    #[test]
    fn kept_templates_are_let_go(steps in proptest::collection::vec((0u8..10, 0usize..4), 1..80)) {
        let mut now = Instant::now();
        let mut refork = Refork::new(now);
        let (mut kept, mut running, mut under_way, mut ready) = (false, false, false, 0);
        for (step, number) in steps {
            let facts = facts(ready, 2 - ready.min(2));
            let orders = match step {
                0 if refork.may_begin(now).is_some() => {
                    prop_assert!(!running);
                    ready = 0;
                    refork.begin(7, OLD, now)
                }
                1 => refork.promoted(7, NEW),
                2 => refork.template_failed("it died", now),
                3 => refork.worker_died("one", &facts, now),
                4 => refork.worker_gone(number as Serial + 5),
                5 if !refork.is_rolling() => refork.give_way(now),
                6 => { ready = number.min(2); Vec::new() }
                7 => { now += SETTLE; Vec::new() }
                8 => { refork.reloaded(); Vec::new() }
                _ => refork.observe(&facts, now),
            };
            for order in orders {
                match order {
                    Order::Keep(OLD) => { prop_assert!(!kept); kept = true; }
                    Order::Spare(OLD) => { prop_assert!(kept); kept = false; }
                    Order::Roll(OLD) => { prop_assert!(kept); kept = false; }
                    Order::Roll(NEW) => prop_assert!(kept, "the way back comes first"),
                    Order::Promote(_) => { prop_assert!(!under_way); under_way = true; }
                    Order::Finish(..) => { prop_assert!(under_way); under_way = false; }
                    _ => {}
                }
            }
            running = refork.state != State::Idle;
            prop_assert_eq!((running, refork.stage().is_some()), (under_way, under_way));
            prop_assert_eq!(kept, matches!(refork.state, State::Rolling { .. } | State::Settling { .. }));
        }
        let good = super::tests::facts(2, 0);
        for _ in 0..4 {
            refork.promoted(7, NEW);
            refork.observe(&good, now);
            now += SETTLE;
        }
        prop_assert_eq!(refork.state, State::Idle);
    }
}
