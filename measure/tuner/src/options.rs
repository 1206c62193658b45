//! The validated command line. Code that gets these options does not check them again.
//!
//! Contract: all errors are found before anything is started, and reported together; each names its flag.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ArgMatches;
use load::inputs;
use load::scenario::Stage;
use planner::{Budget, Shape, Slo};

use crate::server::ServerKind;

#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The app's folder, absolute.
    pub(crate) dir: PathBuf,
    pub(crate) shapes: Shapes,
    pub(crate) load: LoadOptions,
    pub(crate) budget: Budget,
    pub(crate) servers: Vec<ServerKind>,
    pub(crate) environment: String,
    pub(crate) boot_timeout: Duration,
    pub(crate) output: Output,
}

/// The cells to measure.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shapes {
    /// `None` is auto.
    pub(crate) processes: Option<Vec<u32>>,
    /// `None` is auto.
    pub(crate) threads: Option<Vec<u32>>,
    /// `None` is auto, but not for a table of all combinations.
    pub(crate) fibers: Option<Fibers>,
    /// Whether to measure only the decisive cells.
    pub(crate) few: bool,
    /// The most parts per cell.
    pub(crate) repeats: u32,
    /// The largest accepted relative difference between the parts of a cell.
    pub(crate) spread: f64,
}

/// The numbers of fibers to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fibers {
    /// As many as there are users, if the app waits enough.
    Auto,
    /// No fibers.
    Off,
    /// These numbers, whatever the app does.
    List(Vec<u32>),
}

impl Shapes {
    /// Returns all cells of the lists, in the given order; `None` unless the lists of processes and threads are given.
    pub(crate) fn grid(&self) -> Option<Vec<Shape>> {
        let (processes, threads) = (self.processes.as_ref()?, self.threads.as_ref()?);
        let shapes = || processes.iter().flat_map(|p| threads.iter().map(|t| Shape::new(*p, *t)));
        let list = match &self.fibers {
            Some(Fibers::List(list)) => list.as_slice(),
            _ => &[],
        };
        let with = list.iter().flat_map(|fibers| shapes().map(|shape| shape.with_fibers(*fibers)));
        Some(shapes().chain(with).collect())
    }
}

/// The load of each cell.
#[derive(Debug, Clone)]
pub(crate) struct LoadOptions {
    pub(crate) users: usize,
    pub(crate) amount: Amount,
    pub(crate) think: Duration,
    /// Rates of the open model, instead of users.
    pub(crate) open: Option<Vec<Stage>>,
    pub(crate) warm_up: Amount,
    pub(crate) requests: Vec<load::scenario::Request>,
    pub(crate) timeout: Duration,
}

/// A number of requests or a duration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Amount {
    Requests(u64),
    Time(Duration),
}

/// The targets of the results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) write: bool,
    /// Whether to recommend shapes that were measured while other programs used the CPU.
    pub(crate) noisy: bool,
    pub(crate) html: Option<PathBuf>,
    pub(crate) json: Option<PathBuf>,
    pub(crate) json_only: bool,
    pub(crate) quiet: bool,
}

const USERS: u64 = 30;
const REQUESTS: u64 = 600;
const MOST_PROCESSES: u32 = 1_024;
const MOST_THREADS: u32 = 512;
const MOST_FIBERS: u32 = 30_000;

/// Reads the command line.
///
/// # Errors
/// All mistakes, one sentence each.
pub(crate) fn read(matches: &ArgMatches) -> Result<Options, Vec<String>> {
    let mut parser = Parser { matches, mistakes: Vec::new() };
    let (dir, load) = (parser.dir(), parser.load());
    let options = Options {
        dir,
        shapes: parser.shapes(),
        load,
        budget: parser.budget(),
        servers: parser.servers(),
        environment: parser.text("environment").unwrap_or("production").to_owned(),
        boot_timeout: parser.time("boot-timeout", 60),
        output: parser.output(),
    };
    parser.contradictions(&options);
    if parser.mistakes.is_empty() { Ok(options) } else { Err(parser.mistakes) }
}

/// The matches, and the mistakes found so far.
struct Parser<'a> {
    matches: &'a ArgMatches,
    mistakes: Vec<String>,
}

