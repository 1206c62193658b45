//! The parsed command line, combined with the facts of a source.

use clap::ArgMatches;
use planner::facts::{Price, Size, TrafficFacts};
use planner::format::{figure, millis};
use planner::service::{FromP95, cv_from_p95};
use planner::{Slo, facts};

use crate::sourced::{Memory, SourceFacts, Sourced};
use crate::units;

#[derive(Debug, Default)]
pub(crate) struct Options {
    pub from: Option<String>,
    pub look_ms: Option<f64>,
    pub token: Option<String>,
    /// Add the bill of a running server, by default of the one in this folder.
    pub live: bool,
    pub explain: bool,
    pub json: bool,
    pub helm: bool,
    pub instances: Option<u32>,
    rate: Option<Sourced<f64>>,
    average_rate: Option<Sourced<f64>>,
    response_ms: Option<Sourced<f64>>,
    p95_ms: Option<f64>,
    cv: Option<Sourced<f64>>,
    cpu_ms: Option<Sourced<f64>>,
    workers: Option<Sourced<u32>>,
    threads: Option<Sourced<u32>>,
    fibers: Option<Sourced<u32>>,
    cores: Option<Sourced<f64>>,
    price: Option<Price>,
    sizes: Vec<Size>,
    slo: Option<Slo>,
    headroom: Option<f64>,
    burst: Option<u64>,
    backlog: Option<u64>,
    router_timeout_ms: Option<f64>,
}

/// The input of the calculation.
#[derive(Debug)]
pub(crate) struct Inputs {
    pub facts: TrafficFacts,
    pub sizes: Vec<Size>,
    /// Name, value and origin, for display.
    pub origins: Vec<(&'static str, Sourced<String>)>,
    pub notes: Vec<String>,
    /// `None` where the source has no value.
    pub memory: Option<Sourced<Memory>>,
}

impl Options {
    /// Parses the flags; error messages name the flag.
    pub fn read(matches: &ArgMatches) -> Result<Options, String> {
        let flags = Flags(matches);
        let whole = |text: &str| units::count(text, 1, 10_000, "2").map(|n| n as u32);
        Ok(Options {
            from: flags.text("from").or_else(|| matches.get_flag("live").then(|| ".".to_owned())),
            look_ms: flags.read("look", |text| units::time(text, "10s"))?,
            token: flags.text("token"),
            live: matches.get_flag("live"),
            explain: matches.get_flag("explain"),
            json: matches.get_flag("json"),
            helm: matches.get_flag("helm"),
            instances: flags
                .read("instances", |text| units::count(text, 1, 1_000_000, "2").map(|n| n as u32))?,
            rate: flags.known("rate", units::rate)?,
            average_rate: flags.known("average-rate", units::rate)?,
            response_ms: flags.known("response-time", |text| units::time(text, "7ms"))?,
            p95_ms: flags.read("p95", |text| units::time(text, "35ms"))?,
            cv: flags.known("cv", |text| units::number(text, 0.0, 100.0, "1.2"))?,
            cpu_ms: flags.known("cpu-time", |text| units::time(text, "3ms"))?,
            workers: flags.known("workers", whole)?,
            threads: flags.known("threads", whole)?,
            fibers: flags.known("fibers", fibers)?,
            cores: flags.known("cores", cores)?,
            price: flags.read("instance-cost", units::price)?,
            sizes: flags
                .all("size")
                .map(|text| size(&text).map_err(|why| format!("--size: {why}")))
                .collect::<Result<_, _>>()?,
            slo: flags.read("slo", |text| text.parse::<Slo>())?,
            headroom: flags.read("headroom", units::percent)?,
            burst: flags.read("burst", |text| units::count(text, 0, 1_000_000_000, "500"))?,
            backlog: flags.read("backlog", |text| units::count(text, 0, 1_000_000_000, "1024"))?,
            router_timeout_ms: flags.read("router-timeout", |text| units::time(text, "30s"))?,
        })
    }

