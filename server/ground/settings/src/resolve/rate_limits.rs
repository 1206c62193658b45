//! The `[rate_limits]` table.

use text::OrMistake;

use super::named::Reader;
use crate::kind::ValueKind;
use crate::kind::lists::PathPrefixes;
use crate::kind::numbers::Count;
use crate::kind::texts::HeaderName;
use crate::raw::Raw;
use crate::table::taker::Taker;
use crate::value::proxies::Cidr;
use crate::value::rate_limit::{RateKey, RateLimit, RequestRate};
use crate::written::{Named, Written, WrittenValues};

/// The keys of a limit.
const KEYS: [&str; 8] = ["rate", "burst", "paths", "methods", "key", "except", "shared", "dry_run"];

/// Returns all limits in the order of the file. `redis`: whether servers can share them.
pub(super) fn rate_limits(taker: &Taker<'_>, given: &WrittenValues, redis: bool) -> Vec<RateLimit> {
    given.rate_limits.iter().filter_map(|named| rate_limit(taker, named, redis)).collect()
}

fn rate_limit(taker: &Taker<'_>, named: &Named, redis: bool) -> Option<RateLimit> {
    let reader = Reader { table: "rate_limits", taker, named };
    if !reader.has_a_name() {
        return None;
    }
    let (mut rate, mut burst) = (None, None);
    let mut limit = RateLimit {
        name: named.name.clone(),
        rate: RequestRate { count: 1, period: std::time::Duration::from_secs(1) },
        burst: 1,
        paths: vec![String::new()],
        methods: Vec::new(),
        key: RateKey::default(),
        except: Vec::new(),
        shared: redis,
        dry_run: false,
    };
    for (key, written) in &named.keys {
        match key.as_str() {
            "rate" => rate = Some(reader.rate(written)),
            "burst" => burst = reader.burst(written),
            "paths" => limit.paths = reader.paths(written),
            "methods" => limit.methods = reader.methods(written),
            "key" => limit.key = reader.key(written),
            "except" => limit.except = reader.networks(written),
            "shared" => limit.shared = reader.shared(written, redis),
            "dry_run" => limit.dry_run = reader.switch(key, written, false),
            _ => reader.unknown(key, written, &KEYS),
        }
    }
    let Some(rate) = rate else {
        reader.refuse("", &named.written, format!("expected {}: rate is missing", RequestRate::EXPECTED));
        return None;
    };
    limit.rate = rate?;
    limit.burst = burst.unwrap_or(limit.rate.count);
    Some(limit)
}

impl Reader<'_> {
    fn rate(&self, written: &Written) -> Option<RequestRate> {
        let rate = written.raw.text().or_mistake().and_then(RequestRate::parse);
        rate.map_err(|why| {
            self.refuse("rate", written, format!("expected {}", why.explain(RequestRate::EXPECTED)))
        })
        .ok()
    }

    fn burst(&self, written: &Written) -> Option<u32> {
        const BURST: Count = Count { min: 1, max: 1_000_000 };
        let burst = BURST.read(&written.raw);
        burst.inspect_err(|_| self.refuse("burst", written, format!("expected {}", of(&BURST)))).ok()
    }

    fn paths(&self, written: &Written) -> Vec<String> {
        PathPrefixes.read(&written.raw).unwrap_or_else(|_| {
            self.refuse("paths", written, format!("expected {}", PathPrefixes.expected()));
            Vec::new()
        })
    }

    fn methods(&self, written: &Written) -> Vec<String> {
        let expected = "a method such as \"POST\"";
        let methods = self.texts("methods", written, expected);
        let is_method = |text: &String| text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
        if !methods.iter().all(is_method) {
            self.refuse("methods", written, format!("expected {expected}, in capitals"));
        }
        methods
    }

    fn key(&self, written: &Written) -> RateKey {
        let expected = "expected \"address\", \"all\", or a header such as \"header:X-Api-Key\"";
        match written.raw.text() {
            Some("address") => return RateKey::Address,
            Some("all") => return RateKey::All,
            Some(text) => {
                let name = text.strip_prefix("header:").map(|name| Raw::Text(name.trim().to_owned()));
                if let Some(Ok(name)) = name.map(|name| HeaderName.read(&name)) {
                    return RateKey::Header(name.to_ascii_lowercase());
                }
            }
            None => {}
        }
        self.refuse("key", written, expected.to_owned());
        RateKey::default()
    }

    fn networks(&self, written: &Written) -> Vec<Cidr> {
        let expected = "an address or a network such as \"10.0.0.0/8\"";
        let networks = self.texts("except", written, expected);
        let mut read = Vec::new();
        for text in &networks {
            match text.parse() {
                Ok(network) => read.push(network),
                Err(_) => self.refuse("except", written, format!("expected {expected}; {text:?} is not one")),
            }
        }
        read
    }

    fn shared(&self, written: &Written, redis: bool) -> bool {
        let shared = self.switch("shared", written, redis);
        if shared && !redis {
            self.refuse(
                "shared",
                written,
                "it takes a Redis in which servers count together: shared.redis".to_owned(),
            );
        }
        shared
    }
}

fn of(kind: &Count) -> String {
    <Count as ValueKind<u32>>::expected(kind)
}
