//! Starts the workers of a Ruby that cannot fork (JRuby). Each is a separate process that loads the app and
//! connects to the front (docs/internals/wire.md, "Workers that connect"). The spawner takes the place of a
//! [template](super::Template): it reports "booted" at once and "forks" by starting a process.
//!
//! Contract:
//! 1. Only processes that were started here get links: the socket is in a folder that only this user can
//!    access, and each process has a token.
//! 2. A process that is no longer needed before it has a link is dismissed, so that it does not finish
//!    loading the app.
//! 3. A process is reaped as soon as it has ended, and signalled only before that.

use super::message;
use super::prepared::command;
use super::template::TemplateReport;
use super::{AppFacts, BootConfig, Booted, Exit, ServiceOrder, Source, TemplateMessage};
use crate::messages::{Connections, Descriptors, End, NewLink, ThreadMessage};
use crate::os;
use crate::process::{ExitStatus, Generation, Process, WorkerSignal};
use crate::scores::Scores;
use crate::shared::Shared;
use queue::{PoolIndex, Serial};
use rustix::process::{Pid, Signal, kill_process};
use settings::Pool;
use std::collections::HashMap;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use wire::hello::{self, Hello, Role, can};
use wire::{FrameKind, Header, frame::HEADER};

/// The time limit for a new connection to send its HELLO.
const GREETING: Duration = Duration::from_secs(10);
/// The polling interval on systems without pidfd.
const LOOK: Duration = Duration::from_millis(50);
/// The exit code of a process that handles TERM itself.
const TERMINATED: i32 = 128 + 15;
/// JRuby refuses longer socket paths.
const LONGEST_PATH: usize = 103;

/// Starts the workers of a generation. Dropping it only stops listening.
#[derive(Debug)]
pub(crate) struct Spawner {
    common: Arc<Common>,
    acceptor: JoinHandle<()>,
}

#[derive(Debug)]
struct Common {
    generation: Generation,
    config: BootConfig,
    links: usize,
    sizes: (usize, usize),
    folder: PathBuf,
    pool: Arc<Shared>,
    reports: mpsc::UnboundedSender<TemplateReport>,
    /// By token.
    workers: Mutex<HashMap<String, Spawned>>,
}

/// A process that has not been reaped.
#[derive(Debug)]
struct Spawned {
    index: u32,
    serial: Serial,
    pool: (PoolIndex, Pool),
    child: Child,
    /// Kept open, because a closed socket tells the process that the front has gone.
    control: Option<UnixStream>,
    /// Links that still wait for some of their connections.
    links: Vec<Arriving>,
    /// Set if the worker does not write the scoreboard itself.
    scores: Option<Scores>,
    /// Whether the first link has reached its front thread, so that the worker can get DRAIN.
    linked: bool,
    /// Whether the worker is no longer needed.
    dismissed: bool,
}

/// The connections of a link, collected as they arrive.
#[derive(Debug, Default)]
struct Arriving {
    /// For the frames.
    socket: Option<UnixStream>,
    /// For the descriptors, if the worker can send them.
    beside: Option<UnixStream>,
    /// Streams that replace descriptors; more may arrive later.
    streams: Connections,
}

impl Spawner {
    /// Listens for the workers of `generation`, which run the engine `ruby`, and reports the generation as
    /// booted.
    ///
    /// # Errors
    /// Fails if the socket cannot be created.
    pub(crate) fn start(
        generation: Generation,
        config: BootConfig,
        ruby: String,
        (links, sizes): (usize, (usize, usize)),
        pool: Arc<Shared>,
        reports: mpsc::UnboundedSender<TemplateReport>,
    ) -> io::Result<Spawner> {
        let folder = private_folder(&config.settings.process.temp_dir, generation)?;
        let path = socket_in(&folder);
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
        let notes = notes(&config);
        let workers = Mutex::default();
        let common = Arc::new(Common { generation, config, links, sizes, folder, pool, reports, workers });
        let rack = "as each worker loads it".to_owned();
        // Workers report how middleware handles files when they have loaded the app.
        let facts = AppFacts { ruby, rack, notes, ..AppFacts::default() };
        common.report(TemplateMessage::Booted(Booted { facts, ..Booted::default() }));
        let acceptor = tokio::spawn(accept(listener, common.clone()));
        Ok(Spawner { common, acceptor })
    }
}

