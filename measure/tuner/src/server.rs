//! The supported servers, and the best configuration of each for a shape.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use planner::Shape;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ServerKind {
    Firebrick,
    Puma,
    Unicorn,
    Webrick,
    Passenger,
}

/// The parameters for starting a server.
#[derive(Debug, Clone)]
pub(crate) struct Launch<'a> {
    /// The app's folder.
    pub(crate) dir: &'a Path,
    /// A folder for the server's own files, which is removed afterwards.
    pub(crate) temp: &'a Path,
    pub(crate) port: u16,
    pub(crate) environment: &'a str,
    pub(crate) boot_seconds: u64,
}

impl ServerKind {
    /// Returns the name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ServerKind::Firebrick => "firebrick",
            ServerKind::Puma => "puma",
            ServerKind::Unicorn => "unicorn",
            ServerKind::Webrick => "webrick",
            ServerKind::Passenger => "passenger",
        }
    }

    /// Returns another server by its name.
    pub(crate) fn named(word: &str) -> Option<ServerKind> {
        [ServerKind::Puma, ServerKind::Unicorn, ServerKind::Webrick, ServerKind::Passenger]
            .into_iter()
            .find(|kind| kind.name() == word)
    }

    /// Returns whether the server supports this shape.
    pub(crate) fn fits(self, shape: Shape) -> bool {
        match self {
            ServerKind::Firebrick => true,
            // Fibers of other servers are not comparable.
            _ if shape.fibers > 0 => false,
            ServerKind::Puma => true,
            ServerKind::Unicorn | ServerKind::Passenger => shape.threads == 1,
            ServerKind::Webrick => shape.processes == 1,
        }
    }

    /// Returns why the server supports only some shapes.
    pub(crate) fn limits(self) -> &'static str {
        match self {
            ServerKind::Firebrick | ServerKind::Puma => "",
            ServerKind::Unicorn => "unicorn has one thread per process",
            ServerKind::Passenger => "passenger (open source) has one thread per process",
            ServerKind::Webrick => "webrick has only one process",
        }
    }

    /// Returns the command that prints the server's version, run in the app's folder; empty for Firebrick.
    fn version_command(self, bundled: bool) -> Vec<String> {
        let words: &[&str] = match self {
            ServerKind::Firebrick => return Vec::new(),
            ServerKind::Puma => &["puma", "--version"],
            ServerKind::Unicorn => &["unicorn", "--version"],
            ServerKind::Webrick => {
                &["ruby", "-e", r#"require "webrick"; require "rack"; puts WEBrick::VERSION"#]
            }
            ServerKind::Passenger => &["passenger", "--version"],
        };
        with_bundle(bundled, words.iter().map(|word| (*word).to_owned()).collect())
    }

    /// Returns the server's version if it can run this app, else the reason.
    pub(crate) fn version(self, dir: &Path) -> Result<String, String> {
        let words = self.version_command(has_gemfile(dir));
        let Some((program, rest)) = words.split_first() else {
            return Ok(env!("CARGO_PKG_VERSION").to_owned());
        };
        let result = std::process::Command::new(program)
            .args(rest)
            .current_dir(dir)
            .stdin(std::process::Stdio::null())
            .output();
        let command = words[..words.len().min(if program == "bundle" { 3 } else { 1 })].join(" ");
        let output = result.map_err(|error| format!("cannot run `{command}`: {error}"))?;
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
                "; the app has a Gemfile, which must contain the server"
            } else {
                ""
            };
            Err(format!("`{command}`: {line}{also}"))
        }
    }

    /// Returns the command that starts the server with this shape. Writes the necessary files to `launch.temp`.
    ///
    /// # Errors
    /// Such a file cannot be written.
    pub(crate) fn command(
        self,
        program: &Path,
        shape: Shape,
        launch: &Launch<'_>,
    ) -> io::Result<Vec<String>> {
        let words = match self {
            ServerKind::Firebrick => return firebrick(program, shape, launch),
            ServerKind::Puma => puma(shape, launch)?,
            ServerKind::Unicorn => unicorn(shape, launch)?,
            ServerKind::Webrick => webrick(shape, launch)?,
            ServerKind::Passenger => passenger(shape, launch),
        };
        Ok(with_bundle(has_gemfile(launch.dir), words))
    }
}

