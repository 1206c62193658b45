//! Tests which worker serves which request after events of requests and workers.

use super::*;
use crate::client::{ClassIndex, QueueClient};
use crate::pace::DEEPEST;
use crate::worker::SILENT;
use proptest::prelude::*;

fn up(dispatch: &mut Dispatch, serial: Serial, threads: u32, now: Instant) -> Vec<Assignment> {
    let mut assigned = Vec::new();
    dispatch.worker_up(serial, threads, now, &mut assigned);
    assigned
}

fn finish(dispatch: &mut Dispatch, serial: Serial, app_ms: u64, now: Instant) -> Vec<Assignment> {
    let mut assigned = Vec::new();
    dispatch.finished(serial, None, Some(Duration::from_millis(app_ms)), now, &mut assigned);
    assigned
}

fn pairs(assigned: &[Assignment]) -> Vec<(Ticket, Serial)> {
    assigned.iter().map(|one| (one.ticket, one.serial)).collect()
}

/// The key of all requests in tests that are not about clients.
const KEY: QueueKey = QueueKey { class: ClassIndex::DEFAULT, client: QueueClient::All };

#[test]
fn a_worker_on_trial_gets_its_share_however_idle_the_others_are() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(10);
    up(&mut dispatch, 1, 4, now);
    dispatch.worker_on_trial(2, 4, 100, now, &mut Vec::new());
    let mut given = 0;
    for _ in 0..2_000 {
        let Admission::Go(serial) = dispatch.ask(0, 0, KEY, now).1 else { panic!("there is a seat") };
        given += u64::from(serial == 2);
        finish(&mut dispatch, serial, 20, now);
    }
    assert!((140..260).contains(&given), "{given} of 2,000");
    dispatch.set_trial_share(1, 900);
    dispatch.set_trial_share(2, 0);
    for _ in 0..100 {
        assert_eq!(dispatch.ask(0, 0, KEY, now).1, Admission::Go(1), "no share");
        finish(&mut dispatch, 1, 20, now);
    }
    dispatch.failed(2, 3);
    let tally = dispatch.tallies().find(|(serial, _)| *serial == 2).unwrap().1;
    assert_eq!(tally, Tally { requests: given, failures: 3, app_us: given * 20_000 });
    up(&mut dispatch, 2, 4, now);
    assert_eq!(dispatch.tallies().count(), 2, "it is no third worker");
    dispatch.pass_over(1, PassReason::Leaving);
    assert_eq!(dispatch.ask(0, 0, KEY, now).1, Admission::Go(2));
}

#[test]
fn requests_that_are_held_back_get_seats_in_their_order_afterwards() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(2).without_prefetching();
    up(&mut dispatch, 1, 2, now);
    dispatch.hold_back(true);
    assert!(dispatch.take(0, now).is_none());
    let (first, admission) = dispatch.ask(0, 7, KEY, now);
    assert_eq!(admission, Admission::Wait, "there are seats");
    let (second, _) = dispatch.ask(0, 8, KEY, now);
    assert_eq!(dispatch.ask(0, 9, KEY, now).1, Admission::Full);
    dispatch.predict(Some(Duration::ZERO), now);
    assert!(dispatch.ask_again(first, KEY, now, now).1 != Admission::Go(1));
    assert_eq!(dispatch.expire(now + Duration::from_secs(1)).len(), 2, "their time goes on");
    let tickets = [dispatch.ask(0, 7, KEY, now).0, dispatch.ask(0, 8, KEY, now).0];
    assert!(tickets[0].number > second.number);
    let mut assigned = Vec::new();
    dispatch.resume(now, &mut assigned);
    assert!(assigned.is_empty(), "they are still held back");
    dispatch.hold_back(false);
    dispatch.resume(now, &mut assigned);
    let given: Vec<(u64, Serial)> = assigned.iter().map(|one| (one.ticket.number, one.serial)).collect();
    assert_eq!(given, tickets.map(|ticket| (ticket.number, 1)));
}

