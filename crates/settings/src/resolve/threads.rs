//! Threads, whose two variables each set one half.

use super::taker::Taker;
use crate::given::Written;
use crate::kind::numbers::Count;
use crate::origin::Origin;
use crate::table::workers::THREADS;
use crate::value::threads::Threads;

const HALF: Count = Count { min: 1, max: Threads::MOST as u64 };

/// The flag, or else what the file or the default says with each half replaced by its variable. A half from a
/// weaker place yields when it would contradict.
pub(super) fn threads(taker: &Taker<'_>) -> Threads {
    let written = taker.written(&THREADS);
    let flag = written.iter().any(|written| matches!(written.origin, Origin::Flag(_)));
    let base = taker.take_where(&THREADS, |origin| !matches!(origin, Origin::Env(_))).value;
    if flag {
        return base;
    }
    let half = |name: &str| {
        let variable = |written: &&Written| matches!(&written.origin, Origin::Env(known) if known == name);
        let written = written.iter().find(variable)?;
        taker.choose(&THREADS, written);
        taker.read::<u16, _>(&THREADS, &HALF, written)
    };
    match (half("RAILS_MIN_THREADS"), half("RAILS_MAX_THREADS")) {
        (Some(min), Some(max)) if min > max => {
            taker.conflict(&THREADS.about, format!("is less than RAILS_MIN_THREADS={min}"));
            base
        }
        (Some(min), Some(max)) => Threads { min, max },
        (Some(min), None) => Threads { min, max: base.max.max(min) },
        (None, Some(max)) => Threads { min: base.min.min(max), max },
        (None, None) => base,
    }
}
