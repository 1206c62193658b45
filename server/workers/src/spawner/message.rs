//! Encodes and decodes the messages between front and template (`docs/internals/processes.md`).

use super::BootConfig;
use crate::process::ExitStatus;
use settings::puma::{Call, Evaluated, PumaFile, PumaRefusal};
use settings::{
    ControlAddress, ErrorLog, LogFormat, Pool, Restart, Service, ServiceProgram, StatementLimit, StopSignal,
};
use stats::Library;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
pub(super) use wire::template::encode;
use wire::template::{boot, booted, end, order, report};

/// The longest message that is accepted. The text of an exception with its backtrace fits.
const LONGEST: usize = 4 << 20;

/// Facts about the app that a template reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppFacts {
    /// The Ruby engine and version.
    pub ruby: String,
    pub rack: String,
    /// The time that loading took.
    pub took: Duration,
    /// The services declared with `Firebrick.service`.
    pub services: Vec<Service>,
    /// Sentences about settings that have no effect in this Ruby, and about middleware that the server makes needless.
    pub notes: Vec<String>,
    /// How well the app's libraries work with fibers.
    pub libraries: Vec<Library>,
    /// How the app's middleware handles files, one line each.
    pub files: Vec<String>,
    /// The size of its pool of connections to the database, if Active Record has one.
    pub connections: Option<u32>,
}

impl AppFacts {
    /// Returns the notes to log when the server starts. Warnings about libraries are included only if
    /// requests run on `fibers`.
    pub fn notes(&self, fibers: bool) -> impl Iterator<Item = String> {
        let warnings = self.libraries.iter().filter(move |_| fibers).filter_map(Library::warning);
        self.notes.iter().cloned().chain(warnings)
    }
}

/// A report that the app is loaded.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Booted {
    pub(crate) facts: AppFacts,
    /// The processes that the `before_fork` hooks have started.
    pub(crate) jobs: Vec<u32>,
    /// A sentence about the requests that it has repeated; `None` if it got none.
    pub(crate) warmed: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TemplateMessage {
    Booted(Booted),
    /// The same lines from a worker that has loaded the app itself.
    Files(Vec<String>),
    /// The process id of a template that was a worker before; its first message.
    Pid(u32),
    /// A line for the log from a spawner.
    Said(String),
    /// From an attached process: finish the requests and stop.
    Stop,
    /// The processes that the `before_fork` hooks have started when they ran again.
    Jobs(Vec<u32>),
    /// The app is loaded, and the template repeats requests; in a sentence.
    Warming(String),
    /// The backtrace during loading, on request.
    Loading(String),
    /// The app could not be loaded, for this reason.
    Failed(String),
    /// The calls of `puma.rb`, or the reason why it could not be evaluated.
    Configured(Evaluated),
    Forked {
        index: u32,
        pid: u32,
    },
    ForkFailed {
        index: u32,
        text: String,
    },
    Exited {
        pid: u32,
        status: ExitStatus,
        /// The largest resident memory, in KiB.
        peak_kib: u64,
    },
}