#[test]
fn a_worker_that_computes_is_chosen_last_but_before_one_that_is_full() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(10).without_prefetching();
    up(&mut dispatch, 1, 3, now);
    up(&mut dispatch, 2, 2, now);
    dispatch.pass_over(1, PassReason::Computing);
    let asked: Vec<Admission> = (0..6).map(|slot| dispatch.ask(0, slot, KEY, now).1).collect();
    let go = Admission::Go;
    assert_eq!(asked, [go(2), go(2), go(1), go(1), go(1), Admission::Wait], "nothing in advance");
    assert_eq!(finish(&mut dispatch, 2, 1, now).len(), 1);
    dispatch.restore(1, PassReason::Computing, now, &mut Vec::new());
    finish(&mut dispatch, 1, 1, now);
    finish(&mut dispatch, 1, 1, now);
    assert_eq!(dispatch.ask(0, 9, KEY, now).1, go(1));
}

#[test]
fn a_worker_on_trial_serves_alone_when_there_is_no_other() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(10);
    dispatch.worker_on_trial(1, 2, 100, now, &mut Vec::new());
    assert_eq!([dispatch.ask(0, 0, KEY, now).1, dispatch.ask(0, 1, KEY, now).1], [Admission::Go(1); 2]);
    dispatch.worker_gone(1);
    up(&mut dispatch, 2, 1, now);
    assert_eq!(dispatch.ask(0, 2, KEY, now).1, Admission::Go(2));
}

#[test]
fn a_worker_rests_only_while_nobody_misses_it() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(10);
    up(&mut dispatch, 1, 2, now);
    assert!(!dispatch.rest(1), "it is alone");
    up(&mut dispatch, 2, 2, now);
    assert!(!dispatch.rest(3), "there is no such worker");
    assert_eq!(dispatch.ask(0, 0, KEY, now).1, Admission::Go(1));
    assert!(!dispatch.rest(1), "it has a request");
    assert!(!dispatch.rest(2), "the other has fewer free threads");
    finish(&mut dispatch, 1, 1, now);
    assert!(dispatch.rest(1));
    assert!(!dispatch.rest(2) && !dispatch.rest(1), "nobody else takes requests");
    let went: Vec<_> = (0..3).map(|_| dispatch.ask(0, 0, KEY, now).1).collect();
    assert_eq!(went, [Admission::Go(2), Admission::Go(2), Admission::Wait]);
    let mut assigned = Vec::new();
    dispatch.restore(1, PassReason::Resting, now, &mut assigned);
    assert_eq!(assigned.iter().map(|one| one.serial).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_worker_that_leaves_or_is_suspended_stands_in_for_nobody() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(10);
    (1..=3).for_each(|serial| drop(up(&mut dispatch, serial, 1, now)));
    dispatch.pass_over(2, PassReason::Suspended);
    assert!(!dispatch.rest(2));
    dispatch.pass_over(3, PassReason::Leaving);
    assert!(!dispatch.rest(1) && !dispatch.rest(3));
    dispatch.restore(2, PassReason::Suspended, now, &mut Vec::new());
    assert!(dispatch.rest(1));
}

#[test]
fn processes_come_before_threads() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(10);
    up(&mut dispatch, 1, 2, now);
    up(&mut dispatch, 2, 2, now);
    let went: Vec<_> = (0..5).map(|_| dispatch.ask(0, 0, KEY, now).1).collect();
    assert_eq!(
        went,
        [Admission::Go(1), Admission::Go(2), Admission::Go(1), Admission::Go(2), Admission::Wait]
    );
}

#[test]
fn slow_requests_are_never_given_in_advance() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(10);
    up(&mut dispatch, 1, 1, now);
    assert_eq!(dispatch.ask(0, 0, KEY, now).1, Admission::Go(1));
    let (second, admission) = dispatch.ask(0, 0, KEY, now);
    assert_eq!(admission, Admission::Wait);
    assert_eq!(dispatch.ask(0, 0, KEY, now).1, Admission::Wait);
    assert_eq!(pairs(&finish(&mut dispatch, 1, 20, now)), [(second, 1)]);
    assert_eq!(dispatch.waiting(), 1);
}

