//! What was typed, read; and what it means together with what a source tells.

use clap::ArgMatches;
use planner::facts::{Facts, Price, Size};
use planner::service::{FromP95, cv_from_p95};
use planner::words::{figure, millis};
use planner::{Slo, facts};

use crate::known::{Found, Known};
use crate::units;

/// What was typed.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub from: Option<String>,
    pub look_ms: Option<f64>,
    pub token: Option<String>,
    pub explain: bool,
    pub json: bool,
    pub instances: Option<u32>,
    rate: Option<Known<f64>>,
    average_rate: Option<Known<f64>>,
    response_ms: Option<Known<f64>>,
    p95_ms: Option<f64>,
    cv: Option<Known<f64>>,
    cpu_ms: Option<Known<f64>>,
    workers: Option<Known<u32>>,
    threads: Option<Known<u32>>,
    cores: Option<Known<f64>>,
    price: Option<Price>,
    sizes: Vec<Size>,
    slo: Option<Slo>,
    headroom: Option<f64>,
    burst: Option<u64>,
    backlog: Option<u64>,
    router_timeout_ms: Option<f64>,
}

/// Everything that the answer starts from.
#[derive(Debug)]
pub(crate) struct Basis {
    pub facts: Facts,
    pub sizes: Vec<Size>,
    /// Name, value and origin, for people.
    pub origins: Vec<(&'static str, Known<String>)>,
    pub notes: Vec<String>,
}

impl Given {
    /// Reads flags; `what is wrong` names the flag.
    pub fn read(matches: &ArgMatches) -> Result<Given, String> {
        let flags = Flags(matches);
        let whole = |text: &str| units::count(text, 1, 10_000, "2").map(|n| n as u32);
        Ok(Given {
            from: flags.text("from"),
            look_ms: flags.read("look", |text| units::time(text, "10s"))?,
            token: flags.text("token"),
            explain: matches.get_flag("explain"),
            json: matches.get_flag("json"),
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

    /// What was typed together with what a source tells.
    pub fn with(&self, found: &Found) -> Result<Basis, String> {
        let mut origins = Origins::default();
        let mut notes = found.notes.clone();
        let rate = self.rate.clone().or_else(|| found.rate.clone()).ok_or_else(|| {
            missing(found, "how many requests come", "--rate 375/min, the busiest minute's")
        })?;
        let response = self.response_ms.clone().or_else(|| found.response_ms.clone());
        let response = response.ok_or_else(|| {
            missing(found, "how long a request takes", "--response-time 7ms, the mean time in the app")
        })?;
        let cv = self.variation(&response, found)?;
        let cpu = self.cpu(&response, found, &mut notes)?;
        origins.add("rate", &rate, |rate| format!("{}/s", figure(rate)));
        origins.add("response time", &response, millis);
        origins.add("variation", &cv, figure);
        if let Some(cpu) = &cpu {
            origins.add("CPU time", cpu, millis);
        }
        let mut facts = Facts::new(rate.value, response.value);
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
                "How many workers and threads there were is not told by {}: one of each is assumed. Give --workers and --threads.",
                found.source
            ));
        }
        if facts.cpu_ms.is_none() && sizes.iter().any(|size| size.threads > 1) {
            notes.push("Threads are taken to run beside each other without limit, as they do when requests mostly wait. Give --cpu-time if they compute.".to_owned());
        }
        Ok(Basis { facts, sizes, origins: origins.0, notes })
    }

    fn variation(&self, response: &Known<f64>, found: &Found) -> Result<Known<f64>, String> {
        if let Some(cv) = &self.cv {
            return Ok(cv.clone());
        }
        if let Some(p95) = self.p95_ms {
            return from_p95(response.value, p95);
        }
        let usual =
            || Known::new(1.0, "assumed: many are short, some long (exponential); --p95 or --cv say it");
        Ok(found.cv.clone().unwrap_or_else(usual))
    }

