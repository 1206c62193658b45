//! One client's WebSocket: its frames, its waiting messages, and its end. The protocols see it as the far end of a tunnel, so it is the
//! same over HTTP/1.1, HTTP/2 and HTTP/3.
//!
//! Contract:
//! 1. A client whose queue is full is closed with status 1008; what waited is dropped. It can resume where it was.
//! 2. A client that sends commands faster than the app carries them out is not read until there is room.
//! 3. After a Close frame the client has [`ANSWER`] to send its own. The app learns of the end once, however it comes.

use super::call::{CallSource, HubAnswer};
use super::count;
use super::given::{GivenSocket, Givers, SocketRecord};
use super::local::{HubClient, LocalHub};
use super::session::Session;
use bytes::Bytes;
use cable::command::{CableCommand, CableProtocol};
use cable::exclusion::{SessionId, session_text};
use cable::frame::{self, FrameDecoder, FrameViolation, Received, code};
use cable::message;
use cable::queue::ClientQueue;
use net::TunnelEnd;
use net::task::spawn_local;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// How long a client may take to answer a Close frame.
const ANSWER: Duration = Duration::from_secs(5);
/// The most commands that wait.
const WAITING: usize = 64;

/// Work for a client, which is done in order.
#[derive(PartialEq)]
pub(super) enum ClientWork {
    Command(CableCommand),
    /// A run of a timer of a subscription: its place among them.
    Timer(Rc<str>, usize),
}

/// A client of the hub.
pub(super) struct CableSocket {
    pub(super) local: Rc<LocalHub>,
    pub(super) source: CallSource,
    pub(super) protocol: CableProtocol,
    pub(super) id: SessionId,
    pub(super) client: Cell<usize>,
    pub(super) session: RefCell<Session>,
    flow: RefCell<SocketFlow>,
}

/// The bytes in both directions.
struct SocketFlow {
    decoder: FrameDecoder,
    queue: ClientQueue,
    /// Wakes the tunnel when there is something to send, and when there is room for commands.
    reader: Option<Waker>,
    writer: Option<Waker>,
    work: VecDeque<ClientWork>,
    /// A task carries the work out.
    is_running: bool,
    /// When the last frame was put into the queue.
    ended: Option<Instant>,
    /// The client has sent its own Close frame.
    answered: bool,
    /// The connection can go to another program, and takes this way when the time has come.
    is_movable: bool,
    giving: Option<Givers>,
}

impl CableSocket {
    /// Opens a client's session after the app's answer to its connection.
    pub(super) fn open(
        local: &Rc<LocalHub>,
        source: CallSource,
        protocol: CableProtocol,
        id: SessionId,
        answer: HubAnswer,
    ) -> Rc<CableSocket> {
        let decoder = FrameDecoder::new(local.hub.max_message);
        let socket = CableSocket::new(local, source, protocol, decoder, id);
        if !answer.closed {
            socket.send(message::welcome(protocol, &session_text(socket.id)));
        }
        socket.begin(answer);
        socket
    }

    /// Goes on with a client of another program.
    pub(super) fn adopted(
        local: &Rc<LocalHub>,
        source: CallSource,
        protocol: CableProtocol,
        record: &mut SocketRecord,
    ) -> Rc<CableSocket> {
        let mut decoder = std::mem::replace(&mut record.decoder, FrameDecoder::new(0));
        decoder.limit(local.hub.max_message);
        let socket = CableSocket::new(local, source, protocol, decoder, record.id);
        socket.flow.borrow_mut().queue.begin_with(std::mem::take(&mut record.unsent).into());
        socket.take_up(record);
        socket
    }

    fn new(
        local: &Rc<LocalHub>,
        source: CallSource,
        protocol: CableProtocol,
        decoder: FrameDecoder,
        id: SessionId,
    ) -> Rc<CableSocket> {
        let socket = Rc::new(CableSocket {
            local: local.clone(),
            source,
            protocol,
            id,
            client: Cell::new(0),
            session: RefCell::default(),
            flow: RefCell::new(SocketFlow {
                decoder,
                queue: ClientQueue::default(),
                reader: None,
                writer: None,
                work: VecDeque::new(),
                is_running: false,
                ended: None,
                answered: false,
                is_movable: false,
                giving: None,
            }),
        });
        socket.client.set(local.add(socket.clone()));
        socket
    }

    /// Whether the queue has room for these frames, and for the answers that follow.
    pub(super) fn has_room(&self, frames: &[Bytes]) -> bool {
        let waiting = self.flow.borrow().queue.bytes();
        ClientQueue::cost(frames) + waiting <= self.local.hub.client_queue - self.local.hub.client_queue / 8
    }

    /// Sends the text of a message.
    pub(super) fn send_text(&self, text: &str) {
        self.send(frame::text(text.as_bytes()));
    }

