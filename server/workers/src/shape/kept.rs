//! The shape that a server has learnt, as it is kept over its end: the format of the file. Pure.
//!
//! Why the terms are in the file: the shape says something only about the same app under the same settings on the same
//! machine. With others the server learns anew.
//!
//! Contract:
//! 1. A file is JSON of at most [`KeptShape::LONGEST`] bytes. A file that is too long, damaged, of another version, or
//!    contradicts itself, is an error with a reason; nothing of it is used.
//! 2. A shape is used only if the app's root and all [`ShapeTerms`] are the same; the memory may differ by a twentieth,
//!    because systems report it so.

use super::{ServingShape, ShapeBounds};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The version of the format.
const VERSION: u64 = 1;
/// The most workers and seats that a file may name.
const MOST: u32 = 1 << 20;

/// The knowledge about an app that is worth keeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LearntShape {
    pub shape: ServingShape,
    /// The shortest mean time in the app; `None` if it is unknown.
    pub least_app: Option<Duration>,
}

/// The settings and the machine under which a shape was learnt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapeTerms {
    /// The objective, such as `p95 < 200ms`.
    slo: String,
    /// The least and the most workers.
    workers: [u32; 2],
    /// The least and the most requests that each holds at a time.
    seats: [u32; 2],
    /// Workers and seats of the start.
    start: [u32; 2],
    /// Whether fibers serve, and not threads.
    fibers: bool,
    /// The CPUs that the server may use, in hundredths.
    cpu_percent: u64,
    /// The memory that it may use, in MiB; 0: unknown.
    memory_mib: u64,
}

impl ShapeTerms {
    /// Returns the terms of an objective as it is written, within these bounds, on a machine with this many CPUs and bytes of memory.
    pub fn new(
        slo: &impl Display,
        bounds: &ShapeBounds,
        fibers: bool,
        cpus: f64,
        memory: Option<u64>,
    ) -> ShapeTerms {
        ShapeTerms {
            slo: slo.to_string(),
            workers: bounds.workers.into(),
            seats: bounds.seats.into(),
            start: [bounds.start.workers, bounds.start.seats],
            fibers,
            cpu_percent: (cpus * 100.0).round() as u64,
            memory_mib: memory.unwrap_or(0) >> 20,
        }
    }

    /// Returns the first difference in words.
    fn difference(&self, now: &ShapeTerms) -> Option<String> {
        let differs = |name: &str, then: String, now: String| {
            (then != now).then(|| format!("{name} {then}, now {now}"))
        };
        let range = |[least, most]: [u32; 2]| format!("{least}:{most}");
        let kind = |fibers: bool| if fibers { "fibers" } else { "threads" }.to_owned();
        let cpus = |terms: &ShapeTerms| format!("{:.2}", terms.cpu_percent as f64 / 100.0);
        let size = |terms: &ShapeTerms| format!("{} MiB", terms.memory_mib);
        let like = self.memory_mib.abs_diff(now.memory_mib) <= self.memory_mib.max(now.memory_mib) / 20;
        differs("slo", self.slo.clone(), now.slo.clone())
            .or_else(|| differs("shape.workers", range(self.workers), range(now.workers)))
            .or_else(|| differs("shape.threads", range(self.seats), range(now.seats)))
            .or_else(|| {
                differs(
                    "the start",
                    self.start.map(|one| one.to_string()).join("x"),
                    now.start.map(|one| one.to_string()).join("x"),
                )
            })
            .or_else(|| differs("requests served by", kind(self.fibers), kind(now.fibers)))
            .or_else(|| differs("CPUs", cpus(self), cpus(now)))
            .or_else(|| differs("memory", size(self), size(now)).filter(|_| !like))
    }

    /// Returns whether the shape is one that could have been learnt.
    fn allows(&self, shape: ServingShape) -> bool {
        let is_in = |number: u32, [least, most]: [u32; 2]| {
            (1..=MOST).contains(&number) && (least..=most).contains(&number)
        };
        is_in(shape.workers, self.workers) && is_in(shape.seats, self.seats)
    }
}