impl<'a> Parser<'a> {
    fn text(&self, name: &str) -> Option<&'a str> {
        self.matches.get_one::<String>(name).map(String::as_str)
    }

    fn texts(&self, name: &str) -> Vec<&'a str> {
        self.matches.get_many::<String>(name).into_iter().flatten().map(String::as_str).collect()
    }

    /// Returns the parsed value of a flag. An invalid value is recorded as a mistake and counts as absent.
    fn value<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        match read(self.text(name)?) {
            Ok(value) => Some(value),
            Err(why) => {
                self.mistakes.push(format!("--{name}: {why}"));
                None
            }
        }
    }

    fn time(&mut self, name: &str, default_seconds: u64) -> Duration {
        let read = |text: &str| match inputs::duration(text) {
            Ok(time) if time.is_zero() => {
                Err(format!("{text:?} is not above 0; expected a time such as 30s"))
            }
            other => other,
        };
        self.value(name, read).unwrap_or(Duration::from_secs(default_seconds))
    }

    fn dir(&mut self) -> PathBuf {
        let given = Path::new(self.text("app").unwrap_or("."));
        let dir = match given.canonicalize() {
            Ok(path) if path.is_file() => path.parent().map(Path::to_path_buf).unwrap_or(path),
            Ok(path) => path,
            Err(error) => {
                self.mistakes.push(format!("{}: {error}; expected the folder of an app", given.display()));
                return given.to_path_buf();
            }
        };
        if !dir.join("config.ru").is_file() {
            let dir = dir.display();
            self.mistakes.push(format!(
                "{dir}: no config.ru found; expected the folder of an app: firebrick tune path/to/app"
            ));
        }
        dir
    }

    fn shapes(&mut self) -> Shapes {
        let processes = self.value("workers", |text| numbers(text, MOST_PROCESSES, "1,2,10")).flatten();
        let threads = self.value("threads", |text| numbers(text, MOST_THREADS, "1,10,100")).flatten();
        let fibers = self.value("fibers", fibers);
        let repeats = self.value("repeats", |text| match text.parse() {
            Ok(repeats @ 1..=100) => Ok(repeats),
            _ => Err(format!("{text:?} is not a number of repeats; expected 1 to 100")),
        });
        let spread = self.value("spread", percent);
        let few = self.matches.get_flag("auto") || processes.is_none() || threads.is_none();
        Shapes {
            processes,
            threads,
            fibers,
            few,
            repeats: repeats.unwrap_or(5),
            spread: spread.unwrap_or(0.1),
        }
    }

    fn load(&mut self) -> LoadOptions {
        let users = self.value("connections", inputs::count).unwrap_or(USERS);
        if users > 15_000 {
            self.mistakes.push(format!(
                "--connections: {users} is more than one machine can open; expected at most 15000"
            ));
        }
        let requests = self.value("requests", inputs::count);
        let duration = self.text("duration").map(|_| self.time("duration", 10));
        let amount = match (duration, requests) {
            (Some(time), _) => Amount::Time(time),
            (None, requests) => Amount::Requests(requests.unwrap_or(REQUESTS)),
        };
        let warm_up = self.value("warm-up", |text| match text.parse::<u64>() {
            Ok(requests) => Ok(Amount::Requests(requests)),
            Err(_) => inputs::duration(text).map(Amount::Time).map_err(|_| {
                format!(
                    "{text:?} is neither a number of requests nor a time; expected a value such as 50 or 2s"
                )
            }),
        });
        LoadOptions {
            users: usize::try_from(users).unwrap_or(usize::MAX),
            amount,
            think: self.value("think", inputs::duration).unwrap_or_default(),
            open: self.value("open-rate", inputs::stages),
            warm_up: warm_up.unwrap_or(match amount {
                Amount::Requests(requests) => Amount::Requests((requests / 10).max(1)),
                Amount::Time(time) => Amount::Time(time / 10),
            }),
            requests: self.requests(),
            timeout: self.time("timeout", 60),
        }
    }

    fn requests(&mut self) -> Vec<load::scenario::Request> {
        let headers = self.headers();
        let read = match self.text("urls") {
            Some(file) => crate::requests::urls_file(Path::new(file)),
            None => crate::requests::paths(&self.texts("path")),
        };
        match read {
            Ok(mut requests) => {
                requests.iter_mut().for_each(|request| request.headers.extend(headers.iter().cloned()));
                requests
            }
            Err(mistakes) => {
                self.mistakes.extend(mistakes);
                Vec::new()
            }
        }
    }

    fn headers(&mut self) -> Vec<(String, String)> {
        let mut headers = Vec::new();
        for text in self.texts("header") {
            match crate::requests::header(text) {
                Ok(header) => headers.push(header),
                Err(why) => self.mistakes.push(format!("--header: {why}")),
            }
        }
        headers
    }

    fn budget(&mut self) -> Budget {
        Budget {
            memory_bytes: self.value("memory", |text| match inputs::size(text)? {
                0..1_048_576 => Err(format!(
                    "{text:?} is less than 1 MiB, too little for Ruby; expected a size such as 512MB"
                )),
                bytes => Ok(bytes),
            }),
            cpus: self.value("cpus", cpus),
            db_connections: self.value("db-connections", |text| {
                inputs::count(text)
                    .and_then(|n| u32::try_from(n).map_err(|_| format!("{n} connections are too many")))
            }),
            slo: self.value("slo", |text| text.parse::<Slo>()),
            rate_per_s: self.value("rate", inputs::rate),
        }
    }

    fn servers(&mut self) -> Vec<ServerKind> {
        let words = self.text("against").into_iter().flat_map(|text| text.split(','));
        let mut servers = vec![ServerKind::Firebrick];
        for word in words.map(str::trim) {
            match ServerKind::named(word) {
                Some(kind) if servers.contains(&kind) => {}
                Some(kind) => servers.push(kind),
                None => self.mistakes.push(format!(
                    "--against: {word:?} is not a known server; expected puma, unicorn, webrick or passenger"
                )),
            }
        }
        servers
    }

    fn output(&mut self) -> Output {
        let html = self.target("html");
        let json = self.target("json");
        Output {
            write: self.matches.get_flag("write"),
            noisy: self.matches.get_flag("noisy"),
            html,
            json,
            json_only: self.text("format") == Some("json"),
            quiet: self.matches.get_flag("quiet"),
        }
    }

    /// Returns a file to write. Its folder is checked now rather than after minutes of measuring.
    fn target(&mut self, name: &str) -> Option<PathBuf> {
        let path = PathBuf::from(self.text(name)?);
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_path_buf(),
            _ => PathBuf::from("."),
        };
        if !folder.is_dir() || path.is_dir() {
            self.mistakes.push(format!(
                "--{name}: cannot write {}: expected a file in a folder that exists",
                path.display()
            ));
        }
        Some(path)
    }

    fn contradictions(&mut self, options: &Options) {
        let open = options.load.open.is_some();
        if open && options.shapes.grid().is_none() {
            self.mistakes.push(
                "--open-rate: requires an explicit list of cells, such as --workers 1,2 --threads 1,5"
                    .to_owned(),
            );
        }
        if open && !matches!(options.load.amount, Amount::Time(_)) {
            self.mistakes.push("--open-rate: requires a duration, such as --duration 10s".to_owned());
        }
    }
}

