//! Whether the worker of a new release takes more memory than the old ones, or grows with each request. Pure.
//!
//! Contract:
//! 1. Only more than the old workers take counts, and only if it is more in [`LOOKS`] looks in a row: one large request is no release.
//! 2. A new worker has served less, so it should take less. Where the old workers have served less than the new one, they may not have grown yet;
//!    then the limits are wider.
//! 3. A leak is growth that goes on beyond the size of the old workers: a new worker grows at first, and then less and less. Growth counts from request
//!    [`SETTLED`] on, if its second half is not much smaller than the first, and if the old workers do not grow like that.
//! 4. Where the system does not tell how much memory a process takes, nothing is found.

/// Resident memory, and the requests that were served with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Weighed {
    /// Requests: of the new worker since the trial began; of the old ones, the mean since they started.
    pub requests: u64,
    /// In bytes; of the old workers, the mean.
    pub bytes: u64,
}

/// A larger worker, in percent of the old ones, and bytes beyond that.
const LARGER: (u64, u64) = (140, 8 << 20);
/// The same where the old workers have served less.
const MUCH_LARGER: (u64, u64) = (200, 64 << 20);
/// How many looks in a row must find it larger.
const LOOKS: u32 = 5;
/// Requests after which growth counts.
const SETTLED: u64 = 100;
/// Requests from then on that are needed to find a leak.
const ENOUGH: u64 = 200;
/// The least growth that is one.
const GROWTH: u64 = 16 << 20;
/// The growth of the second half of the requests, in percent of all of it. A leak has 50.
const STEADY: u64 = 40;
/// The size of a worker that leaks, in percent of the old ones.
const BEYOND: u64 = 115;
/// How many times faster than the old workers it must grow.
const FASTER: u64 = 3;

/// The memory of the workers during a trial, as far as it was seen.
#[derive(Debug, Clone, Default)]
pub struct MemoryTrend {
    larger: u32,
    /// The new worker's, from [`SETTLED`] on.
    seen: Vec<Weighed>,
    /// The old workers' at the same first moment.
    old: Option<Weighed>,
}

impl MemoryTrend {
    /// Takes the figures of a moment. Returns the reason to revert.
    pub fn look(&mut self, new: Weighed, old: Weighed) -> Option<String> {
        if new.bytes == 0 || old.bytes == 0 {
            return None;
        }
        self.size(new, old).or_else(|| self.growth(new, old))
    }

    fn size(&mut self, new: Weighed, old: Weighed) -> Option<String> {
        let (part, more) = if old.requests >= new.requests { LARGER } else { MUCH_LARGER };
        let is_larger = new.bytes > percent(old.bytes, part).saturating_add(more);
        self.larger = if is_larger { self.larger + 1 } else { 0 };
        (self.larger >= LOOKS).then(|| larger(new.bytes, old.bytes))
    }

    fn growth(&mut self, new: Weighed, old: Weighed) -> Option<String> {
        if new.requests < SETTLED {
            return None;
        }
        if self.seen.last().is_none_or(|last| last.requests < new.requests) {
            self.seen.push(new);
        }
        let old_first = *self.old.get_or_insert(old);
        let first = *self.seen.first()?;
        let (requests, grown) =
            (new.requests.saturating_sub(first.requests), new.bytes.saturating_sub(first.bytes));
        if requests < ENOUGH || grown < GROWTH || new.bytes <= percent(old.bytes, BEYOND) {
            return None;
        }
        let half = self.seen.iter().find(|seen| seen.requests >= first.requests + requests / 2)?;
        let later = new.bytes.saturating_sub(half.bytes);
        let served_by_old = old.requests.saturating_sub(old_first.requests).max(1);
        let by_old = old.bytes.saturating_sub(old_first.bytes) / served_by_old;
        let by_new = grown / requests;
        (later >= percent(grown, STEADY) && by_new >= by_old.max(1).saturating_mul(FASTER)).then(|| {
            format!(
                "a worker grows by {} KiB with each request ({} MiB in {requests} requests), one of the old code by {} KiB; `firebrick leaks` names the line",
                by_new >> 10,
                grown >> 20,
                by_old >> 10
            )
        })
    }
}

/// How much more memory a worker may use than one of the old code that is as old and has served the same requests: in percent, and bytes beyond that.
const LARGER_THAN_PAIR: (u64, u64) = (130, 8 << 20);

/// Compares the resident memory of two workers that have served the same requests, in bytes.
///
/// # Errors
/// Fails if the new worker needs clearly more memory. The message contains both figures.
pub fn weigh_pair(new: u64, old: u64) -> Result<(), String> {
    let (part, more) = LARGER_THAN_PAIR;
    if old == 0 || new <= percent(old, part).saturating_add(more) {
        return Ok(());
    }
    Err(format!("{} after the same requests", larger(new, old)))
}

fn larger(new: u64, old: u64) -> String {
    format!("a worker takes {} MiB of resident memory, one of the old code {} MiB", new >> 20, old >> 20)
}

