//! The Unix socket on which processes of the app publish ([`cable::publication`]) and listen ([`super::processes`]).
//!
//! Contract: only this user can connect. A program that is to take over from another waits until that one gives the socket up. An
//! idle connection holds no buffer.

use super::processes::{ListeningProcesses, ProcessConnection};
use super::shared::SharedStreams;
use super::shared::members::SharedMembers;
use super::{DeskOrder, PublishOrder, SharedHub};
use bytes::{Buf, BytesMut};
use cable::broadcast::{self, BroadcastHead};
use cable::position_query::PositionQuery;
use cable::presence_query::{self, PresenceQuery};
use cable::process_listener::{ListenCommand, ListenHead};
use cable::publication::PublicationHead;
use control::LocalSocketFile;
use net::task::spawn_local;
use settings::Settings;
use std::cell::Cell;
use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

/// The most connections. Further ones wait in the kernel.
const CONNECTIONS: usize = 1024;
/// The pause between two attempts to take the socket over, after a failed accept, and until the last messages have their numbers.
const TAKE_OVER: Duration = Duration::from_millis(100);
const ACCEPT: Duration = Duration::from_millis(200);
const UNDER_WAY: Duration = Duration::from_millis(2);
/// How long messages may take to get their numbers when the socket is given up: longer than Redis may take.
const LAST_MESSAGES: Duration = Duration::from_millis(2500);
/// Bytes per read.
const READ: usize = 64 << 10;

/// The listening socket. Dropping it closes it and removes its file.
pub(crate) struct Publishing {
    task: JoinHandle<()>,
    desk: Rc<PublishingDesk>,
}

impl Publishing {
    /// Listens. `takes_over`: another program may have the socket until it gives it up.
    ///
    /// # Errors
    /// The socket cannot be used. The text names it and a remedy.
    pub(crate) fn start(
        hub: Arc<SharedHub>,
        settings: &Settings,
        takes_over: bool,
        log: impl Fn(&str) + Clone + 'static,
    ) -> Result<Publishing, String> {
        let path = settings.hub_socket();
        let shared = SharedStreams::new(&hub, settings, log.clone())?;
        if let Some(shared) = &shared {
            spawn_local(shared.clone().follow());
            spawn_local(shared.clone().follow_whispers());
        }
        let desk = Rc::new(PublishingDesk {
            hub: hub.clone(),
            shared,
            processes: ListeningProcesses::new(&hub),
            is_closing: Cell::new(false),
            under_way: Cell::new(0),
        });
        let bound = match bind(&path) {
            Err(error) if takes_over && error.kind() == io::ErrorKind::AddrInUse => None,
            bound => Some(bound.map_err(|error| error.to_string())?),
        };
        let own = desk.clone();
        let ordered = hub.ordered.lock().unwrap_or_else(PoisonError::into_inner).take();
        spawn_local(carry_out(desk.clone(), ordered));
        let task = spawn_local(async move {
            let served = async {
                let (listener, file) = match bound {
                    Some(bound) => bound,
                    None => take_over(&path).await?,
                };
                let _file = file;
                hub.may_publish().await;
                listener.set_nonblocking(true)?;
                accept(desk, UnixListener::from_std(listener)?).await;
                Ok::<(), io::Error>(())
            };
            if let Err(error) = served.await {
                log(&format!("nothing can be published any more: {error}"));
            }
        });
        Ok(Publishing { task, desk: own })
    }

    /// Gives the socket up, to another program, and returns when no message can come any more. A message that has begun to get its number is
    /// answered: its publisher would repeat it.
    pub(crate) async fn stop(mut self) {
        self.desk.is_closing.set(true);
        let until = Instant::now() + LAST_MESSAGES;
        while self.desk.under_way.get() > 0 && Instant::now() < until {
            tokio::time::sleep(UNDER_WAY).await;
        }
        self.task.abort();
        let _ = (&mut self.task).await;
    }
}

