//! The servers that an app can be run under, and how each is told its shape: the best configuration that it has for it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use planner::Shape;
use serde::{Deserialize, Serialize};

/// Whose processes and threads are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Firebrick,
    Puma,
    Unicorn,
    Webrick,
    Passenger,
}

/// What a server is told.
#[derive(Debug, Clone)]
pub(crate) struct Place<'a> {
    /// The app's folder.
    pub(crate) dir: &'a Path,
    /// A folder for the server's own files, which is removed afterwards.
    pub(crate) temp: &'a Path,
    pub(crate) port: u16,
    pub(crate) environment: &'a str,
    pub(crate) boot_seconds: u64,
}

impl Kind {
    /// The name that people type.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Firebrick => "firebrick",
            Kind::Puma => "puma",
            Kind::Unicorn => "unicorn",
            Kind::Webrick => "webrick",
            Kind::Passenger => "passenger",
        }
    }

    /// The other servers by name.
    pub(crate) fn named(word: &str) -> Option<Kind> {
        [Kind::Puma, Kind::Unicorn, Kind::Webrick, Kind::Passenger]
            .into_iter()
            .find(|kind| kind.name() == word)
    }

    /// Whether it can have this shape at all.
    pub(crate) fn fits(self, shape: Shape) -> bool {
        match self {
            Kind::Firebrick | Kind::Puma => true,
            Kind::Unicorn | Kind::Passenger => shape.threads == 1,
            Kind::Webrick => shape.processes == 1,
        }
    }

    /// Why it does not.
    pub(crate) fn limits(self) -> &'static str {
        match self {
            Kind::Firebrick | Kind::Puma => "",
            Kind::Unicorn => "unicorn has one thread in each process",
            Kind::Passenger => "passenger (open source) has one thread in each process",
            Kind::Webrick => "webrick has one process",
        }
    }

    /// Words that run it and answer its version, in the app's folder; nothing is needed for Firebrick.
    fn asks_version(self, bundled: bool) -> Vec<String> {
        let words: &[&str] = match self {
            Kind::Firebrick => return Vec::new(),
            Kind::Puma => &["puma", "--version"],
            Kind::Unicorn => &["unicorn", "--version"],
            Kind::Webrick => &["ruby", "-e", r#"require "webrick"; require "rack"; puts WEBrick::VERSION"#],
            Kind::Passenger => &["passenger", "--version"],
        };
        with_bundle(bundled, words.iter().map(|word| (*word).to_owned()).collect())
    }

    /// Its version if it can be run for this app; the reason if not.
    pub(crate) fn version(self, dir: &Path) -> Result<String, String> {
        let words = self.asks_version(has_gemfile(dir));
        let Some((program, rest)) = words.split_first() else {
            return Ok(env!("CARGO_PKG_VERSION").to_owned());
        };
        let asked = std::process::Command::new(program)
            .args(rest)
            .current_dir(dir)
            .stdin(std::process::Stdio::null())
            .output();
        let typed = words[..words.len().min(if program == "bundle" { 3 } else { 1 })].join(" ");
        let output = asked.map_err(|error| format!("`{typed}` cannot be run: {error}"))?;
        let text =
            String::from_utf8_lossy(if output.status.success() { &output.stdout } else { &output.stderr })
                .into_owned();
        let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("nothing").trim();
        if output.status.success() {
            let number = line
                .split_whitespace()
                .find(|word| word.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit()));
            Ok(number.unwrap_or(line).trim_start_matches('v').to_owned())
        } else {
            let also = if program == "bundle" {
                "; the app has a Gemfile, so the server has to be in it"
            } else {
                ""
            };
            Err(format!("`{typed}` says: {line}{also}"))
        }
    }

    /// The words that start it with this shape. Files that it needs are written into `place.temp`.
    ///
    /// # Errors
    /// When such a file cannot be written.
    pub(crate) fn command(self, program: &Path, shape: Shape, place: &Place<'_>) -> io::Result<Vec<String>> {
        let words = match self {
            Kind::Firebrick => return Ok(firebrick(program, shape, place)),
            Kind::Puma => puma(shape, place)?,
            Kind::Unicorn => unicorn(shape, place)?,
            Kind::Webrick => webrick(shape, place)?,
            Kind::Passenger => passenger(shape, place),
        };
        Ok(with_bundle(has_gemfile(place.dir), words))
    }
}

fn has_gemfile(dir: &Path) -> bool {
    dir.join("Gemfile").is_file()
}

fn with_bundle(bundled: bool, words: Vec<String>) -> Vec<String> {
    let before = if bundled { vec!["bundle".to_owned(), "exec".to_owned()] } else { Vec::new() };
    before.into_iter().chain(words).collect()
}

/// The control socket of the Firebrick that runs with `temp`.
pub(crate) fn control_socket(temp: &Path) -> PathBuf {
    temp.join("control.sock")
}

fn firebrick(program: &Path, shape: Shape, place: &Place<'_>) -> Vec<String> {
    let text = |path: PathBuf| path.display().to_string();
    let (processes, threads) = (shape.processes, shape.threads);
    // What the file of the app says holds, but for what would meet a server that runs already.
    vec![
        text(program.to_path_buf()),
        "serve".to_owned(),
        text(place.dir.to_path_buf()),
        format!("--bind=tcp://127.0.0.1:{}", place.port),
        format!("--control={}", text(control_socket(place.temp))),
        format!("--pidfile={}", text(place.temp.join("server.pid"))),
        format!("--workers={processes}"),
        format!("--threads={threads}:{threads}"),
        format!("--environment={}", place.environment),
        format!("--worker-boot-timeout={}s", place.boot_seconds),
        "--access-log=off".to_owned(),
        "--error-log=-".to_owned(),
        "--quiet".to_owned(),
    ]
}