#[test]
fn fast_requests_are_batched_until_one_is_slow() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(1000);
    up(&mut dispatch, 1, 1, now);
    dispatch.ask(0, 0, KEY, now);
    finish(&mut dispatch, 1, 0, now);
    let given = (0..100).filter(|_| dispatch.ask(0, 0, KEY, now).1 == Admission::Go(1)).count();
    assert_eq!(given, DEEPEST as usize);
    finish(&mut dispatch, 1, 50, now);
    assert_eq!(dispatch.taken(1), DEEPEST - 1, "nothing in advance while a slow request is recent");
    let later = now + Duration::from_secs(5);
    for _ in 0..60 {
        finish(&mut dispatch, 1, 0, later);
    }
    assert!(dispatch.taken(1) > 1);
}

#[test]
fn a_request_that_is_put_back_keeps_its_position() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(10);
    up(&mut dispatch, 1, 1, now);
    let (first, _) = dispatch.ask(0, 0, KEY, now);
    let (second, _) = dispatch.ask(0, 0, KEY, now);
    dispatch.worker_gone(1);
    assert_eq!(dispatch.ask_again(first, KEY, now, now).1, Admission::Wait);
    assert_eq!(pairs(&up(&mut dispatch, 2, 1, now)), [(first, 2)]);
    assert_eq!(pairs(&finish(&mut dispatch, 2, 20, now)), [(second, 2)]);
}

#[test]
fn returned_requests_go_to_other_workers_in_their_order() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(1);
    up(&mut dispatch, 1, 1, now);
    dispatch.ask(0, 0, KEY, now);
    finish(&mut dispatch, 1, 0, now);
    let [_slow, second, third]: [Ticket; 3] = std::array::from_fn(|_| dispatch.ask(0, 0, KEY, now).0);
    assert_eq!(dispatch.taken(1), 3);
    let mut assigned = Vec::new();
    dispatch.pass_over(1, PassReason::Stalled);
    let back = [third, second].map(|ticket| TakenBack { turn: None, again: Some((ticket, now, KEY)) });
    dispatch.put_back(1, &back, now, &mut assigned);
    assert_eq!(
        (assigned.as_slice(), dispatch.taken(1), dispatch.waiting()),
        (&[][..], 1, 2),
        "over max_queue"
    );
    assert_eq!(pairs(&up(&mut dispatch, 2, 1, now)), [(second, 2), (third, 2)]);
    finish(&mut dispatch, 1, 0, now);
    let (fourth, admission) = dispatch.ask(0, 0, KEY, now + SILENT * 2);
    assert_eq!(admission, Admission::Wait, "1 has not resumed");
    dispatch.restore(1, PassReason::Stalled, now + SILENT * 2, &mut assigned);
    assert_eq!(pairs(&assigned), [(fourth, 1)]);
}

#[test]
fn after_a_pause_nothing_is_given_in_advance_until_those_that_have_waited_are_served() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let mut dispatch = Dispatch::new(100);
    up(&mut dispatch, 1, 1, start);
    dispatch.ask(0, 0, KEY, start);
    finish(&mut dispatch, 1, 0, start);
    dispatch.serve_in_order(at(10));
    let asked: Vec<Admission> =
        (0..4).map(|slot| dispatch.ask(slot % 2, u32::from(slot), KEY, at(12)).1).collect();
    assert_eq!(asked, [Admission::Go(1), Admission::Wait, Admission::Wait, Admission::Wait]);
    // Long after: the last of them still waits.
    for now in [13, 500, 501] {
        assert_eq!(finish(&mut dispatch, 1, 0, at(now)).len(), 1);
        assert_eq!(dispatch.taken(1), 1);
    }
    assert_eq!(dispatch.ask(0, 0, KEY, at(502)).1, Admission::Go(1), "in advance again");
}

