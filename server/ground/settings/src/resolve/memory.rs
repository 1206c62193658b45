//! The memory of the front, and what must fit into it.

use super::ResolveContext;
use crate::auto::auto_memory;
use crate::origin::ValueSource;
use crate::settings::Settings;
use crate::table::taker::Taker;
use crate::table::{cache as c, limits as l};

/// A buffer of a single client may have at most this part of the memory: a few clients would use it up otherwise.
const PART: u64 = 8;

/// Decides `limits.memory` where the machine does, and checks that the other limits fit into it.
///
/// A size that does not fit into a written limit is a mistake; into a derived limit, it is a warning,
/// because the same settings may run on machines of any size.
pub(super) fn memory(taker: &Taker<'_>, settings: &mut Settings, facts: &ResolveContext) {
    let cache = settings.cache.memory.unwrap_or(0);
    let written = settings.limits.memory.is_some();
    let Some(limit) = settings.limits.memory.or_else(|| auto_memory(&facts.machine, cache)) else { return };
    settings.limits.memory = Some(limit);
    let size = text::size::exact;
    if cache > limit / 2 {
        // Only with a written limit, because the derived one follows the cache.
        let least = size(cache.saturating_mul(2));
        let problem = format!(
            "more than half of limits.memory, which is {}: lower cache.memory, or give limits.memory at least {least}",
            size(limit)
        );
        taker.conflict(&c::memory.about, problem);
    } else if !written && facts.machine.memory().is_some_and(|memory| cache > memory / 4) {
        taker.warn(format!(
            "cache.memory is {}, more than a quarter of the memory that there is; limits.memory is {} for its sake",
            size(cache),
            size(limit)
        ));
    }
    let limits = &settings.limits;
    for (about, bytes) in [
        (&l::max_header_bytes.about, limits.max_header_bytes),
        (&l::max_response_header_bytes.about, limits.max_response_header_bytes),
        (&l::body_memory.about, limits.body_memory),
        (&l::response_memory.about, limits.response_memory),
    ] {
        let bytes = bytes as u64;
        if bytes <= limit / PART {
            continue;
        }
        let least = size(bytes.saturating_mul(PART));
        let problem = format!(
            "more than an eighth of limits.memory, which is {}: a few clients would use all of it; lower it, or give limits.memory at \
             least {least}",
            size(limit)
        );
        if written {
            taker.conflict(about, problem);
        } else {
            taker.warn(format!("{} is {}, {problem}", about.key, size(bytes)));
        }
    }
    let (threads, heap) = (u64::from(settings.front_threads), settings.mruby.heap as u64);
    let all = threads.saturating_mul(heap);
    if taker.origin(&l::memory) != ValueSource::Default && !settings.mruby.routes.is_empty() && all > limit {
        taker.warn(format!(
            "limits.memory is {}, but the handlers of {threads} front threads may take {} (mruby.heap): requests get 503 if they do",
            size(limit),
            size(all)
        ));
    }
}