impl Source for Spawner {
    fn fork(
        &self,
        index: u32,
        serial: Serial,
        (pool, own): (PoolIndex, &Pool),
        _: &[UnixStream],
    ) -> io::Result<()> {
        let common = &self.common;
        let token = token()?;
        let mut load_path = std::ffi::OsString::from("-I");
        load_path.push(&common.config.lib);
        let child = command(&common.config.settings, &common.config.environment)
            .arg(load_path)
            .args(["-rfirebrick/pure/main", "-e", "Firebrick::Pure::Main.run"])
            .env("FIREBRICK_FRONT", socket_in(&common.folder))
            .env("FIREBRICK_TOKEN", &token)
            .env("FIREBRICK_WORKER", index.to_string())
            .spawn()?;
        let pid = child.id();
        let links = (0..common.links).map(|_| Arriving::default()).collect();
        let (control, scores, linked, dismissed) = (None, None, false, false);
        let pool = (pool, own.clone());
        let worker = Spawned { index, serial, pool, child, control, links, scores, linked, dismissed };
        common.workers().insert(token.clone(), worker);
        common.report(TemplateMessage::Forked { index, pid });
        tokio::spawn(reap(common.clone(), token, pid));
        Ok(())
    }

    /// Ends an unneeded worker that has no link yet, and so cannot get DRAIN. This avoids waiting until it
    /// has loaded the app.
    fn dismiss(&self, serial: Serial) {
        let mut workers = self.common.workers();
        let starting = |worker: &&mut Spawned| worker.serial == serial && !worker.linked;
        if let Some(worker) = workers.values_mut().find(starting) {
            worker.dismissed = true;
            worker.links.clear();
            // A worker that already listens gets a message. Closing the socket would mean that the front has
            // gone, and the worker would clean up.
            let _ = worker.control.as_ref().map(|control| os::send(control, [&[0], &[]], &[]));
            // A worker that does not listen yet has no handler for TERM either.
            let _ = kill_process(Pid::from_child(&worker.child), Signal::TERM);
        }
    }

    fn kill(&self, pid: u32, signal: WorkerSignal) -> io::Result<()> {
        let workers = self.common.workers();
        if let Some(worker) = workers.values().find(|worker| worker.child.id() == pid) {
            // The process may have just ended.
            let _ = kill_process(Pid::from_child(&worker.child), signal.number());
        }
        Ok(())
    }

    fn passes_links(&self) -> bool {
        false
    }

    fn service(&self, _: &ServiceOrder) -> io::Result<()> {
        Err(io::Error::other("Firebrick.service needs a Ruby that forks: declare a command in [services]"))
    }

    fn exit(self: Box<Self>) -> Exit<'static> {
        Box::pin(std::future::ready(None))
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.acceptor.abort();
        // The files may have been removed already.
        let _ = std::fs::remove_file(socket_in(&self.common.folder));
        let _ = std::fs::remove_dir(&self.common.folder);
    }
}