fn has_gemfile(dir: &Path) -> bool {
    dir.join("Gemfile").is_file()
}

fn with_bundle(bundled: bool, words: Vec<String>) -> Vec<String> {
    let before = if bundled { vec!["bundle".to_owned(), "exec".to_owned()] } else { Vec::new() };
    before.into_iter().chain(words).collect()
}

/// Returns the control socket of the Firebrick server with this folder.
pub(crate) fn control_socket(temp: &Path) -> PathBuf {
    temp.join("control.sock")
}

fn firebrick(program: &Path, shape: Shape, launch: &Launch<'_>) -> io::Result<Vec<String>> {
    let text = |path: PathBuf| path.display().to_string();
    let (processes, threads) = (shape.processes, shape.threads);
    let fibers = if shape.fibers > 0 { shape.fibers.to_string() } else { "off".to_owned() };
    // The app's own settings apply, except those that would conflict with a running server.
    let mut words = vec![
        text(program.to_path_buf()),
        "serve".to_owned(),
        text(launch.dir.to_path_buf()),
        format!("--bind=tcp://127.0.0.1:{}", launch.port),
        format!("--control={}", text(control_socket(launch.temp))),
        format!("--pidfile={}", text(launch.temp.join("server.pid"))),
        format!("--workers={processes}"),
        format!("--threads={threads}:{threads}"),
        format!("--fibers={fibers}"),
        // Serves all requests in the same way.
        "--fiber-paths=".to_owned(),
        format!("--environment={}", launch.environment),
        format!("--worker-boot-timeout={}s", launch.boot_seconds),
        "--access-log=off".to_owned(),
        "--error-log=-".to_owned(),
        "--quiet".to_owned(),
    ];
    if let Some(settings) = without_pools(launch.dir) {
        words.push(format!("--config={}", write_file(launch, "firebrick.toml", &settings)?));
    }
    Ok(words)
}

/// Returns the app's settings without its pools, if it has any. Settings that cannot be read are left to the server.
fn without_pools(dir: &Path) -> Option<String> {
    let mut file: toml_edit::DocumentMut =
        fs::read_to_string(dir.join("firebrick.toml")).ok()?.parse().ok()?;
    file.remove("pools").map(|_| file.to_string())
}

fn write_file(launch: &Launch<'_>, name: &str, text: &str) -> io::Result<String> {
    let path = launch.temp.join(name);
    fs::write(&path, text)?;
    Ok(path.display().to_string())
}

/// Configures Puma. With one process it runs without a cluster, which saves a process; with more, it preloads the app.
fn puma(shape: Shape, launch: &Launch<'_>) -> io::Result<Vec<String>> {
    let cluster = if shape.processes == 1 {
        String::new()
    } else {
        format!("workers {}\npreload_app!\nworker_boot_timeout {}\n", shape.processes, launch.boot_seconds)
    };
    let text = format!(
        "bind 'tcp://127.0.0.1:{}'\nthreads {t}, {t}\nenvironment {}\n{cluster}",
        launch.port,
        ruby_string(launch.environment),
        t = shape.threads
    );
    let file = write_file(launch, "puma.rb", &text)?;
    Ok(["puma", "--quiet", "-C", &file, "config.ru"].map(str::to_owned).to_vec())
}

fn unicorn(shape: Shape, launch: &Launch<'_>) -> io::Result<Vec<String>> {
    let text = format!(
        "listen '127.0.0.1:{}', backlog: 1024, tcp_nopush: true\nworker_processes {}\npreload_app true\ntimeout 3600\n",
        launch.port, shape.processes
    );
    let file = write_file(launch, "unicorn.rb", &text)?;
    Ok(["unicorn", "-c", &file, "-E", launch.environment, "config.ru"].map(str::to_owned).to_vec())
}

