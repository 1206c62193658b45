//! State that several servers share.

use std::time::Duration;

use super::entry::{Category, long, section};
use crate::kind::numbers::Period;
use crate::kind::texts::{RedisUrl, Word};
use crate::kind::wrappers::Maybe;

section! { Category::Shared;
    /// State that several servers share through Redis: rate limits, and the secret of session tickets.
    Shared:

    /// Redis in which servers share rate limits and the secret of tickets
    redis: Option<String> = Maybe(RedisUrl), {
        key: "shared.redis",
        flags: &[long("shared-redis", "URL")],
        env: &["FIREBRICK_SHARED_REDIS"],
        default_shown: Some("none: each server is alone"),
        more: "redis://HOST:PORT/DB, rediss:// or unix:///PATH. docs/several-servers.md tells what is shared, and what happens while \
               Redis is away. Certificates have a setting of their own, acme.storage.",
        secret: true,
    }
    /// Name of the servers that share what is in Redis
    group: String = Word, {
        key: "shared.group",
        flags: &[long("shared-group", "NAME")],
        env: &["FIREBRICK_SHARED_GROUP"],
        default: "default",
        more: "Servers of one app have the same; other apps in the same database of Redis have another.",
    }
    /// How long a request may wait for Redis
    timeout: Duration = Period { min: Duration::from_millis(1), max: Duration::from_secs(5) }, {
        key: "shared.timeout",
        flags: &[long("shared-timeout", "TIME")],
        default: "50ms",
        more: "After that Redis is away, and each server admits its share of a limit.",
    }
}