fn percent(of: u64, percent: u64) -> u64 {
    (of / 100).saturating_mul(percent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;
    const OLD: Weighed = Weighed { requests: 50_000, bytes: 100 * MIB };

    fn at(requests: u64, bytes: u64) -> Weighed {
        Weighed { requests, bytes }
    }

    /// Looks as often as a trial does while a worker serves, with its memory by requests.
    fn watch(old: Weighed, memory: impl Fn(u64) -> u64) -> Option<(u64, String)> {
        let mut trend = MemoryTrend::default();
        (0..200).find_map(|look| {
            let requests = look * 10;
            let found = trend
                .look(at(requests, memory(requests)), Weighed { requests: old.requests + requests, ..old });
            found.map(|text| (requests, text))
        })
    }

    #[test]
    fn a_larger_worker_is_found_soon() {
        let (requests, text) = watch(OLD, |_| 160 * MIB).unwrap();
        assert_eq!(
            (requests, text.as_str()),
            (40, "a worker takes 160 MiB of resident memory, one of the old code 100 MiB")
        );
        assert_eq!(watch(OLD, |_| 148 * MIB), None);
        let fresh = Weighed { requests: 0, ..OLD };
        let mut trend = MemoryTrend::default();
        assert!(
            (0..50).all(|_| trend.look(at(30, 250 * MIB), fresh).is_none()),
            "the old ones have served nothing"
        );
        assert!((0..50).any(|_| trend.look(at(30, 300 * MIB), fresh).is_some()));
    }

    #[test]
    fn of_two_alike_workers_less_is_too_much() {
        assert_eq!(weigh_pair(138 * MIB, 100 * MIB), Ok(()));
        let error = weigh_pair(160 * MIB, 100 * MIB).unwrap_err();
        assert!(error.contains("160 MiB") && error.contains("100 MiB after the same"), "{error}");
        assert_eq!(weigh_pair(160 * MIB, 0), Ok(()), "the system does not tell");
    }

    #[test]
    fn one_large_request_is_no_release() {
        let mut trend = MemoryTrend::default();
        for look in 0..100 {
            let bytes = if look % LOOKS == 0 { 90 * MIB } else { 300 * MIB };
            assert_eq!(trend.look(at(look.into(), bytes), OLD), None);
        }
    }

    #[test]
    fn a_leak_is_found_and_a_worker_that_fills_its_heap_is_not() {
        let (requests, text) = watch(OLD, |requests| 60 * MIB + requests * (60 << 10)).unwrap();
        assert!((930..=950).contains(&requests), "{requests}");
        assert!(text.starts_with("a worker grows by 60 KiB with each request (4"), "{text}");
        let (requests, _) = watch(OLD, |requests| 100 * MIB + requests * (60 << 10)).unwrap();
        assert!((370..=400).contains(&requests), "{requests}");
        let filling = |requests: u64| {
            60 * MIB + (40.0 * MIB as f64 * (1.0 - (-(requests as f64) / 150.0).exp())) as u64
        };
        assert_eq!(watch(OLD, filling), None);
    }

    #[test]
    fn growth_that_the_old_code_has_as_well_is_not_found() {
        let mut trend = MemoryTrend::default();
        for requests in (0..2_000).step_by(10) {
            let old = Weighed { requests: 50_000 + requests, bytes: 100 * MIB + requests * (50 << 10) };
            assert_eq!(trend.look(at(requests, 60 * MIB + requests * (60 << 10)), old), None);
        }
    }

    #[test]
    fn nothing_is_found_where_the_system_does_not_tell() {
        assert_eq!(watch(Weighed { bytes: 0, ..OLD }, |_| 900 * MIB), None);
        assert_eq!(watch(OLD, |_| 0), None);
    }

    proptest! {
        /// A worker of the same code, on its way to the size of the old ones, with requests of all sizes.
        #[test]
        fn an_unchanged_app_passes(
            start in 30u64..90,
            pace in 20f64..800.0,
            noise in prop::collection::vec(0u64..6, 200),
        ) {
            let mut trend = MemoryTrend::default();
            for (look, noise) in noise.iter().enumerate() {
                let requests = look as u64 * 10;
                let part = 1.0 - (-(requests as f64) / pace).exp();
                let bytes = start * MIB + ((100 - start) as f64 * MIB as f64 * part) as u64 + noise * MIB;
                let found = trend.look(at(requests, bytes), Weighed { requests: 50_000 + requests, bytes: 100 * MIB });
                prop_assert_eq!(found, None);
            }
        }

        #[test]
        fn any_figures_are_taken(figures in prop::collection::vec(any::<(u64, u64, u64, u64)>(), 0..50)) {
            let mut trend = MemoryTrend::default();
            for (requests, bytes, old_requests, old_bytes) in figures {
                trend.look(at(requests, bytes), Weighed { requests: old_requests, bytes: old_bytes });
            }
        }
    }
}