impl Drop for Publishing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Gives messages their numbers: itself, or through Redis.
struct PublishingDesk {
    hub: Arc<SharedHub>,
    shared: Option<Rc<SharedStreams>>,
    processes: Rc<ListeningProcesses>,
    /// No further message gets a number.
    is_closing: Cell<bool>,
    /// Messages that get their number and whose publisher is waiting for it.
    under_way: Cell<usize>,
}

impl PublishingDesk {
    async fn publish(&self, name: &str, payload: &str) -> Result<(Arc<str>, u64), String> {
        match &self.shared {
            Some(shared) => shared.publish(name, payload).await,
            None => Ok(self.hub.publish(name, payload)),
        }
    }
}

/// Publishes the messages of the front's own threads, and lets members come and go.
async fn carry_out(desk: Rc<PublishingDesk>, ordered: Option<mpsc::UnboundedReceiver<DeskOrder>>) {
    let Some(mut ordered) = ordered else { return };
    desk.hub.may_publish().await;
    let members = desk.shared.as_ref().map(|shared| {
        let (orders, ordered) = mpsc::unbounded_channel();
        let desk = desk.clone();
        spawn_local(SharedMembers::new(&desk.hub, shared).follow(ordered, move || desk.is_closing.get()));
        orders
    });
    while let Some(order) = ordered.recv().await {
        let PublishOrder { stream, payload, answer } = match order {
            DeskOrder::Publish(order) => order,
            DeskOrder::Deliver(message) => {
                desk.processes.deliver(&message);
                continue;
            }
            DeskOrder::Whisper(whisper) => {
                if let Some(shared) = desk.shared.clone() {
                    spawn_local(async move { shared.whisper(&whisper).await });
                }
                continue;
            }
            // Another program has the members when this one is closing.
            DeskOrder::Presence(order) => {
                match &members {
                    // Its task ends when this program is closing.
                    Some(members) => _ = members.send(order),
                    None => desk.hub.attend(order, desk.is_closing.get()),
                }
                continue;
            }
        };
        if desk.is_closing.get() {
            let _ = answer.send(Err("the server is stopping".to_owned()));
            continue;
        }
        let under_way = UnderWay::new(&desk);
        spawn_local(async move {
            // A client that has gone needs no answer.
            let _ = answer.send(under_way.0.publish(&stream, &payload).await);
        });
    }
}

fn bind(path: &Path) -> io::Result<(StdListener, LocalSocketFile)> {
    control::bind_local(path, "hub socket", "hub.socket")
}

async fn take_over(path: &Path) -> io::Result<(StdListener, LocalSocketFile)> {
    loop {
        match bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => tokio::time::sleep(TAKE_OVER).await,
            bound => return bound,
        }
    }
}

async fn accept(desk: Rc<PublishingDesk>, listener: UnixListener) {
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        if tasks.len() >= CONNECTIONS {
            tasks.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                let desk = desk.clone();
                tasks.spawn_local(async move {
                    // A process that has gone needs no answer.
                    let _ = converse(&desk, stream).await;
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT).await,
        }
    }
}

/// A command of a process of the app.
enum LocalCommand {
    Position(PositionQuery),
    Presence(PresenceQuery),
    Publish(PublicationHead),
    Broadcast(BroadcastHead),
    Listen(ListenHead),
}

impl LocalCommand {
    /// Reads the first line; `None` while it is not complete.
    fn parse(bytes: &[u8]) -> Result<Option<LocalCommand>, String> {
        if let Some(question) = PositionQuery::parse(bytes)? {
            return Ok(Some(LocalCommand::Position(question)));
        }
        if let Some(question) = PresenceQuery::parse(bytes)? {
            return Ok(Some(LocalCommand::Presence(question)));
        }
        if let Some(head) = ListenHead::parse(bytes)? {
            return Ok(Some(LocalCommand::Listen(head)));
        }
        if let Some(head) = BroadcastHead::parse(bytes)? {
            return Ok(Some(LocalCommand::Broadcast(head)));
        }
        Ok(PublicationHead::parse(bytes)?.map(LocalCommand::Publish))
    }