#[test]
fn a_worker_that_finishes_nothing_gets_nothing_in_advance() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(10);
    up(&mut dispatch, 1, 1, now);
    dispatch.ask(0, 0, KEY, now);
    finish(&mut dispatch, 1, 0, now);
    assert_eq!(dispatch.ask(0, 0, KEY, now).1, Admission::Go(1));
    assert_eq!(dispatch.ask(0, 0, KEY, now).1, Admission::Go(1));
    assert_eq!(dispatch.ask(0, 0, KEY, now + SILENT * 2).1, Admission::Wait);
}

#[test]
fn the_queue_is_bounded_by_length_and_time() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(1);
    let (ticket, admission) = dispatch.ask(0, 0, KEY, now);
    assert_eq!((admission, dispatch.ask(0, 0, KEY, now).1), (Admission::Wait, Admission::Full));
    assert_eq!(dispatch.expire(now - Duration::from_millis(1)), []);
    assert_eq!(dispatch.expire(now), [ticket]);
    assert!(!dispatch.cancel(ticket));
}

#[test]
fn a_cancelled_request_leaves_no_gap() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(2);
    let (first, _) = dispatch.ask(0, 0, KEY, now);
    let (second, _) = dispatch.ask(0, 0, KEY, now);
    assert!(dispatch.cancel(first) && !dispatch.cancel(first));
    assert_eq!((dispatch.waiting(), dispatch.oldest()), (1, Some(now)));
    assert_eq!(dispatch.ask(0, 0, KEY, now).1, Admission::Wait, "its entry no longer counts");
    assert_eq!(pairs(&up(&mut dispatch, 1, 1, now)), [(second, 1)]);
}

#[test]
fn a_closed_worker_gets_nothing_more() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(10);
    up(&mut dispatch, 1, 1, now);
    dispatch.pass_over(1, PassReason::Leaving);
    assert_eq!(dispatch.ask(0, 0, KEY, now).1, Admission::Wait);
}

#[test]
fn tunnels_spread_over_workers_that_are_equally_free() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(10);
    (1..=4).for_each(|serial| drop(up(&mut dispatch, serial, 5, now)));
    let mut sockets = [0; 4];
    for _ in 0..200 {
        let Admission::Go(serial) = dispatch.ask(0, 0, KEY, now).1 else { panic!("a free seat") };
        dispatch.tunnel_opened(serial);
        sockets[serial as usize - 1] += 1;
        finish(&mut dispatch, serial, 1, now);
    }
    assert_eq!(sockets, [50; 4]);
    (0..50).for_each(|_| dispatch.tunnel_closed(3));
    assert_eq!(dispatch.ask(0, 0, KEY, now).1, Admission::Go(3));
    assert_eq!(dispatch.ask(0, 0, KEY, now).1, Admission::Go(1), "free threads count before tunnels");
}

#[test]
fn a_suspended_worker_gets_nothing_until_it_is_resumed() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(10);
    up(&mut dispatch, 1, 1, now);
    up(&mut dispatch, 2, 1, now);
    let (first, _) = dispatch.ask(0, 0, KEY, now);
    dispatch.pass_over(1, PassReason::Suspended);
    let mut assigned = Vec::new();
    dispatch.finished(1, None, None, now, &mut assigned);
    assert_eq!(dispatch.ask_again(first, KEY, now, now).1, Admission::Go(2));
    let (second, admission) = dispatch.ask(0, 0, KEY, now);
    assert_eq!(admission, Admission::Wait);
    dispatch.restore(1, PassReason::Suspended, now, &mut assigned);
    assert_eq!(pairs(&assigned), [(second, 1)]);
}

#[test]
fn fibers_get_nothing_in_advance_however_fast_they_are() {
    let now = Instant::now();
    let mut fibers = Dispatch::new(100).without_prefetching();
    up(&mut fibers, 1, 2, now);
    for _ in 0..50 {
        fibers.ask(0, 0, KEY, now);
        finish(&mut fibers, 1, 0, now);
    }
    let given = (0..20).filter(|_| fibers.ask(0, 0, KEY, now).1 == Admission::Go(1)).count();
    assert_eq!(given, 2);
}