    /// CPU time that was measured and is longer than the typed response time cannot be of the same requests.
    fn cpu(
        &self,
        response: &Known<f64>,
        found: &Found,
        notes: &mut Vec<String>,
    ) -> Result<Option<Known<f64>>, String> {
        match (&self.cpu_ms, &found.cpu_ms) {
            (Some(cpu), _) if cpu.value > response.value => Err(format!(
                "--cpu-time: {} is longer than the request takes ({}); it is the part of the response time in which the CPU is used",
                millis(cpu.value),
                millis(response.value)
            )),
            (Some(cpu), _) => Ok(Some(cpu.clone())),
            (None, Some(cpu)) if cpu.value > response.value => {
                notes.push(format!(
                    "The measured CPU time ({}) is longer than the response time and is left out.",
                    millis(cpu.value)
                ));
                Ok(None)
            }
            (None, cpu) => Ok(cpu.clone()),
        }
    }

    fn sizes(&self, found: &Found, origins: &mut Origins) -> Result<Vec<Size>, String> {
        if !self.sizes.is_empty() {
            let clash = [
                ("--workers", self.workers.is_some()),
                ("--threads", self.threads.is_some()),
                ("--cores", self.cores.is_some()),
                ("--instance-cost", self.price.is_some()),
            ];
            if let Some((flag, _)) = clash.iter().find(|(_, given)| *given) {
                return Err(format!("{flag}: not together with --size, which says it for each size"));
            }
            return Ok(self.sizes.clone());
        }
        let one = || Known::new(1, "assumed");
        let workers = self.workers.clone().or_else(|| found.workers.clone()).unwrap_or_else(one);
        let threads = self.threads.clone().or_else(|| found.threads.clone()).unwrap_or_else(one);
        let cores = self.cores.clone().or_else(|| found.cores.clone());
        origins.add("workers", &workers, |n| n.to_string());
        origins.add("threads of each", &threads, |n| n.to_string());
        if let Some(cores) = &cores {
            origins.add("cores", cores, figure);
        }
        let (workers, threads, cores) = (workers.value, threads.value, cores.map(|cores| cores.value));
        Ok(vec![Size { name: None, workers, threads, cores, price: self.price.clone() }])
    }
}

#[derive(Default)]
struct Origins(Vec<(&'static str, Known<String>)>);

impl Origins {
    fn add<T: Copy>(&mut self, name: &'static str, known: &Known<T>, text: impl Fn(T) -> String) {
        self.0.push((name, Known::new(text(known.value), known.from.clone())));
    }
}

/// A fact that nobody told.
fn missing(found: &Found, what: &str, how: &str) -> String {
    match found.source.as_str() {
        "" => {
            format!("{what} has to be known: give {how}, or --from with a log, a bench or a running server")
        }
        source => format!("{source} does not tell {what}: give {how}"),
    }
}

fn from_p95(mean: f64, p95: f64) -> Result<Known<f64>, String> {
    match cv_from_p95(mean, p95) {
        FromP95::Cv(cv) => Ok(Known::new(
            cv,
            format!("--p95: gamma distributed, {} on average, 95 % up to {}", millis(mean), millis(p95)),
        )),
        FromP95::AtLeast(cv) => Ok(Known::new(
            cv,
            format!(
                "--p95: at least that, as {} is more than 5.8 times the mean; --cv or --from a log say more",
                millis(p95)
            ),
        )),
        FromP95::Impossible => Err(format!(
            "--p95: {} cannot be when the mean is {}: the slowest 5 % alone would make it larger; is a unit wrong?",
            millis(p95),
            millis(mean)
        )),
        FromP95::BelowMean => Err(format!(
            "--p95: {} is below the mean of {}: are they of the same requests, and not the other way round?",
            millis(p95),
            millis(mean)
        )),
    }
}

fn cores(text: &str) -> Result<f64, String> {
    units::number(text, 0.01, 10_000.0, "2 or 0.5")
}

/// `NAME:WORKERSxTHREADS[:CORES]:PRICE`.
fn size(text: &str) -> Result<Size, String> {
    let expected = || {
        format!(
            "`{text}` is no size; expected NAME:WORKERSxTHREADS:PRICE, e.g. small:2x5:7/month, or with its cores small:2x5:1core:7/month"
        )
    };
    let parts: Vec<&str> = text.split(':').map(str::trim).collect();
    let (name, shape, cores_text, price) = match parts[..] {
        [name, shape, price] => (name, shape, None, price),
        [name, shape, cores, price] => (name, shape, Some(cores), price),
        _ => return Err(expected()),
    };
    let (workers, threads) = shape.split_once(['x', 'X', '×']).ok_or_else(expected)?;
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
    ) -> Result<Option<Known<T>>, String> {
        let from = || format!("--{name} {}", self.text(name).unwrap_or_default());
        Ok(self.read(name, read)?.map(|value| Known::new(value, from())))
    }
}

/// What the month of a price is.
pub(crate) const MONTH: f64 = facts::MONTH_HOURS;

#[cfg(test)]
mod tests {
    use super::*;

    fn given(words: &[&str]) -> Result<Given, String> {
        let command = crate::arguments::arguments(clap::Command::new("plan"));
        Given::read(
            &command.try_get_matches_from([&["plan"], words].concat()).map_err(|error| error.to_string())?,
        )
    }

    fn basis(words: &[&str], found: &Found) -> Result<Basis, String> {
        given(words)?.with(found)
    }

    #[test]
    fn what_is_wrong_names_its_flag_and_the_way_out() {
        let cases: [(&[&str], &str); 14] = [
            (&[], "--rate 375/min"),
            (&["--rate", "5/s"], "--response-time 7ms"),
            (&["--rate", "0/s", "--response-time", "7ms"], "0 requests per second need no server"),
            (&["--rate", "-5/s", "--response-time", "7ms"], "--rate: `-5/s`"),
            (&["--rate", "5/s", "--response-time", "7"], "write 7ms or 7s"),
            (&["--rate", "5/s", "--response-time", "NaN"], "--response-time"),
            (&["--rate", "5/s", "--response-time", "7ms", "--p95", "5ms"], "below the mean"),
            (&["--rate", "5/s", "--response-time", "7ms", "--p95", "5s"], "cannot be"),
            (&["--rate", "5/s", "--response-time", "7ms", "--cpu-time", "9ms"], "longer than the request"),
            (&["--rate", "5/s", "--response-time", "7ms", "--workers", "0"], "at least 1"),
            (&["--rate", "5/s", "--response-time", "7ms", "--slo", "95%<1s"], "p95<200ms"),
            (&["--rate", "5/s", "--response-time", "7ms", "--size", "small:2:7"], "small:2x5:7/month"),
            (
                &["--rate", "5/s", "--response-time", "7ms", "--size", "a:1x1:7/month", "--workers", "2"],
                "--workers: not together with --size",
            ),
            (&["--rate", "5/s", "--response-time", "7ms", "--average-rate", "9/s"], "more than the busiest"),
        ];
        for (words, said) in cases {
            let error = basis(words, &Found::default()).unwrap_err();
            assert!(error.contains(said), "{words:?}: {error}");
        }
    }

    #[test]
    fn typed_goes_before_found_before_usual() {
        let found = Found {
            source: "the log".to_owned(),
            rate: Some(Known::new(9.0, "log")),
            response_ms: Some(Known::new(50.0, "log")),
            cv: Some(Known::new(2.0, "log")),
            cpu_ms: Some(Known::new(20.0, "log")),
            ..Found::default()
        };
        let both = basis(&["--rate", "5/s", "--workers", "3"], &found).unwrap();
        assert_eq!((both.facts.rate_per_s, both.facts.response_ms, both.facts.cv), (5.0, 50.0, 2.0));
        assert_eq!((both.sizes[0].workers, both.sizes[0].threads, both.facts.cpu_ms), (3, 1, Some(20.0)));
        assert_eq!(both.origins[0], ("rate", Known::new("5/s".to_owned(), "--rate 5/s")));
        assert_eq!(both.origins[1].1.from, "log");
        let shorter = basis(&["--response-time", "7ms", "--p95", "35ms"], &found).unwrap();
        assert_eq!(shorter.facts.cpu_ms, None, "CPU time of other requests");
        assert!(
            shorter.facts.cv > 1.5 && shorter.notes.iter().any(|note| note.contains("CPU time")),
            "{shorter:?}"
        );
        let nothing = Found { source: "the log".to_owned(), ..Found::default() };
        assert!(
            basis(&[], &nothing).unwrap_err().starts_with("the log does not tell how many requests come")
        );
    }

    #[test]
    fn sizes_as_they_are_written() {
        let small = size("small: 2x5 : 0.5 cores : $7/month").unwrap();
        assert_eq!(
            (small.workers, small.threads, small.cores, small.price.unwrap().per_month),
            (2, 5, Some(0.5), 7.0)
        );
        for wrong in [
            "",
            "a",
            "a:b",
            "a:2x5",
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