/// A shape with the app and the terms for which it was learnt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptShape {
    version: u64,
    /// The app's directory.
    root: String,
    terms: ShapeTerms,
    workers: u32,
    seats: u32,
    /// The shortest mean time in the app, in microseconds.
    least_app_us: Option<u64>,
    /// Seconds since the epoch.
    learnt_at: u64,
}

impl KeptShape {
    /// The most bytes of a file.
    pub const LONGEST: usize = 16 << 10;

    pub fn new(root: &str, terms: ShapeTerms, learnt: LearntShape, at: SystemTime) -> KeptShape {
        KeptShape {
            version: VERSION,
            root: root.to_owned(),
            terms,
            workers: learnt.shape.workers,
            seats: learnt.shape.seats,
            least_app_us: learnt.least_app.map(|least| u64::try_from(least.as_micros()).unwrap_or(u64::MAX)),
            learnt_at: at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn read(bytes: &[u8]) -> Result<KeptShape, String> {
        if bytes.len() > KeptShape::LONGEST {
            return Err(format!("it has more than {} bytes", KeptShape::LONGEST));
        }
        let value: serde_json::Value = serde_json::from_slice(bytes).map_err(plain)?;
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(VERSION) => {}
            Some(other) => {
                return Err(format!("it is of version {other}, and this program reads version {VERSION}"));
            }
            None => return Err("it has no version".to_owned()),
        }
        let kept: KeptShape = serde_json::from_value(value).map_err(plain)?;
        if !kept.terms.allows(kept.learnt().shape) {
            return Err(format!("{} is no shape within its bounds", kept.learnt().shape));
        }
        // A time after 9999 cannot be shown.
        if kept.learnt_at > 253_402_300_799 {
            return Err("its time is wrong".to_owned());
        }
        Ok(kept)
    }

    /// Returns the content of the file.
    pub fn text(&self) -> String {
        // There are only numbers and texts.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    fn learnt(&self) -> LearntShape {
        LearntShape {
            shape: ServingShape { workers: self.workers, seats: self.seats },
            least_app: self.least_app_us.map(Duration::from_micros),
        }
    }

    /// Returns when it was learnt.
    pub fn at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.learnt_at)
    }

    /// Returns the shape for this app under these terms.
    ///
    /// # Errors
    /// A difference from the terms under which it was learnt.
    pub fn for_app(&self, root: &str, terms: &ShapeTerms) -> Result<LearntShape, String> {
        if self.root != root {
            return Err(format!("it was learnt with the app in {}", self.root.escape_debug()));
        }
        match self.terms.difference(terms) {
            Some(difference) => Err(format!("it was learnt with {}", difference.escape_debug())),
            None => Ok(self.learnt()),
        }
    }
}