impl Common {
    fn workers(&self) -> MutexGuard<'_, HashMap<String, Spawned>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, message: TemplateMessage) {
        // Fails only after the pool has ended.
        let _ = self.reports.send((self.generation, Ok(Some(message))));
    }

    /// Handles a connection that has sent its HELLO.
    fn connected(&self, stream: UnixStream, hello: &Hello<'_>) -> io::Result<()> {
        let mut workers = self.workers();
        // The process was not started here.
        let Ok(token) = std::str::from_utf8(hello.token) else { return Ok(()) };
        let Some(worker) = workers.get_mut(token).filter(|worker| !worker.dismissed) else { return Ok(()) };
        // The worker compares the versions; it gets the front's version with `boot`.
        match hello.role {
            Role::Control => {
                self.boot(&stream, &worker.pool.1, hello.can & can::BESIDE != 0)?;
                let told = stream.try_clone()?;
                worker.control = Some(stream);
                self.listen_to(told);
                return Ok(());
            }
            Role::Link(number) => put(worker, number, |link| link.socket = Some(stream)),
            Role::Beside(number) => put(worker, number, |link| link.beside = Some(stream)),
            Role::Stream(number) => {
                let Some(link) = worker.links.get(usize::from(number)) else { return Ok(()) };
                // The worker waits for this byte before it refers to the connection, so the lock is held
                // until the connection is in the queue.
                let mut streams = link.streams.lock().unwrap_or_else(PoisonError::into_inner);
                os::send(&stream, [&[0], &[]], &[])?;
                streams.push_back(stream.into());
                return Ok(());
            }
        }
        let (serial, index, pool) = (worker.serial, worker.index as u16, worker.pool.0);
        let both = can::BESIDE | can::SCOREBOARD;
        // A worker that cannot be sent descriptors has no access to the scoreboard.
        if hello.can & both != both && worker.scores.is_none() {
            let threads = worker.pool.1.threads.max.into();
            worker.scores = Some(Scores::new(self.pool.scoreboard().clone(), usize::from(index), threads));
        }
        let mut linked = worker.linked;
        for (number, link) in (0u16..).zip(&mut worker.links) {
            let complete = hello.can & can::BESIDE == 0 || link.beside.is_some();
            let Some(socket) = link.socket.take_if(|_| complete) else { continue };
            let descriptors = match link.beside.take() {
                Some(beside) => Descriptors::Beside(beside),
                None => Descriptors::Connections(link.streams.clone()),
            };
            let scores = worker.scores.as_ref().map(|scores| scores.of_link(number));
            let link = NewLink { end: End { serial, pool }, index, socket, descriptors, scores };
            self.pool.mailbox(number).post(ThreadMessage::Link(link));
            // The thread of the first link sends DRAIN.
            linked |= number == 0;
        }
        worker.linked = linked;
        Ok(())
    }

    /// Waits for the worker's report that it has loaded the app, the only message on this connection.
    fn listen_to(&self, control: UnixStream) {
        let (generation, reports) = (self.generation, self.reports.clone());
        drop(tokio::spawn(async move {
            let mut control = tokio::net::UnixStream::from_std(control)?;
            let mut received = Vec::new();
            loop {
                if let Some((words, _)) = message::decode(&received)? {
                    if let Ok(told @ TemplateMessage::Files(_)) = message::interpret(&words) {
                        // Fails only after the pool has ended.
                        let _ = reports.send((generation, Ok(Some(told))));
                    }
                    return Ok::<_, io::Error>(());
                }
                if control.read_buf(&mut received).await? == 0 {
                    return Ok(());
                }
            }
        }));
    }

    /// Sends the scoreboard, if the worker can receive it, and then the `boot` message of a template.
    fn boot(&self, control: &UnixStream, pool: &Pool, with_scoreboard: bool) -> io::Result<()> {
        let scoreboard = [self.pool.scoreboard().memory().as_fd()];
        os::send(control, [&[0], &[]], if with_scoreboard { &scoreboard } else { &[] })?;
        let (slots, slot_len) = self.sizes;
        let bytes = message::encode(&message::boot(&self.config, pool, self.links, slots, slot_len));
        match os::send(control, [&bytes, &[]], &[])? == bytes.len() {
            true => Ok(()),
            false => Err(io::Error::other("the settings do not fit into the socket's buffer")),
        }
    }

    /// Reaps the worker with this token if it has ended, and returns its exit status.
    fn ended(&self, token: &str) -> Option<ExitStatus> {
        let mut workers = self.workers();
        let worker = workers.get_mut(token)?;
        // A process that cannot be waited for does not exist.
        let status = worker.child.try_wait().unwrap_or_else(|_| Some(ExitStatusExt::from_raw(0)))?;
        let status = match (status.code(), status.signal()) {
            // A virtual machine exits on TERM, as ordered.
            (Some(TERMINATED), _) | (_, Some(15)) if worker.dismissed => ExitStatus::Exit(0),
            (Some(code), _) => ExitStatus::Exit(code),
            (None, signal) => ExitStatus::Signal(signal.unwrap_or_default()),
        };
        workers.remove(token);
        Some(status)
    }
}

