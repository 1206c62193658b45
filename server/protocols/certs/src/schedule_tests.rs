use super::*;
use proptest::prelude::*;

const DAY: i64 = 86_400;
const MINUTE: Duration = Duration::from_secs(60);

fn fresh() -> RenewalSchedule {
    RenewalSchedule::new(true, MINUTE)
}

#[test]
fn without_a_certificate_an_order_is_due() {
    assert_eq!(fresh().next(0), Action::Order { staging: false });
}

#[test]
fn long_lifetimes_are_renewed_at_two_thirds_and_short_ones_at_half() {
    for (days, earliest, latest) in [(90, 60.0, 64.5), (6, 3.0, 3.3)] {
        for random in [0.0, 0.5, 1.0] {
            let mut schedule = fresh();
            schedule.have(Lifetime { from: 0, until: days * DAY }, 0, random);
            let due = schedule.next_order() as f64 / DAY as f64;
            assert!((earliest..=latest).contains(&due), "{days} days: {due}");
        }
    }
}

#[test]
fn the_cas_window_counts_and_its_moment_stays() {
    let mut schedule = fresh();
    schedule.have(Lifetime { from: 0, until: 90 * DAY }, 0, 0.0);
    assert_eq!(schedule.next(DAY), Action::AskWindow);
    let window = Window { from: 30 * DAY, until: 32 * DAY };
    schedule.window(Some(window), None, DAY, 0.5);
    assert_eq!(schedule.next_order(), 31 * DAY);
    assert_eq!(schedule.next(DAY), Action::Wait(DAY + 6 * 3_600));
    schedule.window(Some(window), None, 2 * DAY, 0.9);
    assert_eq!(schedule.next_order(), 31 * DAY, "the same window keeps its moment");
    // An incident: the CA wants the certificate replaced now.
    schedule.window(Some(Window { from: DAY, until: 2 * DAY }), None, 3 * DAY, 0.9);
    assert_eq!(schedule.next(3 * DAY), Action::Order { staging: false });
}

#[test]
fn a_window_that_ends_before_it_begins_is_ignored() {
    let mut schedule = fresh();
    schedule.have(Lifetime { from: 0, until: 90 * DAY }, 0, 0.0);
    let due = schedule.next_order();
    schedule.window(Some(Window { from: 9, until: 3 }), None, 0, 0.5);
    assert_eq!(schedule.next_order(), due);
}

#[test]
fn a_refused_order_goes_to_staging_first_and_then_to_production_at_once() {
    let mut schedule = fresh();
    let at = schedule.failed(OrderFault::Refused, None, 0, 1.0);
    assert_eq!((at, schedule.next(59)), (60, Action::Wait(60)));
    assert_eq!(schedule.next(60), Action::Order { staging: true });
    schedule.staging_succeeded();
    assert_eq!(schedule.next(61), Action::Order { staging: false });
    let mut other = RenewalSchedule::new(false, MINUTE);
    other.failed(OrderFault::Refused, None, 0, 1.0);
    assert_eq!(other.next(DAY), Action::Order { staging: false }, "no staging is known");
    let mut away = fresh();
    away.failed(OrderFault::Unreachable, None, 0, 1.0);
    assert_eq!(away.next(DAY), Action::Order { staging: false }, "the CA was away");
}

#[test]
fn pauses_double_up_to_a_day() {
    let mut schedule = fresh();
    let pauses: Vec<i64> = (0..14).map(|_| schedule.failed(OrderFault::Unreachable, None, 0, 1.0)).collect();
    assert_eq!(pauses[..5], [60, 120, 240, 480, 960]);
    assert_eq!(pauses[13], DAY);
}

#[test]
fn a_valid_certificate_that_soon_ends_shortens_pauses() {
    let mut schedule = fresh();
    schedule.have(Lifetime { from: 0, until: 4 * 3_600 }, 0, 0.0);
    for _ in 0..20 {
        schedule.failed(OrderFault::Unreachable, None, 0, 1.0);
    }
    assert_eq!(schedule.next_order(), 2 * 3_600, "not before it is due");
    assert_eq!(schedule.failed(OrderFault::Unreachable, None, 2 * 3_600, 1.0), 2 * 3_600 + 1_800);
}

#[test]
fn success_clears_failures() {
    let mut schedule = fresh();
    schedule.failed(OrderFault::Refused, None, 0, 1.0);
    schedule.have(Lifetime { from: 0, until: 90 * DAY }, 0, 0.0);
    assert_eq!(schedule.failures(), 0);
    schedule.lost();
    assert_eq!(schedule.next(0), Action::Order { staging: false });
}

#[test]
fn windows_that_are_always_over_do_not_make_a_storm() {
    let mut schedule = fresh();
    let (mut now, mut orders) = (1_000, 0);
    schedule.have(Lifetime { from: 0, until: 90 * DAY }, now, 0.0);
    while now < DAY {
        match schedule.next(now) {
            Action::Wait(until) => now = until,
            Action::AskWindow => schedule.window(Some(Window { from: 0, until: 60 }), None, now, 0.5),
            Action::Order { .. } => {
                orders += 1;
                // The same lifetime: it was issued within the same second.
                schedule.issued(Lifetime { from: 0, until: 90 * DAY }, now, 0.0);
            }
        }
    }
    assert!((5..=12).contains(&orders), "{orders} orders in a day");
}