/// Returns an error that quotes the file as one line for the log.
fn plain(error: serde_json::Error) -> String {
    error.to_string().chars().filter(|one| !one.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bounds() -> ShapeBounds {
        ShapeBounds {
            objective: Duration::from_millis(200),
            percentile: 95,
            workers: (1, 4),
            seats: (1, 64),
            start: ServingShape { workers: 1, seats: 1 },
        }
    }

    fn terms() -> ShapeTerms {
        ShapeTerms::new(&"p95 < 200ms", &bounds(), false, 4.0, Some(8 << 30))
    }

    fn kept() -> KeptShape {
        let shape = ServingShape { workers: 2, seats: 16 };
        let learnt = LearntShape { shape, least_app: Some(Duration::from_micros(1500)) };
        KeptShape::new("/srv/app", terms(), learnt, UNIX_EPOCH + Duration::from_secs(1_000_000))
    }

    #[test]
    fn what_was_learnt_comes_back() {
        let read = KeptShape::read(kept().text().as_bytes()).unwrap();
        assert_eq!(read, kept());
        assert_eq!(read.at(), UNIX_EPOCH + Duration::from_secs(1_000_000));
        assert_eq!(read.for_app("/srv/app", &terms()), Ok(kept().learnt()));
    }

    #[test]
    fn other_terms_make_it_useless() {
        let other = |change: fn(&mut ShapeBounds)| {
            let mut bounds = bounds();
            change(&mut bounds);
            ShapeTerms::new(&"p95 < 200ms", &bounds, false, 4.0, Some(8 << 30))
        };
        for (terms, said) in [
            (
                ShapeTerms::new(&"p99 < 200ms", &bounds(), false, 4.0, Some(8 << 30)),
                "slo p95 < 200ms, now p99 < 200ms",
            ),
            (other(|bounds| bounds.workers.1 = 2), "shape.workers 1:4, now 1:2"),
            (other(|bounds| bounds.seats.0 = 2), "shape.threads 1:64, now 2:64"),
            (other(|bounds| bounds.start.seats = 3), "the start 1x1, now 1x3"),
            (
                ShapeTerms::new(&"p95 < 200ms", &bounds(), true, 4.0, Some(8 << 30)),
                "served by threads, now fibers",
            ),
            (ShapeTerms::new(&"p95 < 200ms", &bounds(), false, 2.5, Some(8 << 30)), "CPUs 4.00, now 2.50"),
            (
                ShapeTerms::new(&"p95 < 200ms", &bounds(), false, 4.0, Some(4 << 30)),
                "memory 8192 MiB, now 4096 MiB",
            ),
            (ShapeTerms::new(&"p95 < 200ms", &bounds(), false, 4.0, None), "memory 8192 MiB, now 0 MiB"),
        ] {
            let why = kept().for_app("/srv/app", &terms).unwrap_err();
            assert!(why.ends_with(said), "{why}");
        }
        let why = kept().for_app("/srv/other", &terms()).unwrap_err();
        assert_eq!(why, "it was learnt with the app in /srv/app");
        let nearly = ShapeTerms::new(&"p95 < 200ms", &bounds(), false, 4.0, Some((8 << 30) - (64 << 20)));
        assert!(kept().for_app("/srv/app", &nearly).is_ok());
    }

    #[test]
    fn damage_is_found() {
        let text = kept().text();
        for (damaged, said) in [
            (text[..text.len() / 2].to_owned(), "EOF"),
            (String::new(), "EOF"),
            ("[]".to_owned(), "it has no version"),
            (
                text.replace("\"version\":1", "\"version\":2"),
                "it is of version 2, and this program reads version 1",
            ),
            (text.replace("\"seats\":16", "\"seats\":65"), "2x65 is no shape within its bounds"),
            (text.replace("\"workers\":2", "\"workers\":0"), "0x16 is no shape within its bounds"),
            (text.replace("\"root\"", "\"place\""), "unknown field `place`"),
            (text.replace("1000000", "999999999999999"), "its time is wrong"),
            (" ".repeat(KeptShape::LONGEST + 1), "it has more than 16384 bytes"),
        ] {
            let why = KeptShape::read(damaged.as_bytes()).unwrap_err();
            assert!(why.contains(said), "{damaged}: {why}");
        }
    }

    proptest! {
        #[test]
        fn any_shape_survives(
            (workers, seats) in (1u32..5, 1u32..65),
            least in proptest::option::of(0u64..1 << 40),
            at in 0u64..1 << 37,
            root in "\\PC{0,40}",
            cpus in 0.01f64..1000.0,
            memory in proptest::option::of(any::<u64>()),
            fibers: bool,
        ) {
            let learnt = LearntShape { shape: ServingShape { workers, seats }, least_app: least.map(Duration::from_micros) };
            let terms = ShapeTerms::new(&"p50 < 1s", &bounds(), fibers, cpus, memory);
            let kept = KeptShape::new(&root, terms.clone(), learnt, UNIX_EPOCH + Duration::from_secs(at));
            let read = KeptShape::read(kept.text().as_bytes()).unwrap();
            prop_assert_eq!(read.for_app(&root, &terms), Ok(learnt));
        }

        /// Bytes that were changed anywhere are either refused, or make a shape within the bounds that they name.
        #[test]
        fn no_bytes_do_harm(changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..8), cut in any::<usize>()) {
            let mut bytes = kept().text().into_bytes();
            let length = bytes.len();
            changes.iter().for_each(|(at, byte)| bytes[at % length] = *byte);
            bytes.truncate(cut % (length + 1));
            if let Ok(read) = KeptShape::read(&bytes) {
                prop_assert!(read.terms.allows(read.learnt().shape));
                prop_assert_eq!(KeptShape::read(read.text().as_bytes()).map(|again| again.text()), Ok(read.text()));
                let _ = read.for_app("/srv/app", &terms());
            }
        }
    }
}