/// Builds the `boot` message, with the threads and fibers of this pool.
pub(super) fn boot(
    config: &BootConfig,
    pool: &Pool,
    links: usize,
    slots: usize,
    slot_len: usize,
) -> Vec<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let path = |path: &PathBuf| path.as_os_str().as_bytes().to_vec();
    let number = |number: usize| number.to_string().into_bytes();
    let switch = |on: bool| number(on.into());
    let settings = &config.settings;
    let mut parts: Vec<Vec<u8>> = vec![order::BOOT.into()];
    let mut put = |key: &str, value: Vec<u8>| parts.extend([key.as_bytes().to_vec(), value]);
    put(boot::WIRE, number(wire::VERSION.into()));
    put(boot::APP, path(&config.app));
    put(boot::DIR, path(&settings.dir));
    put(boot::ENVIRONMENT, settings.process.environment.clone().into_bytes());
    if let Some(ControlAddress::Unix(socket)) = settings.control.listen.first() {
        put(boot::CONTROL, path(socket));
    }
    put(boot::THREADS_MIN, number(pool.threads.min.into()));
    put(boot::THREADS_MAX, number(pool.threads.max.into()));
    put(boot::FIBERS, number(pool.fibers as usize));
    put(boot::LINKS, number(links));
    put(boot::SHUTDOWN_MS, number(settings.timeouts.shutdown.as_millis() as usize));
    if settings.timeouts.statement != StatementLimit::Off {
        put(boot::STATEMENT, settings.timeouts.statement.word().into());
        let others = settings.pools.iter().map(|pool| pool.name.as_str());
        for (at, name) in std::iter::once(Pool::DEFAULT).chain(others).enumerate() {
            let limit = settings.timeouts_of(at).1.map_or(0, |limit| limit.as_millis());
            put(boot::WORKER_MS, format!("{limit} {name}").into_bytes());
        }
    }
    put(boot::SLOTS, number(slots));
    put(boot::SLOT_LEN, number(slot_len));
    put(boot::COMPACT, switch(settings.rack.compact));
    put(boot::OUT_OF_BAND_GC, switch(settings.rack.out_of_band_gc));
    put(boot::SLICE_US, number(settings.rack.fiber_slice.map_or(0, |slice| slice.as_micros() as usize)));
    put(boot::BLOCKING_US, number(settings.rack.blocking_call.map_or(0, |limit| limit.as_micros() as usize)));
    put(boot::YJIT, settings.rack.yjit.word().into());
    put(boot::COMPRESSION, switch(settings.compression.responses));
    if settings.hub.path.is_some() {
        put(boot::HUB, path(&settings.hub_socket()));
        settings.hub.rpc.iter().for_each(|rpc| put(boot::HUB_RPC, rpc.as_bytes().to_vec()));
    }
    put(boot::ALLOCATOR, settings.rack.allocator.word().into());
    put(boot::EARLY_HINTS, switch(settings.rack.early_hints));
    if let ErrorLog::File(file) = &settings.logs.error {
        put(boot::ERROR_LOG, path(file));
    }
    put(boot::JSON_LOG, switch(settings.logs.format == LogFormat::Json));
    if let Some(header) = &settings.rack.request_id_header {
        let key = header.to_ascii_uppercase().replace('-', "_");
        put(boot::REQUEST_ID, format!("HTTP_{key}").into_bytes());
    }
    put(boot::TEMP_DIR, path(&settings.process.temp_dir));
    put(boot::TAG, settings.tag.clone().into_bytes());
    put(boot::MAX_HEAD, number(settings.limits.max_response_header_bytes));
    put(boot::RESPONSE_MEMORY, number(settings.limits.response_memory));
    put(boot::RESPONSE_SPOOL, settings.limits.response_spool.to_string().into_bytes());
    settings.rack.warmup.iter().for_each(|target| put(boot::WARMUP, target.clone().into_bytes()));
    let warm_up = &config.warm_up;
    if !warm_up.requests.is_empty() {
        let ms = |time: Duration| number(time.as_millis() as usize);
        put(boot::WARM_MS, ms(warm_up.limit));
        put(boot::WARM_COMPILED_MS, ms(warm_up.compiled));
        put(boot::BOOT_MS, ms(warm_up.boot));
        put(boot::WARM_ANYWAY, switch(warm_up.anyway));
        warm_up.requests.iter().for_each(|request| put(boot::WARM, request.clone()));
    }
    for rule in &settings.sendfile {
        put(boot::SENDFILE, [rule.prefix.as_bytes(), rule.folder.as_os_str().as_bytes()].join(&b'\n'));
    }
    config.replay.iter().for_each(|wish| put(boot::REPLAY, wish.clone()));
    config.unlink.iter().for_each(|file| put(boot::UNLINK, path(file)));
    let names = settings.services.iter().map(|one| format!("{} {}", one.name, one.place));
    names.for_each(|name| put(boot::SERVICE, name.into_bytes()));
    parts
}

pub(super) fn configure(file: &PumaFile) -> Vec<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    let said = |text: &Option<String>| text.clone().unwrap_or_default().into_bytes();
    let path = file.shown.as_os_str().as_bytes().to_vec();
    vec![order::CONFIGURE.into(), path, said(&file.workers), said(&file.environment)]
}

pub(super) fn fork(index: u32, pool: &Pool) -> Vec<Vec<u8>> {
    let numbers = [index, pool.threads.min.into(), pool.threads.max.into(), pool.fibers];
    let numbers = numbers.iter().map(|number| number.to_string().into_bytes());
    list(order::FORK, numbers.chain([pool.name.clone().into_bytes()]))
}