/// Parses `1,2,10`; `None` for `auto`.
fn numbers(text: &str, most: u32, example: &str) -> Result<Option<Vec<u32>>, String> {
    if text.trim() == "auto" {
        return Ok(None);
    }
    let wrong = |word: &str| {
        format!("{word:?} is not a whole number from 1 to {most}; expected a list such as {example}, or auto")
    };
    let mut list = Vec::new();
    for word in text.split(',').map(str::trim) {
        let number =
            word.parse().ok().filter(|number| (1..=most).contains(number)).ok_or_else(|| wrong(word))?;
        if !list.contains(&number) {
            list.push(number);
        }
    }
    Ok(Some(list))
}

/// Parses `100,1000`, `auto` or `off`.
fn fibers(text: &str) -> Result<Fibers, String> {
    if text.trim() == "off" {
        return Ok(Fibers::Off);
    }
    let list = numbers(text, MOST_FIBERS, "100,1000").map_err(|why| format!("{why}, or off"))?;
    Ok(list.map_or(Fibers::Auto, Fibers::List))
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim().parse::<f64>().ok();
    let share = number.map(|percent| percent / 100.0).filter(|share| (0.001..=1.0).contains(share));
    share.ok_or_else(|| format!("{text:?} is not a percentage; expected 0.1% to 100%, such as 10%"))
}