    /// Combines the flags with the facts of a source.
    pub fn with(&self, found: &SourceFacts) -> Result<Inputs, String> {
        let mut origins = Origins::default();
        let mut notes = found.notes.clone();
        let rate = self
            .rate
            .clone()
            .or_else(|| found.rate.clone())
            .ok_or_else(|| missing(found, "the request rate", "--rate 375/min for the busiest minute"))?;
        let response = self.response_ms.clone().or_else(|| found.response_ms.clone());
        let response = response.ok_or_else(|| {
            missing(found, "the response time", "--response-time 7ms for the mean time in the app")
        })?;
        let cv = self.variation(&response, found)?;
        let cpu = self.cpu(&response, found, &mut notes)?;
        origins.add("rate", &rate, |rate| format!("{}/s", figure(rate)));
        origins.add("response time", &response, millis);
        origins.add("variation", &cv, figure);
        if let Some(cpu) = &cpu {
            origins.add("CPU time", cpu, millis);
        }
        let mut facts = TrafficFacts::new(rate.value, response.value);
        facts.cv = cv.value;
        facts.cpu_ms = cpu.map(|cpu| cpu.value);
        facts.slo = self.slo;
        let average =
            self.average_rate.clone().or_else(|| found.average_rate.clone().filter(|_| self.rate.is_none()));
        if let Some(average) = average {
            if average.value > rate.value {
                return Err(format!(
                    "--average-rate: {}/s is more than the busiest minute's {}/s",
                    figure(average.value),
                    figure(rate.value)
                ));
            }
            origins.add("average rate", &average, |rate| format!("{}/s", figure(rate)));
            facts.average_rate_per_s = Some(average.value);
        }
        facts.headroom = self.headroom.unwrap_or(facts.headroom);
        facts.burst = self.burst.unwrap_or(facts.burst);
        facts.backlog = self.backlog.unwrap_or(facts.backlog);
        facts.router_timeout_ms = self.router_timeout_ms.unwrap_or(facts.router_timeout_ms);
        let sizes = self.sizes(found, &mut origins)?;
        let shape_known = found.workers.is_some()
            || self.workers.is_some()
            || self.threads.is_some()
            || !self.sizes.is_empty();
        if !found.source.is_empty() && !shape_known {
            notes.push(format!(
                "{} does not contain the number of workers and threads: assuming one of each. Give --workers and --threads.",
                found.source
            ));
        }
        if facts.cpu_ms.is_none() && sizes.iter().any(|size| size.threads > 1) {
            notes.push("Threads are assumed to run in parallel without limit, as they do if requests mostly wait. Give --cpu-time if they compute.".to_owned());
        }
        Ok(Inputs { facts, sizes, origins: origins.0, notes, memory: found.memory.clone() })
    }

    fn variation(&self, response: &Sourced<f64>, found: &SourceFacts) -> Result<Sourced<f64>, String> {
        if let Some(cv) = &self.cv {
            return Ok(cv.clone());
        }
        if let Some(p95) = self.p95_ms {
            return from_p95(response.value, p95);
        }
        let usual =
            || Sourced::new(1.0, "assumed: exponential (many short, some long); set it with --p95 or --cv");
        Ok(found.cv.clone().unwrap_or_else(usual))
    }

    /// Returns the CPU time. A measured value above the given response time belongs to other requests and is ignored.
    fn cpu(
        &self,
        response: &Sourced<f64>,
        found: &SourceFacts,
        notes: &mut Vec<String>,
    ) -> Result<Option<Sourced<f64>>, String> {
        match (&self.cpu_ms, &found.cpu_ms) {
            (Some(cpu), _) if cpu.value > response.value => Err(format!(
                "--cpu-time: {} exceeds the response time ({}); it is the part of the response time spent on the CPU",
                millis(cpu.value),
                millis(response.value)
            )),
            (Some(cpu), _) => Ok(Some(cpu.clone())),
            (None, Some(cpu)) if cpu.value > response.value => {
                notes.push(format!(
                    "The measured CPU time ({}) exceeds the response time and is ignored.",
                    millis(cpu.value)
                ));
                Ok(None)
            }
            (None, cpu) => Ok(cpu.clone()),
        }
    }

