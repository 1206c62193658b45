//! Tests each rule, and properties of all rules for any sequence of requests.

use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn limit(rule: Rule, count: u32, burst: u32) -> Limit {
    Limit { rule, count, period: 10 * SECOND, burst }
}

/// Returns which of the requests at these times (seconds) are allowed.
fn answers(limit: Limit, times: &[u64]) -> Vec<bool> {
    let mut count = Count::default();
    times.iter().map(|at| limit.check(&mut count, 1, 1_000 * SECOND + at * SECOND).allowed).collect()
}

#[test]
fn a_fixed_window_begins_anew() {
    let limit = limit(Rule::FixedWindow, 2, 2);
    assert_eq!(answers(limit, &[8, 9, 9, 10, 11, 12, 20]), [true, true, false, true, true, false, true]);
    let mut count = Count::default();
    let first = limit.check(&mut count, 2, 3 * SECOND);
    assert_eq!(first, RateDecision { allowed: true, remaining: 0, reset: 7 * SECOND, retry: 0 });
    assert_eq!(limit.check(&mut count, 1, 4 * SECOND).retry, 6 * SECOND);
    assert!(!limit.check(&mut count, 3, 50 * SECOND).allowed, "more than there ever is");
}

#[test]
fn a_sliding_window_remembers_the_one_before() {
    let limit = limit(Rule::SlidingWindow, 10, 10);
    let mut count = Count::default();
    assert!(limit.check(&mut count, 10, 9 * SECOND).allowed);
    let refused = limit.check(&mut count, 5, 12 * SECOND);
    assert_eq!((refused.allowed, refused.remaining, refused.retry), (false, 2, 3 * SECOND));
    assert!(!limit.check(&mut count, 5, 15 * SECOND - 1).allowed);
    assert!(limit.check(&mut count, 5, 15 * SECOND).allowed);
    assert!(limit.check(&mut count, 10, 40 * SECOND).allowed, "long ago does not count");
}

#[test]
fn a_bucket_allows_its_burst_and_then_what_flows_in() {
    let limit = limit(Rule::TokenBucket, 10, 3);
    assert_eq!(
        answers(limit, &[0, 0, 0, 0, 1, 1, 3, 3, 3]),
        [true, true, true, false, true, false, true, true, false]
    );
    let mut count = Count::default();
    let verdict = limit.check(&mut count, 3, 5 * SECOND);
    assert_eq!(verdict, RateDecision { allowed: true, remaining: 0, reset: 3 * SECOND, retry: 0 });
    assert_eq!(limit.check(&mut count, 2, 5 * SECOND).retry, 2 * SECOND);
}

fn any_limit() -> impl Strategy<Value = Limit> {
    let rule = prop_oneof![Just(Rule::FixedWindow), Just(Rule::SlidingWindow), Just(Rule::TokenBucket)];
    (rule, 1u32..50, 1u64..100, 1u32..50).prop_map(|(rule, count, period, burst)| Limit {
        rule,
        count,
        period: period * SECOND / 10,
        burst: if rule == Rule::TokenBucket { burst } else { count },
    })
}

proptest! {
    #[test]
    fn never_more_than_allowed(limit in any_limit(), steps in prop::collection::vec((0u64..SECOND, 1u32..4), 1..200)) {
        let (mut count, mut now, mut granted) = (Count::default(), SECOND, Vec::new());
        for (step, cost) in steps {
            now += step;
            if limit.check(&mut count, cost, now).allowed {
                granted.push((now, cost));
            }
        }
        // Two windows touch any period, except that a bucket may be full once and fill for a period.
        let most = match limit.rule {
            Rule::TokenBucket => u64::from(limit.burst) + u64::from(limit.count) + 1,
            Rule::FixedWindow | Rule::SlidingWindow => 2 * u64::from(limit.count),
        };
        for (index, (from, _)) in granted.iter().enumerate() {
            let within = granted[index..].iter().take_while(|(at, _)| at - from < limit.period);
            prop_assert!(within.map(|(_, cost)| u64::from(*cost)).sum::<u64>() <= most);
        }
    }

    #[test]
    fn who_waits_as_told_is_let_in(limit in any_limit(), steps in prop::collection::vec((0u64..SECOND, 1u32..4), 1..100)) {
        let (mut count, mut now) = (Count::default(), SECOND);
        for (step, cost) in steps {
            now += step;
            let verdict = limit.check(&mut count, cost, now);
            prop_assert_eq!(verdict.allowed, verdict.retry == 0);
            if !verdict.allowed && cost <= limit.burst.min(limit.count) {
                let mut later = count;
                // One nanosecond for rounding.
                prop_assert!(limit.check(&mut later, cost, now + verdict.retry + 1).allowed, "{:?} {:?}", count, verdict);
            }
        }
    }

    #[test]
    fn what_remains_can_be_had(limit in any_limit(), steps in prop::collection::vec(0u64..SECOND, 1..100)) {
        let (mut count, mut now) = (Count::default(), SECOND);
        for step in steps {
            now += step;
            let verdict = limit.check(&mut count, 1, now);
            let mut more = count;
            prop_assert!(verdict.remaining == 0 || limit.check(&mut more, verdict.remaining, now).allowed);
            let mut too_much = count;
            prop_assert!(!limit.check(&mut too_much, verdict.remaining + 1, now).allowed);
        }
    }
}