#[test]
fn certificates_that_are_due_when_they_are_issued_do_not_make_a_storm() {
    // The clock is ahead by more than a lifetime.
    let mut schedule = fresh();
    let (mut now, mut orders) = (400 * DAY, 0);
    while now < 401 * DAY {
        match schedule.next(now) {
            Action::Wait(until) => now = until,
            Action::AskWindow => schedule.no_windows(),
            Action::Order { .. } => {
                orders += 1;
                schedule.issued(Lifetime { from: 0, until: 6 * DAY }, now, 0.0);
            }
        }
    }
    assert!((5..=12).contains(&orders), "{orders} orders in a day");
    // Once the clock is right again, the certificate is valid.
    assert_eq!(schedule.next(DAY), Action::Wait(3 * DAY));
}

#[test]
fn an_expired_certificate_that_was_stored_is_replaced_at_once() {
    let mut schedule = fresh();
    schedule.have(Lifetime { from: 0, until: 90 * DAY }, 100 * DAY, 0.0);
    assert_eq!(schedule.next(100 * DAY), Action::Order { staging: false });
}

#[test]
fn a_window_beyond_the_lifetime_is_cut() {
    let mut schedule = fresh();
    schedule.have(Lifetime { from: 0, until: 100 * DAY }, 0, 0.0);
    schedule.window(Some(Window { from: 99 * DAY, until: 300 * DAY }), None, 0, 0.9);
    assert_eq!(schedule.next_order(), 95 * DAY);
}

#[test]
fn a_clock_that_is_set_back_prolongs_no_pause() {
    let mut schedule = fresh();
    // The clock was ten years ahead.
    let at = schedule.failed(OrderFault::Unreachable, Some(Duration::from_secs(600)), 3_650 * DAY, 1.0);
    assert_eq!(at, 3_650 * DAY + 600);
    assert_eq!(schedule.next(100), Action::Wait(700), "Retry-After counts on");
    assert_eq!(schedule.next(700), Action::Order { staging: false });
    // A deviation of some seconds is not a clock change.
    schedule.failed(OrderFault::Unreachable, None, 1_000, 1.0);
    assert_eq!(schedule.next(990), Action::Wait(1_120));
}

#[test]
fn staging_is_not_the_last_word() {
    let mut schedule = fresh();
    let mut now = 0;
    let asked: Vec<bool> = (0..9)
        .map(|_| {
            now = schedule.failed(OrderFault::Refused, None, now, 1.0);
            schedule.next(now) == Action::Order { staging: true }
        })
        .collect();
    assert_eq!(asked, [true, true, true, false, true, true, true, false, true]);
    let mut away = fresh();
    away.failed(OrderFault::Refused, None, 0, 1.0);
    away.failed(OrderFault::Unreachable, None, 60, 1.0);
    assert_eq!(away.next(DAY), Action::Order { staging: false }, "staging is away");
}

proptest! {
    /// Random operations: no order is placed early or during a pause, and orders never stop for good.
    #[test]
    fn orders_come_when_due_and_never_stop(
        steps in proptest::collection::vec((0..6_u8, 0_i64..100 * DAY, any::<f64>(), 0_u64..1_000_000), 1..60),
    ) {
        let mut schedule = fresh();
        let mut now = 0;
        for (step, length, random, seconds) in steps {
            match step {
                0 => schedule.have(Lifetime { from: now, until: now + length }, now, random),
                1 => {
                    let asked = Duration::from_secs(seconds);
                    let at = schedule.failed(OrderFault::Refused, Some(asked), now, random);
                    prop_assert!(at >= now + (seconds as i64).min(7 * DAY), "Retry-After counts");
                    prop_assert!(at >= now + 30 && at <= now + 7 * DAY);
                    let due = matches!(schedule.next(now), Action::Order { .. });
                    prop_assert!(!due, "an order before the pause has passed");
                }
                2 => schedule.window(Some(Window { from: now, until: now + length }), None, now, random),
                3 => schedule.issued(Lifetime { from: now, until: now + length }, now, random),
                4 => now -= length,
                _ => schedule.lost(),
            }
            match schedule.next(now) {
                Action::Wait(until) => {
                    prop_assert!(until > now);
                    now = until;
                }
                Action::AskWindow => schedule.window(None, Some(Duration::from_secs(seconds)), now, random),
                Action::Order { .. } => prop_assert!(schedule.next_order() <= now),
            }
        }
    }

    #[test]
    fn renewals_are_within_the_lifetime(from in 0_i64..4_000_000_000, length in 60_i64..400 * DAY, random in any::<f64>()) {
        let mut schedule = fresh();
        schedule.have(Lifetime { from, until: from + length }, from, random);
        let due = schedule.next_order();
        prop_assert!(due >= from + length / 2 && due < from + length, "{due}");
    }
}