    fn sizes(&self, found: &SourceFacts, origins: &mut Origins) -> Result<Vec<Size>, String> {
        if !self.sizes.is_empty() {
            let clash = [
                ("--workers", self.workers.is_some()),
                ("--threads", self.threads.is_some()),
                ("--fibers", self.fibers.is_some()),
                ("--cores", self.cores.is_some()),
                ("--instance-cost", self.price.is_some()),
            ];
            if let Some((flag, _)) = clash.iter().find(|(_, given)| *given) {
                return Err(format!("{flag} cannot be used with --size, which sets it for each size"));
            }
            return Ok(self.sizes.clone());
        }
        let one = || Sourced::new(1, "assumed");
        let workers = self.workers.clone().or_else(|| found.workers.clone()).unwrap_or_else(one);
        let threads = self.threads.clone().or_else(|| found.threads.clone()).unwrap_or_else(one);
        let cores = self.cores.clone().or_else(|| found.cores.clone());
        origins.add("workers", &workers, |n| n.to_string());
        origins.add("threads per worker", &threads, |n| n.to_string());
        let fibers = self.fibers.clone().or_else(|| found.fibers.clone()).filter(|fibers| fibers.value > 0);
        if let Some(fibers) = &fibers {
            origins.add("fibers per thread", fibers, |n| n.to_string());
        }
        if let Some(cores) = &cores {
            origins.add("cores", cores, figure);
        }
        let (workers, threads, cores) = (workers.value, threads.value, cores.map(|cores| cores.value));
        let fibers = fibers.map_or(0, |fibers| fibers.value);
        Ok(vec![Size { name: None, workers, threads, fibers, cores, price: self.price.clone() }])
    }
}

#[derive(Default)]
struct Origins(Vec<(&'static str, Sourced<String>)>);

impl Origins {
    fn add<T: Copy>(&mut self, name: &'static str, known: &Sourced<T>, text: impl Fn(T) -> String) {
        self.0.push((name, Sourced::new(text(known.value), known.from.clone())));
    }
}

/// Returns the error message for a missing fact.
fn missing(found: &SourceFacts, what: &str, how: &str) -> String {
    match found.source.as_str() {
        "" => {
            format!(
                "{what} is required: give {how}, or --from with a log, a bench result or a running server"
            )
        }
        source => format!("{source} does not contain {what}: give {how}"),
    }
}

fn from_p95(mean: f64, p95: f64) -> Result<Sourced<f64>, String> {
    match cv_from_p95(mean, p95) {
        FromP95::Cv(cv) => Ok(Sourced::new(
            cv,
            format!(
                "--p95: gamma distribution with mean {} and 95th percentile {}",
                millis(mean),
                millis(p95)
            ),
        )),
        FromP95::AtLeast(cv) => Ok(Sourced::new(
            cv,
            format!(
                "--p95: a lower bound, because {} is more than 5.8 times the mean; use --cv or --from with a log",
                millis(p95)
            ),
        )),
        FromP95::Impossible => Err(format!(
            "--p95: {} is impossible with a mean of {}: the slowest 5 % alone would make it larger; check the units",
            millis(p95),
            millis(mean)
        )),
        FromP95::BelowMean => Err(format!(
            "--p95: {} is below the mean of {}: check that both are of the same requests, and not swapped",
            millis(p95),
            millis(mean)
        )),
    }
}

/// Parses a number of fibers; 0 for `off`.
fn fibers(text: &str) -> Result<u32, String> {
    if text.trim() == "off" {
        return Ok(0);
    }
    units::count(text, 1, 30_000, "1000").map(|n| n as u32).map_err(|why| format!("{why}, or off"))
}

fn cores(text: &str) -> Result<f64, String> {
    units::number(text, 0.01, 10_000.0, "2 or 0.5")
}

/// Parses `NAME:WORKERSxTHREADS[xFIBERS][:CORES]:PRICE`.
fn size(text: &str) -> Result<Size, String> {
    let expected = || {
        format!(
            "`{text}` is not a size; expected NAME:WORKERSxTHREADS:PRICE, e.g. small:2x5:7/month, with cores small:2x5:1core:7/month, or with fibers small:2x1x1000:7/month"
        )
    };
    let parts: Vec<&str> = text.split(':').map(str::trim).collect();
    let (name, shape, cores_text, price) = match parts[..] {
        [name, shape, price] => (name, shape, None, price),
        [name, shape, cores, price] => (name, shape, Some(cores), price),
        _ => return Err(expected()),
    };
    let (workers, threads) = shape.split_once(['x', 'X', '×']).ok_or_else(expected)?;
    let (threads, fibers) = threads
        .split_once(['x', 'X', '×'])
        .map_or((threads, None), |(threads, fibers)| (threads, Some(fibers)));
    let whole = |text: &str| {
        units::count(text, 1, 10_000, "2")
            .map(|n| n as u32)
            .map_err(|why| format!("`{text}` in `{shape}`: {why}"))
    };
    let plain = |text: &str| {
        text.trim_end_matches("cores")
            .trim_end_matches("core")
            .trim_end_matches("cpus")
            .trim_end_matches("cpu")
            .trim()
            .to_owned()
    };
    if name.is_empty() {
        return Err(expected());
    }
    Ok(Size {
        name: Some(name.to_owned()),
        workers: whole(workers)?,
        threads: whole(threads)?,
        fibers: fibers
            .map(|text| self::fibers(text).map_err(|why| format!("`{text}` in `{shape}`: {why}")))
            .transpose()?
            .unwrap_or(0),
        cores: cores_text.map(|text| cores(&plain(text))).transpose()?,
        price: Some(units::price(price)?),
    })
}

struct Flags<'a>(&'a ArgMatches);

impl Flags<'_> {
    fn text(&self, name: &str) -> Option<String> {
        self.0.get_one::<String>(name).cloned()
    }

    fn all(&self, name: &str) -> impl Iterator<Item = String> {
        self.0.get_many::<String>(name).into_iter().flatten().cloned()
    }

    fn read<T>(&self, name: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, String> {
        self.text(name).map(|text| read(&text).map_err(|why| format!("--{name}: {why}"))).transpose()
    }

    fn known<T>(
        &self,
        name: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<Sourced<T>>, String> {
        let from = || format!("--{name} {}", self.text(name).unwrap_or_default());
        Ok(self.read(name, read)?.map(|value| Sourced::new(value, from())))
    }
}

/// Hours per month in prices.
pub(crate) const MONTH: f64 = facts::MONTH_HOURS;

#[cfg(test)]
mod tests {
    use super::*;

    fn given(words: &[&str]) -> Result<Options, String> {
        let command = crate::arguments::arguments(clap::Command::new("plan"));
        Options::read(
            &command.try_get_matches_from([&["plan"], words].concat()).map_err(|error| error.to_string())?,
        )
    }

    fn inputs(words: &[&str], found: &SourceFacts) -> Result<Inputs, String> {
        given(words)?.with(found)
    }

    #[test]
    fn error_messages_name_the_flag_and_the_solution() {
        let cases: [(&[&str], &str); 14] = [
            (&[], "--rate 375/min"),
            (&["--rate", "5/s"], "--response-time 7ms"),
            (&["--rate", "0/s", "--response-time", "7ms"], "0 requests per second need no server"),
            (&["--rate", "-5/s", "--response-time", "7ms"], "--rate: `-5/s`"),
            (&["--rate", "5/s", "--response-time", "7"], "write 7ms or 7s"),
            (&["--rate", "5/s", "--response-time", "NaN"], "--response-time"),
            (&["--rate", "5/s", "--response-time", "7ms", "--p95", "5ms"], "below the mean"),
            (&["--rate", "5/s", "--response-time", "7ms", "--p95", "5s"], "is impossible"),
            (&["--rate", "5/s", "--response-time", "7ms", "--cpu-time", "9ms"], "exceeds the response time"),
            (&["--rate", "5/s", "--response-time", "7ms", "--workers", "0"], "at least 1"),
            (&["--rate", "5/s", "--response-time", "7ms", "--slo", "95%<1s"], "p95<200ms"),
            (&["--rate", "5/s", "--response-time", "7ms", "--size", "small:2:7"], "small:2x5:7/month"),
            (
                &["--rate", "5/s", "--response-time", "7ms", "--size", "a:1x1:7/month", "--workers", "2"],
                "--workers cannot be used with --size",
            ),
            (&["--rate", "5/s", "--response-time", "7ms", "--average-rate", "9/s"], "more than the busiest"),
        ];
        for (words, expected) in cases {
            let error = inputs(words, &SourceFacts::default()).unwrap_err();
            assert!(error.contains(expected), "{words:?}: {error}");
        }
    }

    #[test]
    fn flags_override_the_source_which_overrides_defaults() {
        let found = SourceFacts {
            source: "the log".to_owned(),
            rate: Some(Sourced::new(9.0, "log")),
            response_ms: Some(Sourced::new(50.0, "log")),
            cv: Some(Sourced::new(2.0, "log")),
            cpu_ms: Some(Sourced::new(20.0, "log")),
            ..SourceFacts::default()
        };
        let both = inputs(&["--rate", "5/s", "--workers", "3"], &found).unwrap();
        assert_eq!((both.facts.rate_per_s, both.facts.response_ms, both.facts.cv), (5.0, 50.0, 2.0));
        assert_eq!((both.sizes[0].workers, both.sizes[0].threads, both.facts.cpu_ms), (3, 1, Some(20.0)));
        assert_eq!(both.origins[0], ("rate", Sourced::new("5/s".to_owned(), "--rate 5/s")));
        assert_eq!(both.origins[1].1.from, "log");
        let shorter = inputs(&["--response-time", "7ms", "--p95", "35ms"], &found).unwrap();
        assert_eq!(shorter.facts.cpu_ms, None, "CPU time of other requests");
        assert!(
            shorter.facts.cv > 1.5 && shorter.notes.iter().any(|note| note.contains("CPU time")),
            "{shorter:?}"
        );
        let nothing = SourceFacts { source: "the log".to_owned(), ..SourceFacts::default() };
        assert!(inputs(&[], &nothing).unwrap_err().starts_with("the log does not contain the request rate"));
    }

    #[test]
    fn fibers_come_from_the_flag_or_the_source_and_take_a_cpu_time() {
        let found = SourceFacts {
            source: "the server".to_owned(),
            rate: Some(Sourced::new(9.0, "it")),
            response_ms: Some(Sourced::new(50.0, "it")),
            cpu_ms: Some(Sourced::new(1.0, "it")),
            workers: Some(Sourced::new(2, "it")),
            threads: Some(Sourced::new(1, "it")),
            fibers: Some(Sourced::new(500, "it")),
            ..SourceFacts::default()
        };
        let both = inputs(&[], &found).unwrap();
        assert_eq!((both.sizes[0].fibers, both.sizes[0].seats()), (500, 1_000));
        assert!(both.origins.iter().any(|(name, text)| *name == "fibers per thread" && text.value == "500"));
        assert_eq!(inputs(&["--fibers", "off"], &found).unwrap().sizes[0].fibers, 0);
        assert!(inputs(&["--fibers", "0"], &found).unwrap_err().starts_with("--fibers"));
        let unknown = inputs(&[], &SourceFacts { cpu_ms: None, ..found }).unwrap();
        let error = planner::size_up(&unknown.facts, &unknown.sizes[0], None).unwrap_err();
        assert!(error.0.contains("--cpu-time"), "{}", error.0);
    }

    #[test]
    fn sizes_are_parsed() {
        let small = size("small: 2x5 : 0.5 cores : $7/month").unwrap();
        assert_eq!(
            (small.workers, small.threads, small.cores, small.price.unwrap().per_month),
            (2, 5, Some(0.5), 7.0)
        );
        let fibers = size("a:2x1x1000:7/month").unwrap();
        assert_eq!((fibers.workers, fibers.threads, fibers.fibers), (2, 1, 1_000));
        for wrong in [
            "",
            "a",
            "a:b",
            "a:2x5",
            "a:2x5x0:7/month",
            "a:2x5x9x9:7/month",
            ":2x5:7/month",
            "a:2x0:7/month",
            "a:2x5:7",
            "a:2x5:x:7/month",
            "a:b:c:d:e",
        ] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