    /// Ends the connection with a Close frame alone: the app has sent its message.
    pub(super) fn close(&self) {
        let mut flow = self.flow.borrow_mut();
        if flow.ended.is_none() {
            flow.end(code::NORMAL, "");
        }
    }

    /// Handles what a client has sent.
    fn received(self: &Rc<Self>, received: Received) {
        match received {
            Received::Text(text) => match CableCommand::parse(&text) {
                Ok(CableCommand::Pong) => {}
                Ok(command) => self.enqueue(ClientWork::Command(command)),
                // As in Action Cable, which logs it.
                Err(_) => count(&self.local.hub.counts.violations),
            },
            Received::Ping(payload) => {
                self.send(frame::pong(&payload));
            }
            Received::Pong => {}
            Received::Close(status) => {
                let mut flow = self.flow.borrow_mut();
                flow.answered = true;
                match flow.ended {
                    None => flow.end(status.unwrap_or(code::NORMAL), ""),
                    Some(_) => flow.wake_reader(),
                }
            }
        }
    }

    fn violated(&self, violation: FrameViolation) {
        count(&self.local.hub.counts.violations);
        let mut flow = self.flow.borrow_mut();
        if flow.ended.is_none() {
            flow.end(violation.code, violation.reason);
        }
        // Its bytes have no meaning any more, so no Close frame can be found in them.
        flow.answered = true;
    }

    /// Runs a timer, unless its last run still waits, or the client is about to go.
    pub(super) fn run_timer(self: &Rc<Self>, run: ClientWork) {
        let may_run = {
            let flow = self.flow.borrow();
            let waits = flow.work.contains(&run);
            flow.ended.is_none() && flow.giving.is_none() && !waits
        };
        if may_run {
            self.enqueue(run);
        }
    }

    fn enqueue(self: &Rc<Self>, work: ClientWork) {
        let mut flow = self.flow.borrow_mut();
        flow.work.push_back(work);
        if !std::mem::replace(&mut flow.is_running, true) {
            let socket = self.clone();
            spawn_local(async move { socket.carry_out().await });
        }
    }

    /// Carries the work out, one after the other.
    async fn carry_out(self: Rc<Self>) {
        loop {
            let next = {
                let mut flow = self.flow.borrow_mut();
                let next = if flow.ended.is_some() { None } else { flow.work.pop_front() };
                if next.is_none() {
                    flow.work = VecDeque::new();
                    flow.is_running = false;
                    if flow.giving.is_some() {
                        flow.wake_reader();
                    }
                }
                flow.wake_writer();
                next
            };
            match next {
                Some(work) => self.execute(work).await,
                None => return,
            }
        }
    }
}

impl HubClient for CableSocket {
    fn session_id(&self) -> SessionId {
        self.id
    }

    fn send(&self, frame: Bytes) -> bool {
        let mut flow = self.flow.borrow_mut();
        if flow.ended.is_some() {
            return false;
        }
        let fits = flow.queue.push(frame, self.local.hub.client_queue);
        if !fits {
            count(&self.local.hub.counts.slow);
            flow.queue.drop_waiting();
            flow.queue.push_last(message::disconnect("slow_client", true));
            flow.end(code::POLICY, "the client reads too slowly");
        }
        flow.wake_reader();
        fits
    }

    fn send_if_room(&self, frame: Bytes) -> bool {
        self.has_room(std::slice::from_ref(&frame)) && self.send(frame)
    }

    fn beat(&self, ping: &Bytes) {
        let mut flow = self.flow.borrow_mut();
        if flow.ended.is_none() && flow.queue.is_empty() {
            flow.queue.push_last(ping.clone());
        }
        // Also after a Close frame: a client that does not answer it is given up some time.
        flow.wake_reader();
    }

    fn end(&self, reason: &str, reconnect: bool, status: u16) {
        let mut flow = self.flow.borrow_mut();
        if flow.ended.is_none() {
            flow.queue.push_last(message::disconnect(reason, reconnect));
            flow.end(status, "");
        }
    }

    fn leave(&self) {
        let Some((order, template)) = self.leave_session().zip(self.source.template()) else { return };
        let local = self.local.clone();
        local.last_calls.set(local.last_calls.get() + 1);
        spawn_local(async move {
            order.tell(&local, &template).await;
            local.last_calls.set(local.last_calls.get() - 1);
        });
    }

    fn give(&self, to: &Givers) -> bool {
        let mut flow = self.flow.borrow_mut();
        if !flow.is_movable || flow.ended.is_some() {
            return false;
        }
        if flow.giving.replace(to.clone()).is_none() {
            self.local.giving.update(|giving| giving + 1);
        }
        flow.wake_reader();
        true
    }

