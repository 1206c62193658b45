//! Decides when a certificate is renewed, and when a failed order is repeated. Pure: clock and random numbers
//! are passed in.
//!
//! Contract:
//! 1. If the CA has a renewal window (ARI, RFC 9773), the certificate is renewed at a random moment in it, or
//!    at once if that moment has passed. The moment changes only when the window changes. A window that ends
//!    with the certificate or later is cut: renewal comes at the latest a twentieth of the lifetime before
//!    the expiry.
//! 2. Without a window, renewal comes at two thirds of the lifetime (at half of it for lifetimes under ten
//!    days), plus a random delay of up to a twentieth, so that many servers do not order at once. If every
//!    certificate is already due when issued (windows in the past, a clock that is ahead), the first renewal
//!    comes after the first pause, and each further one after twice the time.
//! 3. After failures, the pause doubles from the first pause (by default one minute) up to a day. The actual
//!    wait is random, between half and all of it. A `Retry-After` of the CA can lengthen the pause, up to a
//!    week, but never shortens it.
//! 4. A pause never exceeds a quarter of the certificate's remaining lifetime, unless the CA asks for more.
//! 5. After the CA has refused an order, the next attempt goes to the CA's staging directory, if one is
//!    known. Production follows at once after a success there, after a pause if staging does not respond, and
//!    in any case after [`STAGING_REFUSALS`] refusals: a refusal by staging is not final.
//! 6. A clock change moves moments but does not lengthen pauses. If the clock is set back, moments are computed again.

use std::time::Duration;

/// Seconds since 1970.
pub type Moment = i64;

/// Shorter lifetimes are renewed at half their length. In seconds.
const SHORT_LIVED: i64 = 10 * 86_400;
/// The longest pause without `Retry-After`, in seconds.
const LONGEST_PAUSE: Duration = Duration::from_secs(86_400);
/// The longest pause that a CA can ask for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(7 * 86_400);
/// The age at which the CA's window is read again, unless the CA says otherwise. In seconds.
const WINDOW_AGE: i64 = 6 * 3_600;
/// Consecutive refusals by staging after which production is tried.
const STAGING_REFUSALS: u32 = 3;
/// A clock that was set back by less than this (in seconds) is ignored: that is normal adjustment.
const SET_BACK: i64 = 60;
/// The limits for the age that a CA can ask for, in seconds.
const WINDOW_AGES: (i64, i64) = (600, 86_400);

/// The validity of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub from: Moment,
    pub until: Moment,
}

/// The CA's suggestion for a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from: Moment,
    pub until: Moment,
}

/// The next step for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing before this moment.
    Wait(Moment),
    /// Ask the CA for its renewal window.
    AskWindow,
    Order {
        /// Order from the staging directory, to test whether an order would succeed.
        staging: bool,
    },
}

/// The kind of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderFault {
    /// The CA refused the order or could not verify a name. A retry counts against the CA's rate limits.
    Refused,
    /// The CA did not respond, or not correctly. A retry costs nothing.
    Unreachable,
}

/// The state of one certificate.
#[derive(Clone, Debug)]
pub struct RenewalSchedule {
    /// Whether the CA has a staging directory.
    has_staging: bool,
    /// The first pause after a failure, in seconds.
    first_pause: Duration,
    have: Option<Lifetime>,
    renew_at: Moment,
    /// Consecutive renewals before their time, and the earliest moment of the next.
    early: u32,
    earliest: Moment,
    window: Option<Window>,
    /// When to read the window next; `None` if the CA has none.
    ask_at: Option<Moment>,
    failures: u32,
    retry_at: Option<Moment>,
    staging: bool,
    /// Consecutive refusals by staging.
    staging_refusals: u32,
    /// The latest moment of a decision.
    decided: Moment,
}

impl RenewalSchedule {
    /// Creates the initial state: an order is due at once.
    pub fn new(has_staging: bool, first_pause: Duration) -> RenewalSchedule {
        RenewalSchedule {
            has_staging,
            first_pause: first_pause.max(Duration::from_secs(1)),
            have: None,
            renew_at: 0,
            early: 0,
            earliest: Moment::MIN,
            window: None,
            ask_at: None,
            failures: 0,
            retry_at: None,
            staging: false,
            staging_refusals: 0,
            decided: Moment::MIN,
        }
    }

    /// Records a certificate that was stored, or that another machine has obtained.
    pub fn have(&mut self, lifetime: Lifetime, now: Moment, random: f64) {
        let early = self.have.is_some_and(|before| now < by_lifetime(before, 0.0));
        self.begin(lifetime, early, now, random);
    }

    /// Records a certificate that the CA has issued.
    pub fn issued(&mut self, lifetime: Lifetime, now: Moment, random: f64) {
        let before = self.have.is_some_and(|before| now < by_lifetime(before, 0.0));
        let due_already = by_lifetime(lifetime, 0.0) <= now;
        self.begin(lifetime, before || due_already, now, random);
        if due_already {
            self.renew_at = self.earliest;
        }
    }

    fn begin(&mut self, lifetime: Lifetime, early: bool, now: Moment, random: f64) {
        self.early = if early { self.early.saturating_add(1) } else { 0 };
        let spacing = net::backoff(self.first_pause, self.early, LONGEST_PAUSE);
        self.earliest = now.saturating_add(spacing.as_secs() as i64);
        self.have = Some(lifetime);
        self.window = None;
        self.ask_at = Some(Moment::MIN);
        self.renew_at = by_lifetime(lifetime, random);
        (self.failures, self.retry_at) = (0, None);
        (self.staging, self.staging_refusals) = (false, 0);
        self.decided = now;
    }

