//! Tests of the line: order, limits, and the pace of the release.

use super::*;
use proptest::prelude::*;

const PATIENCE: Duration = Duration::from_secs(60);
const ONE: PoolIndex = PoolIndex(0);
const OTHER: PoolIndex = PoolIndex(1);

fn terms(max: usize, paths: &[&str]) -> PauseTerms {
    let paths = paths.iter().map(|path| (*path).to_owned()).collect();
    PauseTerms { until: Instant::now() + Duration::from_secs(30), max, paths }
}

/// A line of two pools that is paused.
fn paused(max: usize) -> PauseLine<u32> {
    let mut line = PauseLine::new(2);
    line.begin(terms(max, &[])).unwrap();
    line
}

fn enter(line: &mut PauseLine<u32>, pool: PoolIndex, request: u32) -> Entered {
    line.enter(pool, |paths| is_below(paths, b"/"), request)
}

#[test]
fn requests_wait_up_to_the_limit_and_leave_in_order_of_arrival() {
    let mut line = paused(3);
    for request in 0..3 {
        assert!(matches!(enter(&mut line, ONE, request), Entered::Waits(_)));
    }
    assert!(matches!(enter(&mut line, ONE, 3), Entered::Full { max: 3, until: Some(_) }));
    let now = Instant::now();
    assert!(line.release(ONE, 9, PATIENCE, now).is_empty(), "the pause is not over");
    assert_eq!(line.end(now), Some(3));
    assert_eq!(line.release(ONE, 2, PATIENCE, now), [0]);
    assert!(line.is_moving(ONE) && line.release(ONE, 2, PATIENCE, now).is_empty(), "one is on the way");
    assert_eq!(line.arrived(ONE, now), Some(1), "the queue had room for another");
    assert_eq!((line.arrived(ONE, now), line.is_moving(ONE)), (None, false), "it has no more");
    assert_eq!(line.release(ONE, 2, PATIENCE, now), [2]);
    assert_eq!((line.phase(), line.is_closed()), (PausePhase::Off, false));
    assert_eq!(enter(&mut line, ONE, 4), Entered::Passes);
    let figures = line.figures();
    assert_eq!((figures.held, figures.refused, figures.waiting), (3, 1, 0));
}

#[test]
fn later_requests_wait_behind_those_of_the_pause_and_no_longer() {
    let mut line = paused(10);
    enter(&mut line, ONE, 0);
    let now = Instant::now();
    line.end(now);
    assert!(matches!(enter(&mut line, ONE, 1), Entered::Waits(_)));
    assert!(matches!(enter(&mut line, OTHER, 2), Entered::Waits(_)));
    assert_eq!(line.release(ONE, 1, PATIENCE, now), [0]);
    assert_eq!((line.phase(), line.is_closed()), (PausePhase::Releasing, false));
    assert_eq!(enter(&mut line, ONE, 3), Entered::Passes);
    assert_eq!(line.arrived(ONE, now), None);
    assert!(line.release(ONE, 0, PATIENCE, now + PATIENCE / 2).is_empty());
    assert_eq!(line.release(ONE, 0, PATIENCE, now + PATIENCE), [1], "the limits of the queue decide");
    assert_eq!(line.release(OTHER, 1, PATIENCE, now), [2]);
    assert_eq!(line.phase(), PausePhase::Off);
}

#[test]
fn a_pool_without_room_does_not_delay_the_other() {
    let mut line = paused(10);
    enter(&mut line, ONE, 0);
    enter(&mut line, OTHER, 1);
    let now = Instant::now();
    line.end(now);
    assert!(line.release(ONE, 0, PATIENCE, now).is_empty());
    assert_eq!(line.release(OTHER, 1, PATIENCE, now), [1]);
    assert!(line.is_closed(), "one request of the pause is left");
    assert_eq!(line.release(ONE, 0, PATIENCE, now + PATIENCE), [0], "its workers take none");
}

#[test]
fn a_client_that_goes_leaves_its_place() {
    let mut line = paused(1);
    let Entered::Waits(number) = enter(&mut line, ONE, 0) else { panic!("it waits") };
    line.leave(ONE, number, Instant::now());
    let Entered::Waits(number) = enter(&mut line, ONE, 1) else { panic!("there is room again") };
    let now = Instant::now();
    line.end(now);
    assert_eq!(line.release(ONE, 1, PATIENCE, now), [1]);
    assert_eq!(line.leave(ONE, number, now), None);
    assert_eq!(line.figures().left, 1, "the second was released before its client left");
    line.begin(terms(5, &[])).unwrap();
    enter(&mut line, ONE, 2);
    line.end(now);
    assert_eq!(line.release(ONE, 1, PATIENCE, now), [2], "nothing is on the way any more");
}

#[test]
fn the_last_client_that_goes_ends_the_release() {
    let mut line = paused(5);
    let Entered::Waits(number) = enter(&mut line, ONE, 0) else { panic!("it waits") };
    line.end(Instant::now());
    line.leave(ONE, number, Instant::now());
    assert_eq!((line.phase(), line.is_closed()), (PausePhase::Off, false));
}

