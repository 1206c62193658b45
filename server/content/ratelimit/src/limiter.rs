//! Applies the limits to requests on one front thread: [`Limiter`].

use crate::ledger::LimiterState;
use crate::rate::Limit;
use crate::rules::{Judged, is_below};
use crate::store::RedisCounters;
use handler::path::Path;
use handler::{After, Failure, Fault, Request, Response};
use settings::{RateLimit, Settings, TrustedProxies};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How often a server reports its presence.
const BEAT: Duration = Duration::from_secs(5);
/// When a silent server is considered gone: after three missed beats.
const GONE: Duration = Duration::from_secs(16);
/// How often a lost Redis is probed.
const PROBE: Duration = Duration::from_millis(500);
/// Successful probes in a row after which Redis is back; a single one may be an accident.
const BACK: u32 = 2;

/// The response to a refused request, once that is known. Boxed: limits are rare, and many requests wait.
pub type Judgement<'a> = Pin<Box<dyn Future<Output = Option<Box<Response>>> + 'a>>;

/// The limits, on one front thread.
pub struct Limiter {
    rules: RefCell<Rc<[Judged]>>,
    trusted: TrustedProxies,
    ledger: Arc<LimiterState>,
    store: Option<RedisCounters>,
    /// Redis does not answer this thread.
    away: Cell<bool>,
    /// Something changed for [`Limiter::keep_in_touch`].
    changed: Notify,
}

impl Limiter {
    /// Creates a limiter with the limits of `settings`.
    ///
    /// # Errors
    /// `shared.redis` is not the URL of a Redis; the text gives the reason.
    pub fn new(settings: &Settings, ledger: Arc<LimiterState>) -> Result<Rc<Limiter>, String> {
        let limiter = Limiter {
            rules: RefCell::new(Rc::new([])),
            trusted: settings.rack.trusted_proxies.clone(),
            ledger,
            store: store(settings)?,
            away: Cell::new(false),
            changed: Notify::new(),
        };
        limiter.replace(settings);
        Ok(Rc::new(limiter))
    }

    /// Applies the limits of new settings. An unchanged limit keeps its counts.
    pub fn replace(&self, settings: &Settings) {
        let rules = settings.rate_limits.iter().map(|limit| Judged::new(limit, &self.ledger)).collect();
        self.rules.replace(rules);
        self.changed.notify_one();
    }

    /// Returns the response to a request that exceeds a limit. Returns `None` at once for requests that no
    /// limit applies to.
    pub fn judge<'a>(&'a self, request: &'a Request) -> Option<Judgement<'a>> {
        let rules = self.rules.borrow();
        if rules.is_empty() {
            return None;
        }
        let path = Path::new(request.path());
        let concerns = |rule: &Judged| rule.concerns(request.method(), &path);
        let first = rules.iter().position(concerns)?;
        let rules = rules.clone();
        Some(Box::pin(async move {
            for rule in &rules[first..] {
                if !rule.concerns(request.method(), &Path::new(request.path())) {
                    continue;
                }
                let Some(key) = rule.key(request, &self.trusted) else { continue };
                let wait = self.count(rule, &key).await;
                if !wait.is_zero() && !rule.written.dry_run {
                    return Some(Box::new(refusal(&rule.written.name, wait)));
                }
            }
            None
        }))
    }

    /// Counts a request. Returns zero if it is admitted, else how long it has to wait.
    async fn count(&self, rule: &Judged, key: &str) -> Duration {
        let mut alone = false;
        let wait = match self.store.as_ref().filter(|_| rule.written.shared) {
            None => self.ledger.count(&rule.limit, key),
            Some(store) => match self.ask(store, rule, key).await {
                Some(wait) => wait,
                None => {
                    alone = true;
                    self.ledger.count(&share(&rule.limit, self.ledger.servers()), key)
                }
            },
        };
        rule.tally.add(wait.is_zero(), alone);
        wait
    }

    /// Asks Redis about a request. Returns how long it has to wait; `None` while Redis is away.
    async fn ask(&self, store: &RedisCounters, rule: &Judged, key: &str) -> Option<Duration> {
        if self.away.get() {
            return None;
        }
        let known = self.ledger.refused(key);
        if !known.is_zero() {
            return Some(known);
        }
        match store.count(&rule.limit, key).await {
            Ok(wait) => {
                if !wait.is_zero() {
                    self.ledger.refuse(key, wait);
                }
                Some(wait)
            }
            Err(why) => {
                self.lost(store, &why);
                None
            }
        }
    }

    fn lost(&self, store: &RedisCounters, why: &str) {
        if !self.away.replace(true) {
            self.ledger.lost(&store.address(), why);
            self.changed.notify_one();
        }
    }

    /// Keeps the connection to Redis, reports this server's presence, and notices when Redis is back. Never
    /// ends; does nothing while no limit is shared.
    pub async fn keep_in_touch(self: Rc<Self>) {
        let mut answered = 0;
        loop {
            let shares = self.rules.borrow().iter().any(|rule| rule.written.shared);
            let Some(store) = self.store.as_ref().filter(|_| shares) else {
                self.changed.notified().await;
                continue;
            };
            match store.beat(&self.ledger.id, GONE).await {
                Ok(servers) => {
                    self.ledger.saw(servers);
                    answered += 1;
                    if answered >= BACK && self.away.replace(false) {
                        self.ledger.found(&store.address());
                    }
                }
                Err(why) => {
                    answered = 0;
                    self.lost(store, &why);
                }
            }
            let pause = if self.away.get() { PROBE } else { BEAT };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.changed.notified() => answered = 0,
            }
        }
    }
}

