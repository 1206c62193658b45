//! Runs the task of an HTTP/3 connection: its streams, its deadlines, and its end.

use super::buffers::{self, Buffers};
use super::exchange;
use super::hub::{Hub, number};
use super::priorities::Priorities;
use super::silence::{Heard, Silence};
use super::windows::{self, Arrived, Windows};
use crate::context::{Context, CounterGuard, Open, ThreadShared};
use crate::message::{ExchangeRecord, Sent};
use crate::room::RoomState;
use fieldcode::{Flood, FloodBudget};
use handler::{Failure, Handler, Peer};
use http3::control::{StreamKind, goaway, opening};
use http3::{Code, Error, UniStream};
use net::task::spawn_local;
use net::{Lane, Subnet, Timer, Unread};
use quic::UNI_STREAMS;
use quic::quinn::{Connection, ReadError, RecvStream, SendStream, VarInt};
use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::timeout;

/// The greatest identifier of a request stream. The first step of a drain announces it and so refuses nothing yet.
const LAST_STREAM: u64 = (1 << 62) - 4;
/// The time between the two steps of a drain. Requests that are on their way are still served.
const GRACE: Duration = Duration::from_millis(200);
/// How long a client may leave no room for a few bytes on the server's control stream.
const CONTROL: Duration = Duration::from_secs(5);
/// The interval of checks whether the client of an ending connection is still there.
const LOOK: Duration = Duration::from_secs(1);
/// The most bytes per read from a unidirectional stream.
const CHUNK: usize = 4 << 10;

/// The phase of a connection's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Requests are served.
    No,
    /// The client has received GOAWAY; requests on their way are served.
    Announced,
    /// New requests are refused.
    Refusing,
}

/// Serves a connection until either side closes it.
pub(super) async fn serve<H: Handler + 'static>(
    connection: Connection,
    peer: Rc<Peer>,
    context: Rc<Context<H>>,
) {
    let shared = context.shared.clone();
    let timer = shared.timers.register();
    let open = shared.open(timer.key(), Subnet::of(peer.remote.ip()));
    let hub = Rc::new(Hub {
        key: Cell::new(Some(timer.key())),
        proved: Cell::new(false),
        waiting: Cell::new(0),
        connection: connection.clone(),
        shared: shared.clone(),
        encoder: RefCell::default(),
        active: Cell::new(0),
        open: Cell::new(0),
        tunnels: Cell::new(0),
        tunnel: RefCell::default(),
        settled: Notify::new(),
        drain: Notify::new(),
        priorities: Priorities::default(),
        accepted: Cell::new(0),
        budget: RefCell::new(FloodBudget::new(shared.timers.now())),
        heads: Cell::new(0),
        sections: Cell::new(0),
        windows: Windows::default(),
        waited: Notify::new(),
        buffers: Buffers::default(),
        unread: RefCell::new(Unread::of_ending()),
        account: OnceCell::new(),
        failure: RefCell::default(),
    });
    let started = shared.timers.now();
    let mut task = Task {
        control: None,
        seen: Rc::default(),
        timer,
        active: None,
        ending: Ending::No,
        silence: None,
        served: 0,
        next: 0,
        _open: open,
        hub,
        shared,
    };
    task.run(&peer, &context).await;
    let failure = task.hub.failure.borrow_mut().take();
    if let Some(why) = failure {
        let failure = Failure::client(400, format!("HTTP/3: {why}"));
        let sent = Sent { status: 400, failure: Some(Box::new(failure)), broken: true, ..Sent::default() };
        let mut outcome = ExchangeRecord { trace: Rc::default(), request: None, started, sent };
        outcome.report(&context.handler, &peer, Instant::now());
    }
}