#[test]
fn one_request_is_on_the_way_at_a_time_also_when_clients_go() {
    let mut line = paused(9);
    let mut numbers = Vec::new();
    for request in 0..5 {
        let Entered::Waits(number) = enter(&mut line, ONE, request) else { panic!("it waits") };
        numbers.push(number);
    }
    let now = Instant::now();
    line.end(now);
    assert_eq!(line.release(ONE, 9, PATIENCE, now), [0]);
    assert_eq!(line.leave(ONE, numbers[2], now), None, "it was not on the way");
    assert_eq!(line.leave(ONE, numbers[0], now), Some(1), "it was");
    assert!(line.release(ONE, 1, PATIENCE, now).is_empty(), "the one on the way takes the only room");
    assert_eq!(line.arrived(ONE, now), None);
    assert_eq!(line.release(ONE, 9, PATIENCE, now), [3]);
    line.begin(terms(9, &[])).unwrap();
    assert_eq!(line.arrived(ONE, now), None, "paused again");
    line.end(now);
    assert!(!line.is_moving(ONE));
    assert_eq!(line.release(ONE, 9, PATIENCE, now), [4]);
}

#[test]
fn only_the_paths_of_the_pause_wait() {
    let mut line: PauseLine<u32> = PauseLine::new(1);
    line.begin(terms(5, &["/orders", "/api/v2"])).unwrap();
    let mut of = |path: &[u8]| line.enter(ONE, |paths| is_below(paths, path), 0) != Entered::Passes;
    for path in [&b"/orders"[..], b"/orders/7", b"/%6frders", b"//orders", b"/api/v2/x"] {
        assert!(of(path), "{}", path.escape_ascii());
    }
    for path in [&b"/"[..], b"/ordersx", b"/api", b"/api/v1"] {
        assert!(!of(path), "{}", path.escape_ascii());
    }
}

#[test]
fn new_terms_keep_the_requests_that_wait() {
    let mut line = paused(5);
    enter(&mut line, ONE, 0);
    line.begin(terms(1, &[])).unwrap();
    assert!(matches!(enter(&mut line, ONE, 1), Entered::Full { max: 1, .. }));
    let now = Instant::now();
    line.end(now);
    line.begin(terms(9, &[])).unwrap();
    assert!(line.release(ONE, 9, PATIENCE, now).is_empty(), "paused again");
    line.end(now);
    assert_eq!(line.release(ONE, 9, PATIENCE, now), [0]);
}

#[test]
fn a_shutdown_refuses_what_waits_and_what_comes() {
    let mut line = paused(5);
    enter(&mut line, ONE, 0);
    enter(&mut line, OTHER, 1);
    assert_eq!(line.refuse(), [0, 1]);
    assert_eq!(enter(&mut line, ONE, 2), Entered::Refused);
    assert_eq!((line.end(Instant::now()), line.begin(terms(1, &[])).is_err()), (None, true));
    let mut open: PauseLine<u32> = PauseLine::new(1);
    assert!(open.refuse().is_empty());
    assert_eq!(enter(&mut open, ONE, 0), Entered::Passes, "without a pause nothing is refused");
}

#[derive(Debug, Clone)]
enum Step {
    Begin(usize),
    End,
    Enter(u8),
    Leave(usize),
    Release(u8, usize),
    Arrive(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0usize..6).prop_map(Step::Begin),
        Just(Step::End),
        (0u8..2).prop_map(Step::Enter),
        (0usize..8).prop_map(Step::Leave),
        (0u8..2, 0usize..4).prop_map(|(pool, room)| Step::Release(pool, room)),
        (0u8..2).prop_map(Step::Arrive),
    ]
}

proptest! {
    /// Whatever happens, no request is lost or released twice, and the requests of a pool leave in order.
    #[test]
    fn every_request_leaves_once_and_in_order(steps in prop::collection::vec(step(), 0..80)) {
        let (mut line, now) = (PauseLine::<u32>::new(2), Instant::now());
        let mut waiting: Vec<(u8, u64, u32)> = Vec::new();
        let (mut next, mut last) = (0, [None; 2]);
        for step in steps {
            match step {
                Step::Begin(max) => line.begin(terms(max, &[])).unwrap(),
                Step::End => drop(line.end(now)),
                Step::Enter(pool) => {
                    if let Entered::Waits(number) = enter(&mut line, PoolIndex(pool), next) {
                        waiting.push((pool, number, next));
                    }
                    next += 1;
                }
                Step::Leave(at) if at < waiting.len() => {
                    let (pool, number, _) = waiting.remove(at);
                    let next = line.leave(PoolIndex(pool), number, now);
                    prop_assert_eq!(next, None, "it was not on the way");
                }
                Step::Leave(_) => {}
                Step::Release(pool, _) | Step::Arrive(pool) => {
                    let released = match step {
                        Step::Release(_, room) => line.release(PoolIndex(pool), room, PATIENCE, now),
                        _ => line.arrived(PoolIndex(pool), now).into_iter().collect(),
                    };
                    prop_assert!(released.len() <= 1);
                    for request in released {
                        let at = waiting.iter().position(|(_, _, its)| *its == request);
                        prop_assert!(at.is_some(), "{request} waited");
                        waiting.remove(at.unwrap_or_default());
                        prop_assert!(last[usize::from(pool)] < Some(request));
                        last[usize::from(pool)] = Some(request);
                    }
                }
            }
            prop_assert_eq!(line.figures().waiting, waiting.len());
            let left = line.waiting_of(ONE) + line.waiting_of(OTHER);
            prop_assert_eq!(left, waiting.len());
            prop_assert!(line.phase() != PausePhase::Off || waiting.is_empty());
        }
        line.end(now);
        for pool in [ONE, OTHER] {
            line.release(pool, 0, PATIENCE, now + PATIENCE);
        }
        prop_assert_eq!((line.figures().waiting, line.phase() == PausePhase::On), (0, false));
    }
}