    /// Returns the bytes of the whole command.
    fn length(&self) -> usize {
        match self {
            LocalCommand::Position(question) => question.length(),
            LocalCommand::Presence(question) => question.length(),
            LocalCommand::Publish(head) => head.length(),
            LocalCommand::Broadcast(head) => head.length(),
            LocalCommand::Listen(head) => head.length(),
        }
    }

    fn publishes(&self) -> bool {
        matches!(self, LocalCommand::Publish(_) | LocalCommand::Broadcast(_))
    }

    /// Carries out a complete command that begins with this line, and returns the answer.
    async fn carry_out(
        &self,
        bytes: &[u8],
        desk: &PublishingDesk,
        process: &ProcessConnection,
    ) -> Result<String, String> {
        let hub = &desk.hub;
        Ok(match self {
            LocalCommand::Position(question) => format!("OK {}\n", hub.position(&question.streams(bytes)?)),
            LocalCommand::Presence(question) => {
                let shown = hub.members_of(question.stream(bytes)?, true).await?;
                presence_query::answer(shown.records())
            }
            LocalCommand::Publish(head) => {
                let (name, payload) = head.split(bytes)?;
                let (epoch, offset) = desk.publish(name, &payload).await?;
                format!("OK {epoch} {offset}\n")
            }
            LocalCommand::Broadcast(head) => {
                let messages = broadcast::parse(head.json(bytes))?;
                for (published, message) in messages.iter().enumerate() {
                    desk.publish(&message.stream, &message.payload).await.map_err(|why| {
                        format!("{published} of {} messages are published: {why}", messages.len())
                    })?;
                }
                format!("OK {}\n", messages.len())
            }
            LocalCommand::Listen(head) => match head.command(bytes)? {
                ListenCommand::Listen(stream, position) => process.listen(&stream, position.as_ref()),
                ListenCommand::Unlisten(stream) => {
                    process.unlisten(&stream);
                    "OK\n".to_owned()
                }
            },
        })
    }
}

fn refusal(why: &str) -> String {
    format!("ERROR {why}\n")
}

async fn converse(desk: &Rc<PublishingDesk>, mut stream: UnixStream) -> io::Result<()> {
    let mut bytes = BytesMut::new();
    let process = ProcessConnection::new(&desk.processes);
    loop {
        let command = match LocalCommand::parse(&bytes) {
            Ok(command) => command,
            Err(why) => return stream.write_all(refusal(&why).as_bytes()).await,
        };
        let Some(command) = command.filter(|command| bytes.len() >= command.length()) else {
            if bytes.is_empty() {
                bytes = BytesMut::new();
            }
            tokio::select! {
                readable = stream.readable() => {
                    readable?;
                    if !has_more(&stream, &mut bytes)? {
                        return Ok(());
                    }
                }
                message = process.next() => stream.write_all(&message?).await?,
            }
            continue;
        };
        let _under_way = match command.publishes() {
            true => {
                desk.hub.caught_up().await;
                if desk.is_closing.get() {
                    return Ok(());
                }
                Some(UnderWay::new(desk))
            }
            false => None,
        };
        let answer = command.carry_out(&bytes, desk, &process).await.unwrap_or_else(|why| refusal(&why));
        bytes.advance(command.length());
        stream.write_all(answer.as_bytes()).await?;
    }
}

/// Counts messages that get their numbers, until it is dropped.
struct UnderWay(Rc<PublishingDesk>);

impl UnderWay {
    fn new(desk: &Rc<PublishingDesk>) -> UnderWay {
        desk.under_way.update(|messages| messages + 1);
        UnderWay(desk.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.update(|messages| messages - 1);
    }
}

/// Reads the bytes that have arrived. Returns false at the end.
fn has_more(stream: &UnixStream, bytes: &mut BytesMut) -> io::Result<bool> {
    bytes.reserve(READ);
    match stream.try_read_buf(bytes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        read => Ok(read? > 0),
    }
}