fn cpus(text: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|cpus| (0.01..=4_096.0).contains(cpus));
    number.ok_or_else(|| format!("{text:?} is not a number of CPUs; expected a number such as 2 or 0.5"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(words: &[&str]) -> Result<Options, Vec<String>> {
        let app = tempfile::tempdir().unwrap();
        std::fs::write(app.path().join("config.ru"), "run ->(_) { [200, {}, []] }").unwrap();
        let command = crate::arguments::arguments(clap::Command::new("tune"));
        let all = ["tune", app.path().to_str().unwrap()].into_iter().chain(words.iter().copied());
        read(&command.try_get_matches_from(all).unwrap())
    }

    fn mistakes(words: &[&str]) -> String {
        parsed(words).unwrap_err().join("\n")
    }

    #[test]
    fn defaults_are_thirty_users_and_few_cells() {
        let options = parsed(&[]).unwrap();
        assert!(options.shapes.few);
        assert_eq!(options.shapes.grid(), None);
        assert_eq!((options.load.users, options.load.amount), (30, Amount::Requests(600)));
        assert_eq!(options.load.warm_up, Amount::Requests(60));
        assert_eq!(options.budget, Budget::default());
        assert_eq!(options.servers, [ServerKind::Firebrick]);
    }

    #[test]
    fn a_grid_is_all_pairs() {
        let shapes = parsed(&["-w", "1,2,2", "-t", "1, 10"]).unwrap().shapes;
        let wanted = [(1, 1), (1, 10), (2, 1), (2, 10)].map(|(p, t)| Shape::new(p, t));
        assert_eq!(shapes.grid().unwrap(), wanted);
        assert!(!shapes.few);
        let fibers = parsed(&["-w", "1,2", "-t", "1", "--fibers", "50"]).unwrap().shapes.grid().unwrap();
        assert_eq!(fibers[2..], [Shape::new(1, 1).with_fibers(50), Shape::new(2, 1).with_fibers(50)]);
        assert_eq!(parsed(&["--fibers", "off"]).unwrap().shapes.fibers, Some(Fibers::Off));
        assert_eq!(parsed(&["--fibers", "auto"]).unwrap().shapes.fibers, Some(Fibers::Auto));
        assert!(mistakes(&["--fibers", "0"]).contains("such as 100,1000, or auto, or off"));
        assert!(parsed(&["-w", "1,2", "-t", "1,10", "--auto"]).unwrap().shapes.few);
        assert!(parsed(&["-w", "1,2"]).unwrap().shapes.few);
    }

    #[test]
    fn budgets() {
        let words = [
            "--memory",
            "512MB",
            "--cpus",
            "1.5",
            "--db-connections",
            "20",
            "--slo",
            "p95<200ms",
            "--rate",
            "120/min",
        ];
        let budget = parsed(&words).unwrap().budget;
        assert_eq!(budget.memory_bytes, Some(512_000_000));
        assert_eq!((budget.cpus, budget.db_connections, budget.rate_per_s), (Some(1.5), Some(20), Some(2.0)));
        assert_eq!(budget.slo.map(|slo| slo.under_ms), Some(200.0));
    }

    #[test]
    fn errors_are_reported_together_with_examples() {
        let words = [
            "-w",
            "1,0",
            "-t",
            "x",
            "--memory",
            "5",
            "--slo",
            "fast",
            "--against",
            "puma,thin",
            "--header",
            "X",
        ];
        let errors = mistakes(&words);
        for part in [
            "--workers: \"0\"",
            "--threads: \"x\"",
            "1,10,100",
            "512MB",
            "p95<200ms",
            "\"thin\"",
            "unicorn",
            "--header",
        ] {
            assert!(errors.contains(part), "{part} in {errors}");
        }
    }

    #[test]
    fn contradictions_are_reported() {
        let errors = mistakes(&["--open-rate", "100/s"]);
        assert!(errors.contains("--workers 1,2") && errors.contains("--duration 10s"), "{errors}");
        assert!(mistakes(&["--json", "/nowhere/at/all.json"]).contains("folder that exists"));
    }

    proptest! {
        #[test]
        fn any_text_is_accepted_or_rejected(text in ".{0,12}") {
            let _ = (numbers(&text, 10, "1,2"), percent(&text), cpus(&text));
        }
    }
}