proptest! {
    /// Queued requests are served in the order of their numbers, and no worker holds more than its limit.
    #[test]
    fn first_come_first_served(steps in proptest::collection::vec(0u8..4, 1..200), workers in 1u32..4) {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(1000);
        for serial in 0..workers { up(&mut dispatch, serial, 2, now); }
        let mut last = None;
        for step in steps {
            if step == 0 {
                let (ticket, admission) = dispatch.ask(0, 0, KEY, now);
                if let Admission::Go(_) = admission {
                    prop_assert!(last < Some(ticket));
                    last = Some(ticket);
                }
            } else {
                let serial = u32::from(step) % workers;
                if dispatch.taken(serial) > 0 {
                    for assignment in finish(&mut dispatch, serial, 20, now) {
                        prop_assert!(last < Some(assignment.ticket));
                        last = Some(assignment.ticket);
                    }
                }
            }
            prop_assert!((0..workers).all(|serial| dispatch.taken(serial) <= 2));
        }
    }
}

/// Serves `waiting` requests of one client that replaces each finished request, and one request at a time of
/// another client. The app takes 18 to 22 ms. Returns the times of the other client's requests in
/// milliseconds, in order.
fn beside_a_greedy_client(seats: &[u32], waiting: usize) -> Vec<f64> {
    use std::collections::BTreeMap;
    let start = Instant::now();
    let mut dispatch = Dispatch::new(100_000);
    seats.iter().zip(1..).for_each(|(seats, serial)| drop(up(&mut dispatch, serial, *seats, start)));
    let key = |client| QueueKey { client: QueueClient::Address(client), ..KEY };
    let random = &mut fastrand::Rng::with_seed(7);
    // Ends of requests by time: seat, turn, the slot that tells the client, and the time in the app.
    type Request = (Serial, Option<Turn>, u32, u64);
    let mut ends: BTreeMap<(u64, u64), Request> = BTreeMap::new();
    let (mut times, mut asked_us, mut now_us, mut begun) = (Vec::new(), 0, 0, 0);
    let at = |us: u64| start + Duration::from_micros(us);
    let mut todo: Vec<u32> = std::iter::repeat_n(0, waiting).chain([1]).collect();
    while times.len() < 2000 {
        let mut assigned = Vec::new();
        let mut seated: Vec<(Serial, Option<Turn>, u32)> = Vec::new();
        for slot in todo.drain(..) {
            if slot == 1 {
                asked_us = now_us;
            }
            if let Admission::Go(serial) = dispatch.ask(0, slot, key(slot.into()), at(now_us)).1 {
                seated.push((serial, None, slot));
            }
        }
        if seated.is_empty() {
            let (&(us, number), &(serial, turn, slot, app_us)) = ends.first_key_value().unwrap();
            ends.remove(&(us, number));
            now_us = us;
            dispatch.finished(serial, turn, Some(Duration::from_micros(app_us)), at(us), &mut assigned);
            if slot == 1 {
                times.push((us - asked_us) as f64 / 1000.0);
            }
            todo.push(slot);
        }
        seated.extend(assigned.iter().map(|one| (one.serial, Some(one.turn), one.ticket.slot)));
        for (serial, turn, slot) in seated {
            let app_us = random.u64(18_000..22_000);
            begun += 1;
            ends.insert((now_us + app_us, begun), (serial, turn, slot, app_us));
        }
    }
    times.sort_unstable_by(f64::total_cmp);
    times
}

#[test]
fn a_client_with_one_request_waits_for_one_seat_at_most_beside_one_with_thousands() {
    for seats in [&[2][..], &[1, 1], &[1]] {
        for waiting in [200, 2000] {
            let times = beside_a_greedy_client(seats, waiting);
            let p99 = times[times.len() * 99 / 100];
            // Alone, a request takes 20 ms: its own time. Here it also waits for the rest of one other
            // request.
            assert!(p99 <= 44.0, "{p99} ms with {seats:?} beside {waiting}");
            assert!(times[times.len() - 1] <= 66.0);
        }
    }
}

