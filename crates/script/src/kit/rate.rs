//! How much a client may do in how much time: three ways to count. Pure: the clock is an argument.
//!
//! Contract: what is refused is not counted, so a client that keeps asking is let in again as soon as one that waits. Times are
//! nanoseconds of any clock that never goes back.

/// A way to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// So many in each period; all at its end and all at the next one's begin are allowed.
    FixedWindow,
    /// So many in the last period, estimated from two counts: what was before is taken to have come evenly.
    SlidingWindow,
    /// A bucket of `burst` tokens that fills evenly.
    TokenBucket,
}

impl Rule {
    /// Its name in Ruby.
    pub(crate) fn named(name: &[u8]) -> Option<Rule> {
        match name {
            b"fixed_window" => Some(Rule::FixedWindow),
            b"sliding_window" => Some(Rule::SlidingWindow),
            b"token_bucket" => Some(Rule::TokenBucket),
            _ => None,
        }
    }
}

/// What is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) rule: Rule,
    /// In a period; at least 1.
    pub(crate) count: u32,
    /// Nanoseconds; at least `count`.
    pub(crate) period: u64,
    /// Tokens in a full bucket; at least 1.
    pub(crate) burst: u32,
}

/// What is known of a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Count {
    /// Begin of the window; for a bucket the moment at which it will be full.
    mark: u64,
    now: u32,
    before: u32,
}

/// What comes of asking; times are nanoseconds from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) allowed: bool,
    /// How many more would be allowed now.
    pub(crate) remaining: u32,
    /// When everything is allowed again.
    pub(crate) reset: u64,
    /// When as much as was refused will be allowed; 0 when it is.
    pub(crate) retry: u64,
}

impl Limit {
    /// Counts `cost` at the time `now` if it is allowed. A cost above the limit never is.
    pub(crate) fn ask(&self, count: &mut Count, cost: u32, now: u64) -> Verdict {
        match self.rule {
            Rule::FixedWindow => self.fixed(count, cost, now),
            Rule::SlidingWindow => self.sliding(count, cost, now),
            Rule::TokenBucket => self.bucket(count, cost, now),
        }
    }

    /// How long a count has to be kept after the last question.
    pub(crate) fn memory(&self) -> u64 {
        match self.rule {
            Rule::FixedWindow => self.period,
            Rule::SlidingWindow => self.period.saturating_mul(2),
            Rule::TokenBucket => self.token().saturating_mul(u64::from(self.burst)),
        }
    }

    fn fixed(&self, count: &mut Count, cost: u32, now: u64) -> Verdict {
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
        Verdict { allowed, remaining, reset, retry: if allowed { 0 } else { reset } }
    }

    fn sliding(&self, count: &mut Count, cost: u32, now: u64) -> Verdict {
        let begin = now - now % self.period;
        if count.mark != begin {
            let follows = count.mark + self.period == begin;
            *count = Count { mark: begin, now: 0, before: if follows { count.now } else { 0 } };
        }
        let passed = now - begin;
        // What of the window before still counts, rounded up: never more than `count` in a period.
        let old = self.part(count.before, self.period - passed);
        let free = self.count.saturating_sub(old).saturating_sub(count.now);
        let allowed = cost <= free;
        if allowed {
            count.now += cost;
        }
        let reset = self.period - passed + if count.now > 0 { self.period } else { 0 };
        let retry = if allowed { 0 } else { self.until_free(count, cost, passed) };
        Verdict { allowed, remaining: if allowed { free - cost } else { free }, reset, retry }
    }

    /// `number * rest / period`, rounded up.
    fn part(&self, number: u32, rest: u64) -> u32 {
        (u128::from(number) * u128::from(rest)).div_ceil(u128::from(self.period)) as u32
    }

    /// When a sliding window allows `cost`, if nothing more comes.
    fn until_free(&self, count: &Count, cost: u32, passed: u64) -> u64 {
        // So many nanoseconds before the end of a window no more than `room` of `old` count.
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

    /// The time in which one token comes.
    fn token(&self) -> u64 {
        self.period / u64::from(self.count)
    }

    fn bucket(&self, count: &mut Count, cost: u32, now: u64) -> Verdict {
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
        Verdict { allowed, remaining: remaining as u32, reset: lacking, retry }
    }
}

#[cfg(test)]
#[path = "rate_tests.rs"]
mod tests;
