//! Threads: two variables each set one half.

use crate::kind::numbers::Count;
use crate::origin::ValueSource;
use crate::table::taker::Taker;
use crate::table::workers::THREADS;
use crate::value::threads::Threads;
use crate::written::Written;

/// Puma accepts a minimum of 0.
const LEAST: Count = Count { min: 0, max: Threads::MOST as u64 };
const MOST: Count = Count { min: 1, max: Threads::MOST as u64 };

/// Returns the flag's value, or else the value of the file or the default with each half replaced by its
/// variable. A half from a weaker source gives way when the halves contradict each other.
pub(super) fn threads(taker: &Taker<'_>) -> Threads {
    let written = taker.written(&THREADS);
    let flag = written.iter().any(|written| matches!(written.origin, ValueSource::Flag(_)));
    let base = taker.take_where(&THREADS, |origin| !matches!(origin, ValueSource::Env(_))).value;
    if flag {
        return base;
    }
    let half = |name: &str, kind: &Count| {
        let variable =
            |written: &&Written| matches!(&written.origin, ValueSource::Env(known) if known == name);
        let written = written.iter().find(variable)?;
        taker.choose(&THREADS, written);
        taker.read::<u16, _>(&THREADS, kind, written)
    };
    let min = half("RAILS_MIN_THREADS", &LEAST).map(|min| min.max(1));
    match (min, half("RAILS_MAX_THREADS", &MOST)) {
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