#[test]
fn a_limit_moves_the_seats_at_once() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(100);
    let mut assigned = Vec::new();
    dispatch.limit_seats(Some(1), now, &mut assigned);
    up(&mut dispatch, 1, 4, now);
    // A fast request: without the limit, further ones would be handed over in advance.
    assert_eq!(dispatch.ask(0, 0, KEY, now).1, Admission::Go(1));
    finish(&mut dispatch, 1, 0, now);
    let admitted: Vec<Admission> = (0..6).map(|slot| dispatch.ask(0, slot, KEY, now).1).collect();
    assert_eq!((admitted[0], &admitted[1..]), (Admission::Go(1), &[Admission::Wait; 5][..]));
    assert_eq!((dispatch.seats(), dispatch.busy()), (1, 1));
    dispatch.limit_seats(Some(3), now, &mut assigned);
    assert_eq!((assigned.len(), dispatch.taken(1), dispatch.seats()), (2, 3, 3));
    dispatch.limit_seats(Some(2), now, &mut assigned);
    assert_eq!((assigned.len(), dispatch.taken(1)), (2, 3), "all that it has finish");
    assert!(finish(&mut dispatch, 1, 0, now).is_empty());
    assert_eq!(finish(&mut dispatch, 1, 0, now).len(), 1, "the limit holds for the next ones");
    dispatch.limit_seats(Some(99), now, &mut assigned);
    assert_eq!(
        (dispatch.seats(), dispatch.waiting()),
        (4, 0),
        "a worker has no more seats than it was made with"
    );
    up(&mut dispatch, 2, 2, now);
    dispatch.limit_seats(None, now, &mut assigned);
    assert_eq!(dispatch.seats(), 6);
}

#[test]
fn response_times_count_while_there_is_an_objective() {
    let now = Instant::now();
    let mut dispatch = Dispatch::new(100);
    up(&mut dispatch, 1, 4, now);
    let ms = Duration::from_millis;
    dispatch.responded([ms(5)]);
    assert_eq!(dispatch.take_load().responses.times.count(), 0);
    dispatch.set_objective(Some(ms(100)));
    dispatch.responded([ms(5), ms(100), ms(101)]);
    dispatch.ask(0, 0, KEY, now);
    finish(&mut dispatch, 1, 7, now);
    let responses = dispatch.take_load().responses;
    assert_eq!((responses.times.count(), responses.late), (3, 1));
    assert_eq!((responses.ended, responses.app_us), (1, 7_000));
    assert_eq!(dispatch.take_load().responses.ended, 0);
}

proptest! {
    /// Whatever the limits and the order of events, no worker gets a request beyond the limit.
    #[test]
    fn a_worker_holds_no_more_than_the_limit(steps in proptest::collection::vec((0..3u8, 1..9u32), 1..300)) {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(1000);
        let (mut limit, mut held) = (8, 0);
        up(&mut dispatch, 1, 8, now);
        for (what, number) in steps {
            let before = dispatch.taken(1);
            match what {
                0 => {
                    dispatch.ask(0, 0, KEY, now);
                }
                1 if before > 0 => {
                    finish(&mut dispatch, 1, 0, now);
                }
                2 => {
                    limit = number;
                    dispatch.limit_seats(Some(limit), now, &mut Vec::new());
                }
                _ => {}
            }
            held = dispatch.taken(1);
            // With all seats in use, requests go over in advance.
            let most = if limit == 8 { 8 * DEEPEST } else { limit };
            prop_assert!(held <= most.max(before), "{held} of {most}");
            prop_assert!(dispatch.waiting() == 0 || held >= limit);
        }
        prop_assert!(held <= 8 * DEEPEST);
    }
}
