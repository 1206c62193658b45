//! Operations for the classes in `ruby/kit`: counters shared by all front threads, addresses, password files.

mod addresses;
mod passwords;
mod visits;

use crate::context::TaskContext;
use crate::ops::Area;
use crate::waiting::{OperationFuture, fault};
use auth::PasswordClient;
use handler::path::Path;
use mruby::{Tape, TapeValue};
use passwords::Passwords;
use ratelimit::{Count, Counters, Limit, Rule};
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use visits::{Counting, Visits};

/// The state of one VM; the counters belong to the process.
#[derive(Default)]
pub(crate) struct Kit {
    passwords: Passwords,
}

pub(crate) const AREA: Area<Kit> = Area {
    calls: &[
        ("RATE", |_, args, tape| write(rate(args), tape)),
        ("VISIT", |_, args, tape| write(visit(args), tape)),
        ("CIDR", |_, args, tape| match args.first().and_then(TapeValue::text).and_then(addresses::cidr) {
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
            let path = args.first().and_then(TapeValue::text).unwrap_or_default();
            tape.str(Path::new(path).plain());
        }),
        ("PASSWORDS", |kit, args, tape| match kit.passwords.authenticator(path(args)) {
            Ok(authenticator) => drop(tape.int(authenticator.users().len() as i64)),
            Err(why) => drop(tape.fault("ArgumentError", why)),
        }),
    ],
    waits: &[("PASSWORD", password)],
    preludes: &[
        ("lru_cache.rb", include_str!("../ruby/kit/lru_cache.rb")),
        ("trie_addr.rb", include_str!("../ruby/kit/trie_addr.rb")),
        ("acl.rb", include_str!("../ruby/kit/acl.rb")),
        ("htpasswd.rb", include_str!("../ruby/kit/htpasswd.rb")),
        ("dos_detector.rb", include_str!("../ruby/kit/dos_detector.rb")),
        ("prometheus.rb", include_str!("../ruby/kit/prometheus.rb")),
        ("rate_limit.rb", include_str!("../ruby/kit/rate_limit.rb")),
        ("rate_limit_redis.rb", include_str!("../ruby/kit/rate_limit_redis.rb")),
    ],
};

fn write(result: Result<Tape, &'static str>, tape: &mut Tape) {
    match result {
        Ok(result) => *tape = result,
        Err(why) => drop(tape.fault("ArgumentError", why)),
    }
}

/// `[key, rule, count, period in seconds, burst, cost]`: returns `[allowed, remaining, reset, retry]`, the
/// last two in seconds.
fn rate(args: &[TapeValue<'_>]) -> Result<Tape, &'static str> {
    static COUNTS: LazyLock<Counters<Count>> = LazyLock::new(Counters::default);
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let [key, rule, count, period, burst, cost] = args else { return Err("RATE takes six arguments") };
    let key = key.text().ok_or("the key of a rate limit is a String")?;
    let rule = rule.text().and_then(Rule::named).ok_or("no such algorithm")?;
    let positive = |value: &TapeValue<'_>| value.int().and_then(|number| u32::try_from(number).ok());
    let [count, burst, cost] = [count, burst, cost].map(positive);
    let (count, burst, cost) = (count.ok_or(RANGE)?, burst.ok_or(RANGE)?, cost.ok_or(RANGE)?);
    let period = (period.float().unwrap_or_default() * 1e9) as u64;
    if count == 0 || burst == 0 || period < u64::from(count) || period > MAX_PERIOD {
        return Err(RANGE);
    }
    let limit = Limit { rule, count, period, burst };
    // Does not start at 0, which marks expired keys.
    let now = 2 * MAX_PERIOD + START.elapsed().as_nanos() as u64;
    let verdict = COUNTS.change(key, now, |count| {
        let verdict = limit.check(count, cost, now);
        (verdict, now.saturating_add(limit.memory()))
    });
    let mut tape = Tape::new();
    tape.array(4).bool(verdict.allowed).int(verdict.remaining.into());
    tape.float(verdict.reset as f64 / 1e9).float(verdict.retry as f64 / 1e9);
    Ok(tape)
}

/// A year in nanoseconds.
const MAX_PERIOD: u64 = 366 * 24 * 3_600 * 1_000_000_000;
const RANGE: &str = "limit, burst and cost are from 1 to 4294967295; a period is at most a year and at least a nanosecond per request";

/// `[key, period, threshold, ban_period]`: returns `[banned, count, banned_until]`; times are in seconds.
fn visit(args: &[TapeValue<'_>]) -> Result<Tape, &'static str> {
    static VISITS: LazyLock<Counters<Visits>> = LazyLock::new(Counters::default);
    let [key, period, threshold, ban] = args else { return Err("VISIT takes four arguments") };
    let key = key.text().ok_or("the key of a visit is a String")?;
    let seconds = |value: &TapeValue<'_>| value.float().map(|number| number as u64).unwrap_or_default();
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

/// `[address, lengths for IPv4, lengths for IPv6]`: returns the key of each prefix that contains the address;
/// nil if it is not an address.
fn prefixes(_: &Kit, args: &[TapeValue<'_>], tape: &mut Tape) {
    let Some(address) = args.first().and_then(TapeValue::text).and_then(handler::address::parse) else {
        tape.nil();
        return;
    };
    let lengths =
        args.get(if address.is_ipv4() { 1 } else { 2 }).and_then(TapeValue::array).unwrap_or_default();
    let lengths = lengths.iter().filter_map(|length| u8::try_from(length.int()?).ok());
    let keys: Vec<Vec<u8>> = lengths.filter_map(|length| addresses::prefix(address, length)).collect();
    tape.array(keys.len() as u32);
    for key in keys {
        tape.str(key);
    }
}

fn path<'a>(args: &[TapeValue<'a>]) -> &'a std::path::Path {
    let text = args.first().and_then(TapeValue::text).and_then(|text| std::str::from_utf8(text).ok());
    std::path::Path::new(text.unwrap_or_default())
}

/// `[file, authorization, address, port]`: returns the user's name, nil, or false if too many checks wait.
fn password(kit: &Rc<Kit>, _: &TaskContext, args: &[TapeValue<'_>]) -> OperationFuture {
    match kit.passwords.authenticator(path(args)) {
        Ok(authenticator) => {
            let text = |place: usize| args.get(place).and_then(TapeValue::text).unwrap_or_default();
            let client = PasswordClient::new(text(2), text(3));
            Box::pin(passwords::authenticated(authenticator, text(1).to_vec(), client))
        }
        Err(why) => fault("RuntimeError", why),
    }
}