    /// Records that the certificate is unusable. Another one is due at once, unless a failure delays it.
    pub fn lost(&mut self) {
        (self.have, self.window, self.ask_at) = (None, None, None);
    }

    /// Records the CA's window; `None` if there is none or it could not be read. `again`: the time after
    /// which the CA allows the next request.
    pub fn window(&mut self, window: Option<Window>, again: Option<Duration>, now: Moment, random: f64) {
        let age = again.map_or(WINDOW_AGE, |again| {
            i64::try_from(again.as_secs()).unwrap_or(WINDOW_AGES.1).clamp(WINDOW_AGES.0, WINDOW_AGES.1)
        });
        self.ask_at = Some(now.saturating_add(age));
        self.decided = now;
        let usable = window.filter(|window| window.from < window.until);
        if let Some(window) = usable
            && self.window != usable
        {
            let length = (window.until - window.from) as f64;
            let moment = window.from.saturating_add((length * unit(random)) as i64);
            let last = self.have.map_or(Moment::MAX, last_moment);
            self.renew_at = moment.min(last).max(self.earliest);
            self.window = usable;
        }
    }

    /// Records that the CA publishes no windows. It is not asked again for this certificate.
    pub fn no_windows(&mut self) {
        self.ask_at = None;
    }

    /// Records a success at the staging directory: production is due at once.
    pub fn staging_succeeded(&mut self) {
        (self.staging, self.staging_refusals, self.retry_at) = (false, 0, None);
    }

    /// Records a failed order. Returns the time of the retry.
    pub fn failed(
        &mut self,
        fault: OrderFault,
        retry_after: Option<Duration>,
        now: Moment,
        random: f64,
    ) -> Moment {
        self.failures = self.failures.saturating_add(1);
        self.decided = now;
        match fault {
            OrderFault::Refused if self.staging && self.staging_refusals + 1 >= STAGING_REFUSALS => {
                (self.staging, self.staging_refusals) = (false, 0);
            }
            OrderFault::Refused => {
                self.staging_refusals += u32::from(self.staging);
                self.staging = self.has_staging;
            }
            // The staging directory did not respond, so production is tried.
            OrderFault::Unreachable => self.staging = false,
        }
        let pause = self.pause(random, now).ceil();
        let asked = retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER).as_secs_f64().ceil();
        let at = now.saturating_add(pause.max(asked) as i64);
        self.retry_at = Some(at);
        at
    }

    /// Returns the pause after the failures so far, in seconds.
    fn pause(&self, random: f64, now: Moment) -> f64 {
        let longest = LONGEST_PAUSE.max(self.first_pause);
        let whole = net::backoff(self.first_pause, self.failures.saturating_sub(1), longest).as_secs_f64();
        let left = self.have.map_or(0, |have| have.until.saturating_sub(now));
        let whole = if left > 0 { whole.min(left as f64 / 4.0) } else { whole };
        (whole / 2.0 + whole / 2.0 * unit(random)).max(self.first_pause.as_secs_f64() / 2.0)
    }

    /// Returns the step to take at `now`.
    pub fn next(&mut self, now: Moment) -> Action {
        if now.saturating_add(SET_BACK) < self.decided {
            self.clock_was_set_back(now);
        }
        let order = self.next_order();
        if order <= now {
            return Action::Order { staging: self.staging };
        }
        match self.ask_at {
            Some(ask) if ask <= now => Action::AskWindow,
            Some(ask) => Action::Wait(ask.min(order)),
            None => Action::Wait(order),
        }
    }

    /// Keeps the lengths of pauses, and computes the moments again that follow from the certificate.
    fn clock_was_set_back(&mut self, now: Moment) {
        let by = self.decided.saturating_sub(now);
        self.decided = now;
        self.retry_at = self.retry_at.map(|at| at.saturating_sub(by));
        self.earliest = self.earliest.saturating_sub(by);
        self.window = None;
        self.ask_at = self.ask_at.map(|_| Moment::MIN);
        if let Some(have) = self.have {
            let due = by_lifetime(have, 0.0);
            self.renew_at = if due <= now { due.max(self.earliest) } else { due };
        }
    }

    /// Returns when the next order is due. In the past if it is due now.
    pub fn next_order(&self) -> Moment {
        let due = self.have.map_or(Moment::MIN, |_| self.renew_at);
        self.retry_at.map_or(due, |retry| due.max(retry))
    }

    /// Returns the failures since the last success.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

/// Returns the renewal moment that follows from the lifetime alone.
fn by_lifetime(lifetime: Lifetime, random: f64) -> Moment {
    let length = lifetime.until.saturating_sub(lifetime.from).max(0);
    let part = if length < SHORT_LIVED { 0.5 } else { 2.0 / 3.0 };
    let later = length as f64 / 20.0 * unit(random);
    lifetime.from.saturating_add((length as f64 * part + later) as i64)
}

/// Returns the moment after which windows are ignored.
fn last_moment(lifetime: Lifetime) -> Moment {
    let length = lifetime.until.saturating_sub(lifetime.from).max(0);
    lifetime.until.saturating_sub(length / 20)
}

/// Limits a random number to 0..=1; NaN and infinity become 0.5.
fn unit(random: f64) -> f64 {
    if random.is_finite() { random.clamp(0.0, 1.0) } else { 0.5 }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