pub(super) fn kill(pid: u32, signal: &str) -> Vec<Vec<u8>> {
    vec![order::KILL.into(), pid.to_string().into_bytes(), signal.as_bytes().to_vec()]
}

pub(super) fn service(words: &[String]) -> Vec<Vec<u8>> {
    list(order::SERVICE, words.iter().map(|word| word.clone().into_bytes()))
}

pub(super) fn exit() -> Vec<Vec<u8>> {
    vec![order::EXIT.into()]
}

/// Run the `before_fork` hooks again, so that their processes start again.
pub(crate) fn before_fork() -> Vec<Vec<u8>> {
    vec![order::BEFORE_FORK.into()]
}

/// Replace the list of files to remove if the front is killed.
pub(crate) fn unlink(files: &[PathBuf]) -> Vec<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    list(order::UNLINK, files.iter().map(|file| file.as_os_str().as_bytes().to_vec()))
}

/// The server listens at these addresses.
pub(crate) fn listening(addresses: &[String]) -> Vec<Vec<u8>> {
    list(order::LISTENING, addresses.iter().map(|address| address.clone().into_bytes()))
}

/// The request of an attached process to stop was received, and the shutdown may take `within`.
pub(crate) fn stopping(within: Duration) -> Vec<Vec<u8>> {
    vec![order::STOPPING.into(), within.as_millis().to_string().into_bytes()]
}

fn list(word: &str, parts: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    std::iter::once(word.as_bytes().to_vec()).chain(parts).collect()
}