struct Task {
    hub: Rc<Hub>,
    shared: Rc<ThreadShared>,
    control: Option<SendStream>,
    /// The unidirectional streams that the client has opened.
    seen: Rc<RefCell<Vec<StreamKind>>>,
    timer: Timer,
    active: Option<CounterGuard>,
    ending: Ending,
    /// The client's silence since the end was announced.
    silence: Option<Silence>,
    served: u64,
    /// The stream identifier after the last request's.
    next: u64,
    _open: Open,
}

impl Task {
    async fn run<H: Handler + 'static>(&mut self, peer: &Rc<Peer>, context: &Rc<Context<H>>) {
        let connection = self.hub.connection.clone();
        self.become_idle();
        let opened = tokio::select! {
            opened = timeout(CONTROL, open_control(&connection, &self.shared)) => opened,
            () = self.displaced() => return self.leave(),
        };
        match opened {
            Ok(Some(control)) => self.control = Some(control),
            Ok(None) => return,
            Err(_) => {
                return self.hub.fail(Code::StreamCreationError, "no room for the server's control stream");
            }
        }
        loop {
            let hub = self.hub.clone();
            tokio::select! {
                accepted = connection.accept_bi() => match accepted {
                    Ok((send, receive)) => self.begin(send, receive, peer, context),
                    Err(_) => return,
                },
                accepted = connection.accept_uni() => match accepted {
                    Ok(stream) => drop(spawn_local(unidirectional(self.hub.clone(), self.seen.clone(), stream))),
                    Err(_) => return,
                },
                () = hub.settled.notified() => {
                    if self.hub.open.get() == 0 {
                        self.hub.windows.settle();
                        self.hub.buffers.settle();
                    }
                    if self.hub.active.get() == 0 && self.active.is_some() {
                        self.become_idle();
                    }
                }
                () = hub.waited.notified() => self.timer.arm_in(Lane::Write, windows::LOOK),
                () = hub.drain.notified() => self.announce().await,
                () = self.woken() => {
                    if self.must_leave() {
                        return self.leave();
                    }
                    self.check().await;
                }
            }
            if self.may_close() {
                connection.close(number(Code::NoError), b"");
                return;
            }
        }
    }

    /// Starts to serve a request stream.
    fn begin<H: Handler + 'static>(
        &mut self,
        mut send: SendStream,
        mut receive: RecvStream,
        peer: &Rc<Peer>,
        context: &Rc<Context<H>>,
    ) {
        let stream = u64::from(VarInt::from(send.id()));
        self.hub.accepted.set(stream / 4 + 1);
        if self.ending == Ending::Refusing {
            // RFC 9114 section 5.2: the client may send the request again elsewhere.
            let _ = send.reset(number(Code::RequestRejected));
            let _ = receive.stop(number(Code::RequestRejected));
            return;
        }
        self.served += 1;
        self.hub.budget.borrow_mut().earn(Flood::Priorities, 2);
        self.next = stream + 4;
        if self.active.is_none() {
            self.active = Some(self.shared.count_active());
            self.timer.disarm(Lane::Read);
            if !self.hub.windows.is_waiting() {
                self.timer.arm_in(Lane::Write, buffers::INTERVAL);
            }
            let chosen = self.shared.room.is_chosen(self.timer.key());
            if self.hub.proved.get() {
                self.shared.room.busy(self.timer.key());
                if chosen {
                    // The connection is not idle any more, so another one makes room in its place.
                    self.shared.displace_another();
                }
            }
        }
        let last = self.shared.settings().limits.max_requests_per_connection;
        if last.is_some_and(|max| max > 0 && self.served >= max) {
            self.hub.drain.notify_one();
        }
        spawn_local(exchange::serve(self.hub.clone(), send, receive, peer.clone(), context.clone()));
    }

    fn become_idle(&mut self) {
        self.active = None;
        let state = if self.hub.proved.get() { RoomState::Idle } else { RoomState::Unproved };
        self.shared.room.wait(self.timer.key(), state, self.shared.timers.recent());
        let settings = self.shared.settings();
        let time = if self.served == 0 { settings.timeouts.header } else { settings.timeouts.keep_alive };
        if self.ending == Ending::No {
            self.timer.arm_in(Lane::Read, time);
        }
    }

    /// Ready when a deadline has passed, the server drains, or the connection was chosen to make room.
    fn woken(&self) -> impl Future<Output = ()> + use<'_> {
        poll_fn(|cx| {
            self.timer.wakes(cx.waker());
            let due = self.timer.expired(Lane::Read) || self.timer.expired(Lane::Write);
            let over = self.must_end() || self.must_leave() || self.may_close();
            if due || over { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    /// Returns whether a close loses nothing: the client knows of the end and has everything, or the
    /// connection is idle and has to make room.
    fn may_close(&self) -> bool {
        self.ending == Ending::Refusing
            && self.hub.open.get() == 0
            && (self.is_chosen_idle() || !self.hub.unread.borrow().is_possible(self.shared.timers.recent()))
    }

    /// Returns whether the end must begin: the server drains, or the connection was chosen while idle.
    fn must_end(&self) -> bool {
        self.ending == Ending::No && (self.shared.draining.get() || self.is_chosen_idle())
    }

    /// Returns whether the connection was chosen to make room while no request is in progress.
    fn is_chosen_idle(&self) -> bool {
        self.active.is_none() && self.shared.room.is_chosen(self.timer.key())
    }

    /// Returns whether the connection was chosen to make room while its client is unproved, or stalls its
    /// requests or responses.
    fn must_leave(&self) -> bool {
        let unfinished = || self.active.is_some() || !self.hub.proved.get() || self.hub.open.get() > 0;
        self.shared.room.is_chosen(self.timer.key()) && unfinished()
    }

    /// Ready when the connection was chosen before it had any request.
    fn displaced(&self) -> impl Future<Output = ()> + use<'_> {
        poll_fn(|cx| {
            self.timer.wakes(cx.waker());
            if self.must_leave() { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    /// Closes the connection to make room for another one.
    fn leave(&self) {
        self.hub.connection.close(number(Code::ExcessiveLoad), b"max_connections are open");
    }

    async fn check(&mut self) {
        if self.timer.expired(Lane::Write) {
            self.look_at_windows();
            if !self.timer.expired(Lane::Read) && !self.must_end() {
                return;
            }
        }
        self.timer.disarm(Lane::Read);
        match self.ending {
            Ending::No if self.shared.draining.get() => self.announce().await,
            Ending::No if self.active.is_some() => {}
            // The connection was idle for too long, or makes room. Requests that cross this are refused, and
            // the client sends them again elsewhere.
            Ending::No => self.refuse().await,
            Ending::Announced => self.refuse().await,
            Ending::Refusing => self.look(),
        }
    }

    /// Counts what QUIC holds. Closes the connection of a client that keeps sending bytes that cannot be used.
    fn look_at_windows(&mut self) {
        self.timer.disarm(Lane::Write);
        let stats = self.hub.connection.stats();
        let arrived = Arrived {
            bytes: stats.udp_rx.bytes,
            datagrams: stats.udp_rx.datagrams,
            acks: stats.frame_rx.acks,
        };
        let now = self.shared.timers.now();
        if self.hub.windows.is_fruitless(arrived, self.hub.connection.rtt(), now) {
            return self.hub.fail(Code::ExcessiveLoad, "too much data behind a gap that is never filled");
        }
        if self.hub.open.get() > 0 {
            self.hub.buffers.look(arrived, self.hub.windows.held());
        }
        if self.hub.windows.is_waiting() {
            self.timer.arm_in(Lane::Write, windows::LOOK);
        } else if self.hub.open.get() > 0 {
            self.timer.arm_in(Lane::Write, buffers::INTERVAL);
        }
    }

    /// Closes the connection if its client has vanished.
    fn look(&mut self) {
        let (heard, now) = (self.heard(), self.shared.timers.now());
        let round_trip = self.hub.connection.rtt();
        if self.silence.as_mut().is_some_and(|silence| silence.is_final(heard, round_trip, now)) {
            self.hub.connection.close(number(Code::NoError), b"");
        }
        self.timer.arm_in(Lane::Read, LOOK);
    }

    fn heard(&self) -> Heard {
        let stats = self.hub.connection.stats();
        // QUIC's probes are pings.
        let sent = stats.frame_tx;
        Heard { acks: stats.frame_rx.acks, frames: sent.stream + sent.ping + sent.max_streams_uni }
    }

    /// The first step of the end: GOAWAY that refuses nothing.
    async fn announce(&mut self) {
        if self.ending == Ending::No {
            self.ending = Ending::Announced;
            self.say(LAST_STREAM).await;
            self.timer.arm_in(Lane::Read, GRACE);
        }
    }

    /// The second step of the end: GOAWAY that refuses new requests.
    async fn refuse(&mut self) {
        self.ending = Ending::Refusing;
        self.say(self.next).await;
        self.look();
    }

    async fn say(&mut self, stream: u64) {
        if self.silence.is_none() {
            // A client that is still there acknowledges the frame.
            self.silence = Some(Silence::new(self.heard(), self.shared.timers.now()));
            // The GOAWAY frame cannot leave if a download has used up the connection's flow-control window.
            // This frame needs none.
            self.hub.connection.set_max_concurrent_uni_streams(VarInt::from_u32(2 * UNI_STREAMS));
        }
        self.tell(&goaway(stream)).await;
    }

    /// Writes to the control stream. If the client leaves no room there for too long, the connection ends.
    async fn tell(&mut self, bytes: &[u8]) {
        if let Some(control) = &mut self.control
            && !matches!(timeout(CONTROL, control.write_all(bytes)).await, Ok(Ok(())))
        {
            // Half a frame may have gone out, so nothing may follow it.
            self.control = None;
            self.hub.fail(Code::ClosedCriticalStream, "no room on the server's control stream");
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.hub.key.set(None);
    }
}

/// Opens the server's control stream. Returns `None` if the connection has ended.
async fn open_control(connection: &Connection, shared: &ThreadShared) -> Option<SendStream> {
    let mut control = connection.open_uni().await.ok()?;
    control.write_all(&opening(shared.head_limits().max_header_bytes as u64)).await.ok()?;
    Some(control)
}

/// Reads a unidirectional stream of the client.
async fn unidirectional(hub: Rc<Hub>, seen: Rc<RefCell<Vec<StreamKind>>>, mut stream: RecvStream) {
    let (mut codec, mut known) = (UniStream::default(), false);
    let mut accepted = 0;
    loop {
        let (result, ended) = match stream.read_chunk(CHUNK, true).await {
            Ok(Some(chunk)) => {
                let before = std::mem::replace(&mut accepted, hub.accepted.get());
                codec.earn(accepted - before);
                (codec.receive(&chunk.bytes), false)
            }
            Ok(None) | Err(ReadError::Reset(_)) => (codec.ended(), true),
            Err(_) => return,
        };
        if let Err(Error::Connection(code, why)) = result {
            return hub.fail(code, why);
        }
        for update in codec.take_updates() {
            hub.spend(Flood::Priorities, 1);
            hub.reprioritize(update);
        }
        if let Some(kind) = codec.kind()
            && !std::mem::replace(&mut known, true)
        {
            if kind == StreamKind::Unknown {
                hub.spend(Flood::UnknownStreams, 1);
                // RFC 9114 section 6.2.3: streams of unknown types are not read.
                let _ = stream.stop(number(Code::StreamCreationError));
                return;
            }
            if seen.borrow().contains(&kind) {
                return hub.fail(Code::StreamCreationError, "a second control or QPACK stream");
            }
            seen.borrow_mut().push(kind);
        }
        if ended {
            if !known {
                hub.spend(Flood::UnknownStreams, 1);
            }
            return;
        }
    }
}