    fn keep(&self) {
        let mut flow = self.flow.borrow_mut();
        if flow.giving.take().is_some() {
            self.local.giving.update(|giving| giving - 1);
            flow.wake_writer();
        }
    }
}

impl SocketFlow {
    /// Puts the last frame into the queue.
    fn end(&mut self, status: u16, reason: &str) {
        // Codes that must not be sent (RFC 6455 section 7.4.1) are answered by a normal one.
        let status =
            if matches!(status, 1000..=1003 | 1007..=1014 | 3000..=4999) { status } else { code::NORMAL };
        self.queue.push_last(frame::close(status, reason));
        self.ended = Some(Instant::now());
        self.wake_reader();
        self.wake_writer();
    }

    fn wake_reader(&mut self) {
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    fn wake_writer(&mut self) {
        self.writer.take().into_iter().for_each(Waker::wake);
    }

    /// Lets the task that reads from this end be woken.
    fn wait_as_reader(&mut self, cx: &Context<'_>) -> Poll<()> {
        if !self.reader.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
            self.reader = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Whether bytes of the client are taken. A client that is about to go to another program takes them along.
    fn may_write(&self) -> bool {
        self.ended.is_some() || (self.work.len() < WAITING && self.giving.is_none())
    }

    /// Whether the client has answered the last frame, or will not.
    fn is_over(&self) -> bool {
        self.ended.is_some_and(|since| self.answered || since.elapsed() > ANSWER)
    }
}

/// The socket as the far end of a tunnel. Dropping it is the end of the client.
pub(super) struct SocketEnd(pub(super) Rc<CableSocket>);

impl TunnelEnd for SocketEnd {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut flow = self.0.flow.borrow_mut();
        if !flow.queue.is_empty() || flow.is_over() {
            return Poll::Ready(());
        }
        flow.wait_as_reader(cx)
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut flow = self.0.flow.borrow_mut();
        if flow.may_write() {
            return Poll::Ready(());
        }
        flow.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut flow = self.0.flow.borrow_mut();
        match flow.queue.read(buffer) {
            0 if flow.is_over() => Ok(0),
            0 => Err(ErrorKind::WouldBlock.into()),
            read => Ok(read),
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let (mut decoder, ended) = {
            let mut flow = self.0.flow.borrow_mut();
            if flow.answered {
                return Ok(bytes.len());
            }
            if !flow.may_write() {
                return Err(ErrorKind::WouldBlock.into());
            }
            let empty = FrameDecoder::new(0);
            (std::mem::replace(&mut flow.decoder, empty), flow.ended.is_some())
        };
        let decoded = decoder.decode(bytes, &mut |received| {
            if !ended || matches!(received, Received::Close(_)) {
                self.0.received(received);
            }
        });
        self.0.flow.borrow_mut().decoder = decoder;
        if let Err(violation) = decoded {
            self.0.violated(violation);
        }
        Ok(bytes.len())
    }

    fn end_writing(&self) {
        // The client has gone, or sends nothing more, not even a Close frame.
        let mut flow = self.0.flow.borrow_mut();
        flow.answered = true;
        if flow.ended.is_none() {
            flow.end(code::NORMAL, "");
        }
        flow.wake_reader();
    }

    fn is_over(&self) -> bool {
        self.0.flow.borrow().is_over()
    }

    fn offer_connection(&self) {
        self.0.flow.borrow_mut().is_movable = true;
    }

    fn poll_wanted(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut flow = self.0.flow.borrow_mut();
        if flow.giving.is_some() && !flow.is_running && flow.ended.is_none() {
            return Poll::Ready(());
        }
        flow.wait_as_reader(cx)
    }

    fn take_connection(&self, connection: OwnedFd, unwritten: Vec<u8>, mut unsent: Vec<u8>) {
        let (decoder, to) = {
            let mut flow = self.0.flow.borrow_mut();
            let sent = unsent.len();
            unsent.resize(sent + flow.queue.bytes(), 0);
            let read = flow.queue.read(&mut unsent[sent..]);
            unsent.truncate(sent + read);
            flow.answered = true;
            flow.ended = Some(Instant::now());
            (std::mem::replace(&mut flow.decoder, FrameDecoder::new(0)), flow.giving.take())
        };
        self.0.local.giving.update(|giving| giving - 1);
        let record = self.0.record(decoder, unwritten, unsent);
        // The app hears of the end from the other program.
        self.0.leave_session();
        if let Some((to, record)) = to.zip(record) {
            // Fails only if the other program has ended.
            let _ = to.send(Box::new(GivenSocket { connection, record }));
        }
    }
}

impl Drop for SocketEnd {
    fn drop(&mut self) {
        self.0.keep();
        self.0.close();
        self.0.leave();
        self.0.local.remove(self.0.client.get());
    }
}