/// Returns the first message in `bytes` and its length.
pub(super) fn decode(bytes: &[u8]) -> io::Result<Option<(Vec<String>, usize)>> {
    let Some((len, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    let len = u32::from_le_bytes(*len) as usize;
    if len > LONGEST {
        return Err(unknown(format!("a message of {len} bytes")));
    }
    let text = |part: &[u8]| String::from_utf8_lossy(part).into_owned();
    Ok(rest.get(..len).map(|body| (body.split(|&byte| byte == 0).map(text).collect(), 4 + len)))
}

pub(super) fn interpret(parts: &[String]) -> io::Result<TemplateMessage> {
    fn number<T: std::str::FromStr>(text: &str) -> io::Result<T> {
        text.parse().map_err(|_| unknown(format!("{text:?} where a number belongs")))
    }
    let words: Vec<&str> = parts.iter().map(String::as_str).collect();
    Ok(match *words.as_slice() {
        [report::BOOTED, ref pairs @ ..] => {
            let all = |key: &'static str| pairs.chunks_exact(2).filter(move |pair| pair[0] == key);
            let value = |key| pairs.chunks_exact(2).find(|pair| pair[0] == key).map_or("", |pair| pair[1]);
            let facts = AppFacts {
                ruby: value(booted::RUBY).into(),
                rack: value(booted::RACK).into(),
                took: Duration::from_millis(number(value(booted::MS)).unwrap_or(0)),
                services: services(pairs)?,
                notes: all(booted::NOTE).map(|pair| pair[1].to_owned()).collect(),
                libraries: all(booted::FIBERS).filter_map(|pair| Library::from_fact(pair[1])).collect(),
                files: all(booted::FILES).map(|pair| pair[1].to_owned()).collect(),
                connections: value(booted::CONNECTIONS).parse().ok(),
            };
            TemplateMessage::Booted(Booted {
                facts,
                jobs: all(booted::JOB).map(|pair| number(pair[1])).collect::<io::Result<_>>()?,
                warmed: Some(value(booted::WARMED).to_owned()).filter(|text| !text.is_empty()),
            })
        }
        [report::FILES, ref lines @ ..] => {
            TemplateMessage::Files(lines.iter().map(|line| (*line).to_owned()).collect())
        }
        [report::STOP] => TemplateMessage::Stop,
        [report::WARMING, text] => TemplateMessage::Warming(text.into()),
        [report::LOADING, text] => TemplateMessage::Loading(text.into()),
        [report::JOBS, ref pids @ ..] => {
            TemplateMessage::Jobs(pids.iter().map(|pid| number(pid)).collect::<io::Result<_>>()?)
        }
        [report::PID, pid] => TemplateMessage::Pid(number(pid)?),
        [report::CONFIGURED, ref words @ ..] => {
            TemplateMessage::Configured(Ok(Call::decode(words).map_err(unknown)?))
        }
        [report::UNCONFIGURED, ref words @ ..] => {
            TemplateMessage::Configured(Err(PumaRefusal::decode(words).map_err(unknown)?))
        }
        [report::FAILED, text] => TemplateMessage::Failed(text.into()),
        [report::FORKED, index, pid] => TemplateMessage::Forked { index: number(index)?, pid: number(pid)? },
        [report::FORK_FAILED, index, text] => {
            TemplateMessage::ForkFailed { index: number(index)?, text: text.into() }
        }
        [report::EXITED, pid, how, code, peak] => {
            let status = match how {
                end::EXIT => ExitStatus::Exit(number(code)?),
                end::SIGNAL => ExitStatus::Signal(number(code)?),
                _ => return Err(unknown(format!("exited by {how:?}"))),
            };
            TemplateMessage::Exited { pid: number(pid)?, status, peak_kib: number(peak)? }
        }
        _ => return Err(unknown(format!("{words:?}"))),
    })
}

/// Collects the services from the key-value pairs: `service` begins a new one, and the keys after it belong
/// to it.
fn services(pairs: &[&str]) -> io::Result<Vec<Service>> {
    let mut services: Vec<Service> = Vec::new();
    for (key, value) in pairs.chunks_exact(2).map(|pair| (pair[0], pair[1])) {
        if key == booted::SERVICE {
            services.push(Service::new(value, "", ServiceProgram::Block));
            continue;
        }
        let Some(service) = services.last_mut() else { continue };
        let wrong = || unknown(format!("{key} {value:?} of the service {}", service.name));
        match key {
            booted::PLACE => value.clone_into(&mut service.place),
            booted::RESTART => service.restart = Restart::named(value).ok_or_else(wrong)?,
            booted::STOP_SIGNAL => service.stop_signal = StopSignal::named(value).ok_or_else(wrong)?,
            booted::STOP_TIMEOUT_MS => {
                service.stop_timeout = value.parse().map(Duration::from_millis).map_err(|_| wrong())?;
            }
            booted::PREFIX => service.prefix = value == "1",
            _ => {}
        }
    }
    Ok(services)
}

fn unknown(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the template sent {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(words: &[&str]) -> io::Result<TemplateMessage> {
        let bytes = encode(&words.iter().map(|w| w.as_bytes().to_vec()).collect::<Vec<_>>());
        let (parts, used) = decode(&bytes).unwrap().unwrap();
        assert_eq!(used, bytes.len());
        interpret(&parts)
    }

    /// `firebrick set` starts no workers, so no option that it changes may be part of how they boot.
    #[test]
    fn options_that_change_at_once_are_not_part_of_the_boot() {
        use settings::table::entries;
        use settings::{Argument, ProcessEnvironment, Raw, load, settable};
        const VALUES: [&str; 9] = ["7", "70%", "7s", "7MiB", "on", "off", "/other", "10.7.0.0/16", "false"];
        let message = |arguments: &[Argument]| {
            let settings = std::sync::Arc::new(load(arguments, &ProcessEnvironment).ok()?.settings);
            let config = BootConfig {
                release: 1,
                app: "config.ru".into(),
                lib: "lib".into(),
                settings: settings.clone(),
                environment: Vec::new(),
                unlink: Vec::new(),
                replay: None,
                warm_up: super::super::WarmUp::default(),
                prepared: Default::default(),
            };
            Some((boot(&config, &settings.default_pool(), 1, 1, 1), settings))
        };
        let (booted, now) = message(&[]).unwrap();
        let mut compared = 0;
        for entry in entries().filter(|entry| settable(entry.about().key).is_ok()) {
            let key = entry.about().key;
            let words = entry.words().into_iter().chain(VALUES);
            for word in words.filter(|word| entry.check(&Raw::Word((*word).to_owned())).is_ok()) {
                let argument = Argument { key, flag: key.to_owned(), values: vec![word.to_owned()] };
                if let Some((message, _)) = message(&[argument]).filter(|(_, settings)| *settings != now) {
                    assert_eq!(message, booted, "{key} = {word}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 50, "{compared}");
    }

    #[test]
    fn messages_are_decoded() {
        let fact = "stops\tsqlite3\treads files with the thread";
        let files = vec!["mount\t".to_owned(), "rule\tRack::Static\t/app/public".to_owned()];
        let facts = AppFacts {
            ruby: "ruby 3.1.2".to_owned(),
            rack: "2.2".to_owned(),
            took: Duration::from_millis(12),
            services: Vec::new(),
            notes: vec!["no YJIT".to_owned()],
            libraries: vec![Library::from_fact(fact).unwrap()],
            files: files.clone(),
            connections: Some(5),
        };
        let booted = Booted { facts, jobs: vec![42, 43], warmed: Some("warmed by 8 requests".to_owned()) };
        let booted = TemplateMessage::Booted(booted);
        let words = [
            "booted",
            "rack",
            "2.2",
            "connections",
            "5",
            "warmed",
            "warmed by 8 requests",
            "note",
            "no YJIT",
            "fibers",
            fact,
            "files",
            &files[0],
            "files",
            &files[1],
            "ruby",
            "ruby 3.1.2",
            "ms",
            "12",
            "job",
            "42",
            "job",
            "43",
        ];
        assert_eq!(read(&words).unwrap(), booted);
        assert_eq!(read(&["forked", "0", "42"]).unwrap(), TemplateMessage::Forked { index: 0, pid: 42 });
        assert_eq!(read(&["files", &files[0], &files[1]]).unwrap(), TemplateMessage::Files(files));
        assert_eq!(read(&["stop"]).unwrap(), TemplateMessage::Stop);
        assert_eq!(read(&["loading", "a\nb"]).unwrap(), TemplateMessage::Loading("a\nb".to_owned()));
        assert_eq!(read(&["jobs", "42"]).unwrap(), TemplateMessage::Jobs(vec![42]));
        assert!(read(&["jobs", "x"]).is_err() && read(&["booted", "job", "x"]).is_err());
        assert_eq!(read(&["pid", "42"]).unwrap(), TemplateMessage::Pid(42));
        let exited = TemplateMessage::Exited { pid: 42, status: ExitStatus::Signal(9), peak_kib: 7 };
        assert_eq!(read(&["exited", "42", "signal", "9", "7"]).unwrap(), exited);
    }

    #[test]
    fn services_of_the_app_are_read_with_their_keys() {
        let words = "booted ms 1 service pusher place config.ru:3 restart never stop_signal INT stop_timeout_ms 1500 \
                     prefix 0 service other place config.ru:9";
        let message = read(&words.split_whitespace().collect::<Vec<_>>()).unwrap();
        let TemplateMessage::Booted(Booted { facts, .. }) = message else { panic!("{message:?}") };
        let pusher = Service {
            restart: Restart::Never,
            stop_signal: StopSignal::Int,
            stop_timeout: Duration::from_millis(1500),
            prefix: false,
            ..Service::new("pusher", "config.ru:3", ServiceProgram::Block)
        };
        assert_eq!(facts.services, [pusher, Service::new("other", "config.ru:9", ServiceProgram::Block)]);
        for wrong in ["restart", "stop_signal", "stop_timeout_ms"] {
            let error = read(&["booted", "service", "pusher", wrong, "x"]).unwrap_err();
            assert!(error.to_string().contains("of the service pusher"), "{error}");
        }
    }

    #[test]
    fn what_puma_rb_calls_is_decoded() {
        let call = ["configured", "config/puma.rb", "3", "workers", "0", "1", "i2"];
        let Ok(TemplateMessage::Configured(Ok(calls))) = read(&call) else { panic!("no calls") };
        assert_eq!(calls[0].to_string(), "workers 2");
        let Ok(TemplateMessage::Configured(Err(refusal))) = read(&["unconfigured", "f.rb", "2", "", "no"])
        else {
            panic!("no refusal")
        };
        assert_eq!(refusal.to_string(), "f.rb:2: no");
        assert!(read(&["configured", "x"]).is_err());
        assert_eq!(read(&["configured"]).unwrap(), TemplateMessage::Configured(Ok(Vec::new())));
    }

    #[test]
    fn an_unknown_message_is_quoted() {
        assert!(read(&["forked", "x", "1"]).unwrap_err().to_string().contains("\"x\""));
        assert!(read(&["sang"]).unwrap_err().to_string().contains("sang"));
        assert!(decode(&[0xff; 8]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Some((parts, _))) = decode(&bytes) { let _ = interpret(&parts); }
        }
    }
}