fn written(place: &Place<'_>, name: &str, text: &str) -> io::Result<String> {
    let path = place.temp.join(name);
    fs::write(&path, text)?;
    Ok(path.display().to_string())
}

/// With one process Puma runs no cluster, which saves it a process; with more it loads the app once.
fn puma(shape: Shape, place: &Place<'_>) -> io::Result<Vec<String>> {
    let cluster = if shape.processes == 1 {
        String::new()
    } else {
        format!("workers {}\npreload_app!\nworker_boot_timeout {}\n", shape.processes, place.boot_seconds)
    };
    let text = format!(
        "bind 'tcp://127.0.0.1:{}'\nthreads {t}, {t}\nenvironment {}\n{cluster}",
        place.port,
        ruby_string(place.environment),
        t = shape.threads
    );
    let file = written(place, "puma.rb", &text)?;
    Ok(["puma", "--quiet", "-C", &file, "config.ru"].map(str::to_owned).to_vec())
}

fn unicorn(shape: Shape, place: &Place<'_>) -> io::Result<Vec<String>> {
    let text = format!(
        "listen '127.0.0.1:{}', backlog: 1024, tcp_nopush: true\nworker_processes {}\npreload_app true\ntimeout 3600\n",
        place.port, shape.processes
    );
    let file = written(place, "unicorn.rb", &text)?;
    Ok(["unicorn", "-c", &file, "-E", place.environment, "config.ru"].map(str::to_owned).to_vec())
}

/// Through its Rack handler, without an access log and without asking for names of addresses.
fn webrick(shape: Shape, place: &Place<'_>) -> io::Result<Vec<String>> {
    let text = format!(
        r#"require "rack"
require "webrick"
begin
  require "rackup/handler/webrick"
  handler = Rackup::Handler::WEBrick
rescue LoadError
  require "rack/handler/webrick"
  handler = Rack::Handler::WEBrick
end
app, = Rack::Builder.parse_file("config.ru")
%w[INT TERM].each {{ |name| trap(name) {{ handler.shutdown }} }}
handler.run(app, Host: "127.0.0.1", Port: {}, MaxClients: {}, AccessLog: [], DoNotReverseLookup: true,
                 Logger: WEBrick::Log.new($stderr, WEBrick::BasicLog::WARN))
"#,
        place.port, shape.threads
    );
    let file = written(place, "webrick.rb", &text)?;
    Ok(vec!["ruby".to_owned(), file])
}

fn passenger(shape: Shape, place: &Place<'_>) -> Vec<String> {
    let text = |name: &str| place.temp.join(name).display().to_string();
    let size = shape.processes.to_string();
    vec![
        "passenger".to_owned(),
        "start".to_owned(),
        format!("--address=127.0.0.1"),
        format!("--port={}", place.port),
        format!("--environment={}", place.environment),
        format!("--max-pool-size={size}"),
        format!("--min-instances={size}"),
        format!("--instance-registry-dir={}", place.temp.display()),
        format!("--log-file={}", text("passenger.log")),
        format!("--pid-file={}", text("passenger.pid")),
        "--max-request-queue-size=0".to_owned(),
        "--disable-security-update-check".to_owned(),
        "--disable-anonymous-telemetry".to_owned(),
    ]
}

/// A Ruby literal of any text.
fn ruby_string(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_is_told_its_shape() {
        let temp = tempfile::tempdir().unwrap();
        let place =
            Place { dir: temp.path(), temp: temp.path(), port: 4321, environment: "it's", boot_seconds: 60 };
        let words = |kind: Kind, shape| kind.command(Path::new("/bin/firebrick"), shape, &place).unwrap();
        let file = |name: &str| fs::read_to_string(temp.path().join(name)).unwrap();
        let ours = words(Kind::Firebrick, Shape::new(2, 5));
        for word in ["--workers=2", "--threads=5:5", "--bind=tcp://127.0.0.1:4321"] {
            assert!(ours.contains(&word.to_owned()), "{word} in {ours:?}");
        }
        words(Kind::Puma, Shape::new(2, 5));
        assert!(
            file("puma.rb").contains("workers 2\npreload_app!") && file("puma.rb").contains("threads 5, 5")
        );
        assert!(file("puma.rb").contains(r"environment 'it\'s'"));
        words(Kind::Puma, Shape::new(1, 5));
        assert!(!file("puma.rb").contains("workers"), "one process is no cluster");
        words(Kind::Unicorn, Shape::new(3, 1));
        assert!(file("unicorn.rb").contains("worker_processes 3"));
        words(Kind::Webrick, Shape::new(1, 7));
        assert!(file("webrick.rb").contains("MaxClients: 7"));
        assert!(words(Kind::Passenger, Shape::new(3, 1)).contains(&"--max-pool-size=3".to_owned()));
    }

    #[test]
    fn an_app_with_a_gemfile_runs_in_its_bundle() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("Gemfile"), "").unwrap();
        let place = Place {
            dir: temp.path(),
            temp: temp.path(),
            port: 1,
            environment: "production",
            boot_seconds: 60,
        };
        let words = Kind::Puma.command(Path::new("x"), Shape::new(1, 1), &place).unwrap();
        assert_eq!(words[..3], ["bundle", "exec", "puma"]);
    }

    #[test]
    fn shapes_that_a_server_cannot_have() {
        assert!(Kind::Unicorn.fits(Shape::new(4, 1)) && !Kind::Unicorn.fits(Shape::new(4, 2)));
        assert!(Kind::Webrick.fits(Shape::new(1, 9)) && !Kind::Webrick.fits(Shape::new(2, 1)));
        assert!(Kind::named("puma") == Some(Kind::Puma) && Kind::named("firebrick").is_none());
    }
}
