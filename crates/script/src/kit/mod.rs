//! What the classes of `ruby/kit` need of the server: counts that all front threads share, addresses, password files.

mod addresses;
mod counters;
mod passwords;
mod rate;
mod visits;

use crate::ops::{self, Call, Waiting};
use crate::route;
use crate::runtime::State;
use counters::Counters;
use mruby::{Tape, Value};
use passwords::Passwords;
use rate::{Count, Limit, Rule};
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use visits::{Counting, Visits};

/// What one VM keeps; the counts belong to the process.
#[derive(Default)]
pub(crate) struct Kit {
    passwords: Passwords,
}

/// The calls; see `ops::CALLS`.
pub(crate) const CALLS: &[(&str, Call)] = &[
    ("RATE", |_, args, tape| {
        answered(rate(args), tape);
    }),
    ("VISIT", |_, args, tape| {
        answered(visit(args), tape);
    }),
    ("CIDR", |_, args, tape| match args.first().and_then(Value::text).and_then(addresses::cidr) {
        Some((key, length, four)) => drop(tape.array(3).str(key).int(length.into()).bool(four)),
        None => drop(tape.nil()),
    }),
    ("PREFIXES", prefixes),
    ("CLIENT", |_, args, tape| {
        let mut texts = args.iter().map(|arg| arg.text().unwrap_or_default());
        let (peer, forwarded) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
        tape.str(addresses::client(peer, forwarded));
    }),
    ("PLAIN_PATH", |_, args, tape| {
        let path = args.first().and_then(Value::text).unwrap_or_default();
        tape.str(route::Path::new(path).plain());
    }),
    ("PASSWORDS", |state, args, tape| match state.kit.passwords.gatekeeper(path(args)) {
        Ok(gatekeeper) => drop(tape.int(gatekeeper.users().len() as i64)),
        Err(why) => drop(tape.fault("ArgumentError", why)),
    }),
];

/// The classes.
pub(crate) const PRELUDES: &[(&str, &str)] = &[
    ("lru_cache.rb", include_str!("../ruby/kit/lru_cache.rb")),
    ("trie_addr.rb", include_str!("../ruby/kit/trie_addr.rb")),
    ("acl.rb", include_str!("../ruby/kit/acl.rb")),
    ("htpasswd.rb", include_str!("../ruby/kit/htpasswd.rb")),
    ("dos_detector.rb", include_str!("../ruby/kit/dos_detector.rb")),
    ("prometheus.rb", include_str!("../ruby/kit/prometheus.rb")),
    ("rate_limit.rb", include_str!("../ruby/kit/rate_limit.rb")),
    ("rate_limit_redis.rb", include_str!("../ruby/kit/rate_limit_redis.rb")),
];

fn answered(answer: Result<Tape, &'static str>, tape: &mut Tape) {
    match answer {
        Ok(answer) => *tape = answer,
        Err(why) => drop(tape.fault("ArgumentError", why)),
    }
}

/// `[key, rule, count, period in seconds, burst, cost]` to `[allowed, remaining, reset, retry]`, the last two in seconds.
fn rate(args: &[Value<'_>]) -> Result<Tape, &'static str> {
    static COUNTS: LazyLock<Counters<Count>> = LazyLock::new(Counters::new);
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let [key, rule, count, period, burst, cost] = args else { return Err("RATE takes six arguments") };
    let key = key.text().ok_or("the key of a rate limit is a String")?;
    let rule = rule.text().and_then(Rule::named).ok_or("no such algorithm")?;
    let positive = |value: &Value<'_>| value.int().and_then(|number| u32::try_from(number).ok());
    let [count, burst, cost] = [count, burst, cost].map(positive);
    let (count, burst, cost) = (count.ok_or(RANGE)?, burst.ok_or(RANGE)?, cost.ok_or(RANGE)?);
    let period = (period.float().unwrap_or_default() * 1e9) as u64;
    if count == 0 || burst == 0 || period < u64::from(count) || period > LONGEST {
        return Err(RANGE);
    }
    let limit = Limit { rule, count, period, burst };
    // Not from 0: what is forgotten counts from there.
    let now = 2 * LONGEST + BEGIN.elapsed().as_nanos() as u64;
    let verdict = COUNTS.change(key, now, |count| {
        let verdict = limit.ask(count, cost, now);
        (verdict, now.saturating_add(limit.memory()))
    });
    let mut tape = Tape::new();
    tape.array(4).bool(verdict.allowed).int(verdict.remaining.into());
    tape.float(verdict.reset as f64 / 1e9).float(verdict.retry as f64 / 1e9);
    Ok(tape)
}

/// A year in nanoseconds.
const LONGEST: u64 = 366 * 24 * 3_600 * 1_000_000_000;
const RANGE: &str = "limit, burst and cost are from 1 to 4294967295, a period is up to a year and a nanosecond for each at least";

/// `[key, period, threshold, ban_period]` to `[banned, count, banned_until]`; times are seconds.
fn visit(args: &[Value<'_>]) -> Result<Tape, &'static str> {
    static VISITS: LazyLock<Counters<Visits>> = LazyLock::new(Counters::new);
    let [key, period, threshold, ban] = args else { return Err("VISIT takes four arguments") };
    let key = key.text().ok_or("the key of a visit is a String")?;
    let seconds = |value: &Value<'_>| value.float().map(|number| number as u64).unwrap_or_default();
    let counting =
        Counting { period: seconds(period).max(1), threshold: seconds(threshold).max(1), ban: seconds(ban) };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (banned, visits) = VISITS.change(key, now, |visits| {
        let banned = counting.visit(visits, now);
        ((banned, *visits), counting.over(visits))
    });
    let mut tape = Tape::new();
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    tape.array(3).bool(banned).int(number(visits.count)).int(number(visits.banned_until));
    Ok(tape)
}

/// `[address, four lengths, six lengths]`: the key of each prefix that may have the address in it; nil when it is none.
fn prefixes(_: &State, args: &[Value<'_>], tape: &mut Tape) {
    let Some(address) = args.first().and_then(Value::text).and_then(addresses::address) else {
        tape.nil();
        return;
    };
    let lengths = args.get(if address.is_ipv4() { 1 } else { 2 }).and_then(Value::array).unwrap_or_default();
    let lengths = lengths.iter().filter_map(|length| u8::try_from(length.int()?).ok());
    let keys: Vec<Vec<u8>> = lengths.filter_map(|length| addresses::prefix(address, length)).collect();
    tape.array(keys.len() as u32);
    for key in keys {
        tape.str(key);
    }
}

fn path<'a>(args: &[Value<'a>]) -> &'a Path {
    let text = args.first().and_then(Value::text).and_then(|text| std::str::from_utf8(text).ok());
    Path::new(text.unwrap_or_default())
}

/// The wait `password`: `[file, authorization]` to the user's name, or nil.
pub(crate) fn password(state: &State, args: &[Value<'_>]) -> Waiting {
    match state.kit.passwords.gatekeeper(path(args)) {
        Ok(gatekeeper) => {
            let authorization = args.get(1).and_then(Value::text).unwrap_or_default();
            Box::pin(passwords::admitted(gatekeeper, authorization.to_vec()))
        }
        Err(why) => ops::fault("RuntimeError", why),
    }
}