/// Starts WEBrick through its Rack handler, without access log and reverse lookups.
fn webrick(shape: Shape, launch: &Launch<'_>) -> io::Result<Vec<String>> {
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
        launch.port, shape.threads
    );
    let file = write_file(launch, "webrick.rb", &text)?;
    Ok(vec!["ruby".to_owned(), file])
}

fn passenger(shape: Shape, launch: &Launch<'_>) -> Vec<String> {
    let text = |name: &str| launch.temp.join(name).display().to_string();
    let size = shape.processes.to_string();
    vec![
        "passenger".to_owned(),
        "start".to_owned(),
        format!("--address=127.0.0.1"),
        format!("--port={}", launch.port),
        format!("--environment={}", launch.environment),
        format!("--max-pool-size={size}"),
        format!("--min-instances={size}"),
        format!("--instance-registry-dir={}", launch.temp.display()),
        format!("--log-file={}", text("passenger.log")),
        format!("--pid-file={}", text("passenger.pid")),
        "--max-request-queue-size=0".to_owned(),
        "--disable-security-update-check".to_owned(),
        "--disable-anonymous-telemetry".to_owned(),
    ]
}

/// Returns a Ruby string literal.
fn ruby_string(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_is_configured_for_its_shape() {
        let temp = tempfile::tempdir().unwrap();
        let launch =
            Launch { dir: temp.path(), temp: temp.path(), port: 4321, environment: "it's", boot_seconds: 60 };
        let words =
            |kind: ServerKind, shape| kind.command(Path::new("/bin/firebrick"), shape, &launch).unwrap();
        let file = |name: &str| fs::read_to_string(temp.path().join(name)).unwrap();
        let ours = words(ServerKind::Firebrick, Shape::new(2, 5));
        for word in ["--workers=2", "--threads=5:5", "--fibers=off", "--bind=tcp://127.0.0.1:4321"] {
            assert!(ours.contains(&word.to_owned()), "{word} in {ours:?}");
        }
        let fibers = words(ServerKind::Firebrick, Shape::new(2, 1).with_fibers(300));
        assert!(fibers.contains(&"--fibers=300".to_owned()), "{fibers:?}");
        words(ServerKind::Puma, Shape::new(2, 5));
        assert!(
            file("puma.rb").contains("workers 2\npreload_app!") && file("puma.rb").contains("threads 5, 5")
        );
        assert!(file("puma.rb").contains(r"environment 'it\'s'"));
        words(ServerKind::Puma, Shape::new(1, 5));
        assert!(!file("puma.rb").contains("workers"), "one process needs no cluster");
        words(ServerKind::Unicorn, Shape::new(3, 1));
        assert!(file("unicorn.rb").contains("worker_processes 3"));
        words(ServerKind::Webrick, Shape::new(1, 7));
        assert!(file("webrick.rb").contains("MaxClients: 7"));
        assert!(words(ServerKind::Passenger, Shape::new(3, 1)).contains(&"--max-pool-size=3".to_owned()));
    }

    #[test]
    fn an_app_with_a_gemfile_runs_in_its_bundle() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("Gemfile"), "").unwrap();
        let launch = Launch {
            dir: temp.path(),
            temp: temp.path(),
            port: 1,
            environment: "production",
            boot_seconds: 60,
        };
        let words = ServerKind::Puma.command(Path::new("x"), Shape::new(1, 1), &launch).unwrap();
        assert_eq!(words[..3], ["bundle", "exec", "puma"]);
    }

    #[test]
    fn unsupported_shapes() {
        assert!(ServerKind::Unicorn.fits(Shape::new(4, 1)) && !ServerKind::Unicorn.fits(Shape::new(4, 2)));
        assert!(!ServerKind::Puma.fits(Shape::new(1, 1).with_fibers(9)));
        assert!(ServerKind::Webrick.fits(Shape::new(1, 9)) && !ServerKind::Webrick.fits(Shape::new(2, 1)));
        assert!(
            ServerKind::named("puma") == Some(ServerKind::Puma) && ServerKind::named("firebrick").is_none()
        );
    }
}