/// Checks the Redis URL of the settings.
///
/// # Errors
/// The URL is invalid; the text names the setting and gives the reason.
pub fn check(settings: &Settings) -> Result<(), String> {
    store(settings).map(drop)
}

/// Returns the store of shared limits, if there are any.
fn store(settings: &Settings) -> Result<Option<RedisCounters>, String> {
    let shared = &settings.shared;
    let store = shared.redis.as_ref().map(|url| RedisCounters::new(url, &shared.group, shared.timeout));
    store.transpose().map_err(|why| format!("shared.redis: {why}"))
}

/// Returns the limits that apply to `path`, whatever the method, for `firebrick explain`.
pub fn concerning<'a>(settings: &'a Settings, path: &[u8]) -> impl Iterator<Item = &'a RateLimit> {
    let parsed = Path::new(path);
    settings.rate_limits.iter().filter(move |limit| is_below(&limit.paths, &parsed))
}

/// Returns the limit of one of `servers` while each counts alone.
fn share(limit: &Limit, servers: u32) -> Limit {
    Limit {
        period: limit.period.saturating_mul(u64::from(servers)),
        burst: (limit.burst / servers).max(1),
        ..*limit
    }
}

/// Returns a 429 with the time after which a request will be admitted (RFC 6585 section 4).
fn refusal(name: &str, wait: Duration) -> Response {
    let seconds = u32::try_from(wait.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u32::MAX);
    let reason = format!("beyond the rate limit {name}");
    let failure = Failure { status: 429, fault: Fault::Client, retry: Some(seconds), reason: reason.into() };
    // The request is well-formed, so its connection continues and the next request needs no new one.
    Response { after: After::Reuse, ..failure.into_response() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::tests::{request, written};
    use std::path::Path as Folder;

    fn limiter(limits: Vec<settings::RateLimit>) -> Rc<Limiter> {
        let settings = Settings { rate_limits: limits, ..Settings::defaults(Folder::new("/")) };
        Limiter::new(&settings, Arc::new(LimiterState::new(Box::new(|_| ())))).unwrap()
    }

    async fn statuses(limiter: &Limiter, request: &Request, count: usize) -> Vec<u16> {
        let mut statuses = Vec::new();
        for _ in 0..count {
            let response = match limiter.judge(request) {
                Some(judged) => judged.await,
                None => None,
            };
            statuses.push(response.map_or(200, |response| response.status));
        }
        statuses
    }

    #[tokio::test]
    async fn a_client_is_refused_beyond_its_limit_and_others_are_not() {
        let limiter = limiter(vec![written("a")]);
        let (one, other) = (request("GET", "/", Some("192.0.2.1")), request("GET", "/", Some("192.0.2.2")));
        assert_eq!(statuses(&limiter, &one, 3).await, [200, 200, 429]);
        assert_eq!(statuses(&limiter, &other, 1).await, [200]);
        let refused = limiter.judge(&one).unwrap().await.unwrap();
        assert_eq!(refused.fields.get("retry-after"), Some(&b"1"[..]));
    }

    #[tokio::test]
    async fn every_limit_has_to_admit_it_and_a_dry_run_only_counts() {
        let dry = settings::RateLimit { dry_run: true, burst: 1, ..written("dry") };
        let limiter = limiter(vec![dry, written("all")]);
        let one = request("GET", "/", Some("192.0.2.1"));
        assert_eq!(statuses(&limiter, &one, 3).await, [200, 200, 429]);
        let limits = [written("dry"), written("all")];
        let seen = limiter.ledger.snapshot(&limits, false).unwrap();
        let counts: Vec<_> = seen.limits.iter().map(|limit| (limit.admitted, limit.refused)).collect();
        assert_eq!(counts, [(1, 2), (2, 1)]);
    }

    #[tokio::test]
    async fn new_settings_keep_the_counts_of_limits_that_stay() {
        let settings = Settings { rate_limits: vec![written("a")], ..Settings::defaults(Folder::new("/")) };
        let limiter = limiter(settings.rate_limits.clone());
        let one = request("GET", "/", Some("192.0.2.1"));
        statuses(&limiter, &one, 2).await;
        let more = settings::RateLimit { burst: 3, ..written("a") };
        limiter.replace(&Settings { rate_limits: vec![more], ..Settings::defaults(Folder::new("/")) });
        assert_eq!(statuses(&limiter, &one, 4).await, [200, 200, 200, 429], "it has changed");
        limiter.replace(&settings);
        assert_eq!(statuses(&limiter, &one, 1).await, [429]);
        limiter.replace(&Settings::defaults(Folder::new("/")));
        assert!(limiter.judge(&one).is_none());
    }

    #[test]
    fn shares_add_up_to_the_limit() {
        let limit = crate::rate::Limit {
            rule: crate::rate::Rule::TokenBucket,
            count: 100,
            period: 1_000_000_000,
            burst: 8,
        };
        let one = share(&limit, 4);
        assert_eq!((one.period, one.burst, share(&limit, 100).burst), (4_000_000_000, 2, 1));
        assert_eq!(share(&limit, 1), limit);
    }
}