fn put(worker: &mut Spawned, number: u16, set: impl FnOnce(&mut Arriving)) {
    if let Some(link) = worker.links.get_mut(usize::from(number)) {
        set(link);
    }
}

async fn accept(listener: UnixListener, common: Arc<Common>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(greet(stream, common.clone()))),
            // No descriptors are available at the moment.
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Reads the HELLO of a new connection. A peer that violates the protocol is disconnected and never becomes
/// ready.
async fn greet(mut stream: tokio::net::UnixStream, common: Arc<Common>) {
    let read = async {
        let mut header = [0; HEADER];
        stream.read_exact(&mut header).await?;
        let header = Header::from_bytes(&header).map_err(io::Error::other)?;
        if header.kind != FrameKind::Hello || header.len as usize > hello::LONGEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut payload = vec![0; header.len as usize];
        stream.read_exact(&mut payload).await?;
        Ok::<_, io::Error>(payload)
    };
    let Ok(Ok(payload)) = tokio::time::timeout(GREETING, read).await else { return };
    let (Ok(hello), Ok(stream)) = (Hello::decode(&payload), stream.into_std()) else { return };
    if let Err(error) = common.connected(stream, &hello) {
        common.report(TemplateMessage::Said(format!("a worker that has connected cannot be used: {error}")));
    }
}

/// Waits for the end of a process, reaps it and reports it.
async fn reap(common: Arc<Common>, token: String, pid: u32) {
    let process = Process::open(pid);
    // `ended` below decides whether the process has ended.
    if process.is_exact() {
        process.ended().await;
    }
    let status = loop {
        match common.ended(&token) {
            Some(status) => break status,
            None => tokio::time::sleep(LOOK).await,
        }
    };
    common.report(TemplateMessage::Exited { pid, status, peak_kib: 0 });
}

/// Creates a folder that only this user can access.
fn private_folder(temp_dir: &Path, generation: Generation) -> io::Result<PathBuf> {
    let random = &token()?[..8];
    let folder = temp_dir.join(format!("firebrick-{}-{generation}-{random}", std::process::id()));
    let length = socket_in(&folder).as_os_str().len();
    if length > LONGEST_PATH {
        let text = format!(
            "temp_dir ({}) is too long a path for the socket that workers connect to: {length} bytes, at most {LONGEST_PATH}",
            temp_dir.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    std::fs::DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(folder)
}

fn socket_in(folder: &Path) -> PathBuf {
    folder.join("workers")
}

/// Returns 128 random bits in hexadecimal.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns a line for each setting that has no effect without CRuby's template.
fn notes(config: &BootConfig) -> Vec<String> {
    let settings = &config.settings;
    let rack = &settings.rack;
    let without = [
        (rack.yjit == settings::Yjit::On, "rack.yjit is CRuby's"),
        (rack.out_of_band_gc, "rack.out_of_band_gc is for CRuby's collector"),
        (rack.refork_after.threshold(0).is_some(), "rack.refork_after needs fork"),
        (settings.fibers > 0, "fibers are for CRuby: threads serve"),
        (
            settings.pools.iter().any(|pool| pool.fibers > 0),
            "fibers and fiber_paths are for CRuby: the default pool, with threads, serves their paths",
        ),
    ];
    let ruby = rack.ruby.display();
    without
        .into_iter()
        .filter(|(written, _)| *written)
        .map(|(_, why)| format!("no effect with {ruby}: {why}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_our_users_alone() {
        let folder = private_folder(&std::env::temp_dir(), 7).unwrap();
        assert_eq!(folder.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        std::fs::remove_dir(&folder).unwrap();
    }

    #[test]
    fn a_path_that_is_too_long_is_refused_with_its_length() {
        let long = PathBuf::from(format!("/tmp/{}", "long/".repeat(20)));
        let error = private_folder(&long, 1).unwrap_err().to_string();
        assert!(error.contains("temp_dir") && error.contains("at most 103"), "{error}");
    }

    #[test]
    fn tokens_differ() {
        let (one, other) = (token().unwrap(), token().unwrap());
        assert!(one != other && one.len() == 32);
    }
}
