//! Decides how a kept response may be used (RFC 9111 section 4, RFC 5861). Pure.

use crate::directives::RequestDirectives;
use crate::policy::Policy;
use crate::stored::Stored;
use std::time::{Duration, Instant};

/// The use of a kept response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// Send it.
    Send,
    /// Send the response, and renew it at the same time (`stale-while-revalidate`).
    SendAndRenew,
    /// Ask the origin first.
    Validate,
}

/// Decides for a request that arrives at `now`.
pub(crate) fn judge(stored: &Stored, request: &RequestDirectives, policy: &Policy, now: Instant) -> Reuse {
    let age = stored.age(now);
    if stored.rules.no_cache
        || request.no_cache
        || request.max_age.is_some_and(|most| age > Duration::from_secs(most))
    {
        return Reuse::Validate;
    }
    let least = Duration::from_secs(request.min_fresh.unwrap_or(0));
    if let Some(left) = stored.lifetime.checked_sub(age).filter(|left| !left.is_zero()) {
        return if left >= least { Reuse::Send } else { Reuse::Validate };
    }
    if !least.is_zero() {
        return Reuse::Validate;
    }
    let stale = age.saturating_sub(stored.lifetime);
    let allowed = |said: Option<u64>, default: Duration| within(stored, stale, said, default);
    if allowed(stored.rules.stale_while_revalidate, policy.stale_while_revalidate) {
        return Reuse::SendAndRenew;
    }
    match request.max_stale {
        Some(most) if stored.rules.may_be_stale && stale <= Duration::from_secs(most) => Reuse::Send,
        _ => Reuse::Validate,
    }
}

/// Returns whether a stale response may be sent because the origin has failed (`stale-if-error`, RFC 5861 section 4).
pub(crate) fn on_error(stored: &Stored, policy: &Policy, now: Instant) -> bool {
    let age = stored.age(now);
    let stale = age.saturating_sub(stored.lifetime);
    !stored.rules.no_cache
        && (age < stored.lifetime
            || within(stored, stale, stored.rules.stale_if_error, policy.stale_if_error))
}

/// Returns whether a response may be stale for this long. The response's own `stale-*` directives override `s-maxage`,
/// which otherwise forbids it like `proxy-revalidate` (RFC 9111 section 5.2.2.10).
fn within(stored: &Stored, stale: Duration, said: Option<u64>, default: Duration) -> bool {
    if stored.rules.must_revalidate {
        return false;
    }
    match said {
        Some(seconds) => stale < Duration::from_secs(seconds),
        None => stored.rules.may_be_stale && stale < default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::Rules;
    use proptest::prelude::*;

    fn stored(lifetime: u64, rules: Rules) -> Stored {
        Stored::for_tests(Duration::from_secs(lifetime), rules)
    }

    const PLAIN: Rules = Rules {
        no_cache: false,
        must_revalidate: false,
        may_be_stale: true,
        stale_while_revalidate: None,
        stale_if_error: None,
    };

    fn at(stored: &Stored, seconds: u64, request: RequestDirectives, policy: &Policy) -> Reuse {
        judge(stored, &request, policy, stored.arrived + Duration::from_secs(seconds))
    }

    #[test]
    fn fresh_then_renewed_then_validated() {
        let stored = stored(10, Rules { stale_while_revalidate: Some(5), ..PLAIN });
        let of = |seconds| at(&stored, seconds, RequestDirectives::default(), &Policy::default());
        assert_eq!(
            [0, 9, 10, 14, 15, 99].map(of),
            [
                Reuse::Send,
                Reuse::Send,
                Reuse::SendAndRenew,
                Reuse::SendAndRenew,
                Reuse::Validate,
                Reuse::Validate
            ]
        );
    }

    #[test]
    fn defaults_apply_where_the_response_says_nothing_and_forbids_nothing() {
        let policy = Policy {
            stale_while_revalidate: Duration::from_secs(5),
            stale_if_error: Duration::from_secs(60),
            ..Policy::default()
        };
        let of = |rules, seconds| at(&stored(10, rules), seconds, RequestDirectives::default(), &policy);
        assert_eq!(of(PLAIN, 12), Reuse::SendAndRenew);
        for rules in [
            Rules { must_revalidate: true, ..PLAIN },
            Rules { may_be_stale: false, ..PLAIN },
            Rules { stale_while_revalidate: Some(0), ..PLAIN },
        ] {
            assert_eq!(of(rules, 12), Reuse::Validate, "{rules:?}");
        }
        let failing = |rules, seconds| {
            let stored = stored(10, rules);
            on_error(&stored, &policy, stored.arrived + Duration::from_secs(seconds))
        };
        assert!(failing(PLAIN, 50) && !failing(PLAIN, 80));
        assert!(
            !failing(Rules { must_revalidate: true, ..PLAIN }, 20)
                && !failing(Rules { no_cache: true, ..PLAIN }, 1)
        );
    }

    #[test]
    fn clients_may_ask_for_more() {
        let stored = stored(10, PLAIN);
        let of = |seconds, request| at(&stored, seconds, request, &Policy::default());
        let none = RequestDirectives::default();
        assert_eq!(of(1, RequestDirectives { no_cache: true, ..none }), Reuse::Validate);
        assert_eq!(of(5, RequestDirectives { max_age: Some(3), ..none }), Reuse::Validate);
        assert_eq!(of(5, RequestDirectives { min_fresh: Some(6), ..none }), Reuse::Validate);
        assert_eq!(of(12, RequestDirectives { max_stale: Some(5), ..none }), Reuse::Send);
        assert_eq!(of(20, RequestDirectives { max_stale: Some(5), ..none }), Reuse::Validate);
        assert_eq!(of(2000, RequestDirectives { max_stale: Some(u64::MAX), ..none }), Reuse::Send);
    }

    proptest! {
        /// A response that must be validated is never sent stale, whatever the numbers are.
        #[test]
        fn must_revalidate_is_kept(lifetime in 0_u64..100, age in 0_u64..1000, said: Option<u8>, default in 0_u64..1000, max_stale: Option<u64>) {
            let rules = Rules { must_revalidate: true, may_be_stale: false, stale_while_revalidate: said.map(u64::from), stale_if_error: said.map(u64::from), ..PLAIN };
            let policy = Policy { stale_while_revalidate: Duration::from_secs(default), stale_if_error: Duration::from_secs(default), ..Policy::default() };
            let stored = stored(lifetime, rules);
            let judged = at(&stored, age, RequestDirectives { max_stale, ..RequestDirectives::default() }, &policy);
            prop_assert_eq!(judged == Reuse::Send, age < lifetime);
            prop_assert!(judged != Reuse::SendAndRenew);
        }
    }
}
