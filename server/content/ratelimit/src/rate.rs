//! Implements three rate-limit algorithms. No I/O: the clock is an argument.
//!
//! Contract: refused requests are not counted, so a client that keeps sending is allowed again as soon as one
//! that waits. Times are nanoseconds of any monotonic clock.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A fixed number per period; it may be used at the end of one and again at the start of the next.
    FixedWindow,
    /// A number in the last period, estimated from two counters: requests of the previous one are assumed to
    /// be evenly distributed.
    SlidingWindow,
    /// A bucket of `burst` tokens that is filled evenly.
    TokenBucket,
}

impl Rule {
    /// Returns the rule of a name in Ruby.
    pub fn named(name: &[u8]) -> Option<Rule> {
        match name {
            b"fixed_window" => Some(Rule::FixedWindow),
            b"sliding_window" => Some(Rule::SlidingWindow),
            b"token_bucket" => Some(Rule::TokenBucket),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub rule: Rule,
    /// Requests per period; at least 1.
    pub count: u32,
    /// In nanoseconds; at least `count`.
    pub period: u64,
    /// Tokens in a full bucket; at least 1.
    pub burst: u32,
}

/// The state of a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// The start of the window; for a bucket, the time at which it will be full.
    mark: u64,
    now: u32,
    before: u32,
}

/// The result of a check; times are nanoseconds from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateDecision {
    /// The cost was counted.
    pub allowed: bool,
    /// How many more requests would be allowed now.
    pub remaining: u32,
    /// When the full limit is available again.
    pub reset: u64,
    /// When the refused cost will be allowed; 0 if it was not refused.
    pub retry: u64,
}

impl Limit {
    /// Counts `cost` at the time `now` if it is allowed. A cost above the limit is never allowed.
    pub fn check(&self, count: &mut Count, cost: u32, now: u64) -> RateDecision {
        match self.rule {
            Rule::FixedWindow => self.fixed(count, cost, now),
            Rule::SlidingWindow => self.sliding(count, cost, now),
            Rule::TokenBucket => self.bucket(count, cost, now),
        }
    }

    /// Returns how long a state has to be kept after the last check, in nanoseconds.
    pub fn memory(&self) -> u64 {
        match self.rule {
            Rule::FixedWindow => self.period,
            Rule::SlidingWindow => self.period.saturating_mul(2),
            Rule::TokenBucket => self.token().saturating_mul(u64::from(self.burst)),
        }
    }

    fn fixed(&self, count: &mut Count, cost: u32, now: u64) -> RateDecision {
        let begin = now - now % self.period;
        if count.mark != begin {
            *count = Count { mark: begin, now: 0, before: 0 };
        }
        let allowed = cost <= self.count.saturating_sub(count.now);
        if allowed {
            count.now += cost;
        }
        let reset = begin + self.period - now;
        let remaining = self.count.saturating_sub(count.now);
        RateDecision { allowed, remaining, reset, retry: if allowed { 0 } else { reset } }
    }

    fn sliding(&self, count: &mut Count, cost: u32, now: u64) -> RateDecision {
        let begin = now - now % self.period;
        if count.mark != begin {
            let follows = count.mark + self.period == begin;
            *count = Count { mark: begin, now: 0, before: if follows { count.now } else { 0 } };
        }
        let passed = now - begin;
        // The part of the previous window that still counts, rounded up: never more than `count` in a period.
        let old = self.part(count.before, self.period - passed);
        let free = self.count.saturating_sub(old).saturating_sub(count.now);
        let allowed = cost <= free;
        if allowed {
            count.now += cost;
        }
        let reset = self.period - passed + if count.now > 0 { self.period } else { 0 };
        let retry = if allowed { 0 } else { self.until_free(count, cost, passed) };
        RateDecision { allowed, remaining: if allowed { free - cost } else { free }, reset, retry }
    }

    /// Returns `number * rest / period`, rounded up.
    fn part(&self, number: u32, rest: u64) -> u32 {
        (u128::from(number) * u128::from(rest)).div_ceil(u128::from(self.period)) as u32
    }

    /// Returns when a sliding window allows `cost` if there are no more requests.
    fn until_free(&self, count: &Count, cost: u32, passed: u64) -> u64 {
        // This many nanoseconds before the end of a window, only `room` of `old` counts.
        let rest = |old: u32, room: u32| {
            (u128::from(room) * u128::from(self.period)).checked_div(u128::from(old)).unwrap_or(u128::MAX)
                as u64
        };
        let to_end = self.period - passed;
        match self.count.checked_sub(cost) {
            Some(room) if room >= count.now => to_end.saturating_sub(rest(count.before, room - count.now)),
            Some(room) => to_end + self.period.saturating_sub(rest(count.now, room)),
            None => to_end + self.period,
        }
    }

    /// Returns the time in which one token is added.
    fn token(&self) -> u64 {
        self.period / u64::from(self.count)
    }

    fn bucket(&self, count: &mut Count, cost: u32, now: u64) -> RateDecision {
        let (token, whole) = (self.token(), self.memory());
        let full = count.mark.max(now);
        let after = full.saturating_add(token.saturating_mul(u64::from(cost)));
        let allowed = after - now <= whole;
        if allowed {
            count.mark = after;
        }
        let lacking = count.mark.max(now) - now;
        let remaining = (whole - lacking.min(whole)) / token;
        let retry = if allowed { 0 } else { after - now - whole };
        RateDecision { allowed, remaining: remaining as u32, reset: lacking, retry }
    }
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;
