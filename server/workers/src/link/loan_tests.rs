//! Tests loans from both sides of a link: the front's reaction to a worker's frames.

use super::*;
use crate::call::CallState;
use crate::loan::Offer;
use crate::local::Local;
use crate::os;
use crate::shared::Shared;
use handler::{Failure, Lender, Trace};
use queue::{Dispatch, PoolIndex};
use settings::Current;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;
use wire::times::Times;
use wire::{Frame, FrameKind, Seats, flag, frame, response};

/// A link with one request in flight, and the worker's end of it.
struct Scene {
    local: Rc<Local>,
    link: Rc<Link>,
    call: Rc<Call>,
    id: u32,
    worker: UnixStream,
    fds: VecDeque<Passed>,
}

fn with_scene(play: impl AsyncFnOnce(&mut Scene)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
    runtime.unwrap().block_on(async {
        let (reports, _) = tokio::sync::mpsc::unbounded_channel();
        let pools = vec![(Dispatch::new(10), Seats { threads: 1, fibers: 0 })];
        let shared = Shared::new(pools, 1, 1, reports).unwrap();
        let local = Local::new(0, Arc::new(shared), Current::default(), Box::new(|_| ()));
        let (ours, worker) = os::pair().unwrap();
        let end = End { serial: 0, pool: PoolIndex::DEFAULT };
        let link = Link::new(NewLink {
            end,
            index: 0,
            socket: ours,
            descriptors: Descriptors::WithFrames,
            scores: None,
        });
        let link = Rc::new(link.unwrap());
        let mut frame = Vec::new();
        frame::append(&mut frame, FrameKind::Request, 0, 0, &[0; 24]);
        let call = Rc::new(Call::new(
            frame,
            crate::call::CallBody::Nothing,
            Rc::<Trace>::default(),
            None,
            PoolIndex::DEFAULT,
            Instant::now(),
        ));
        let id = local.adopt(&link, &call).unwrap();
        play(&mut Scene { local, link, call, id, worker, fds: VecDeque::new() }).await;
    });
}

impl Scene {
    async fn takes_in(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.worker.write_all(bytes)?;
        self.link.socket.readable().await?;
        self.link.receive(&self.local, false).map(|_| ())
    }

    async fn says(&mut self, kind: FrameKind, flags: u8, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::new();
        frame::append(&mut bytes, kind, flags, self.id, payload);
        self.takes_in(&bytes).await
    }

    async fn responds(&mut self) {
        let mut bytes = Vec::new();
        response::Encoder::response(&mut bytes, self.id, 200).finish(0, Times::default(), b"");
        self.takes_in(&bytes).await.unwrap();
    }

    async fn offers(&mut self, len: u64) -> io::Result<()> {
        self.says(FrameKind::Offer, 0, &len.to_le_bytes()).await
    }

    /// Returns the frames that the worker has received since the last call: their kinds, and whether a
    /// descriptor came with them.
    async fn received(&mut self) -> Vec<(FrameKind, bool)> {
        self.link.socket.writable().await.unwrap();
        self.link.write(&mut Context::from_waker(Waker::noop())).unwrap();
        let (mut buffer, mut bytes) = (vec![0; 4096], Vec::new());
        while let Ok(n @ 1..) = os::receive(&self.worker, &mut buffer, &mut self.fds) {
            bytes.extend_from_slice(&buffer[..n]);
        }
        let (mut at, mut frames) = (0, Vec::new());
        while let Some((frame, used)) = Frame::cut(&bytes[at..]).unwrap() {
            frames.push((frame.header.kind, frame.header.has_fd()));
            at += used;
        }
        frames.retain(|(kind, _)| *kind != FrameKind::Request);
        frames
    }

    fn offer(&self, len: u64) -> Offer {
        Offer::new(self.call.clone(), self.local.clone(), len)
    }
}

fn poll(offer: &mut Offer, socket: Option<&UnixStream>) -> Poll<Result<u64, Failure>> {
    offer.poll_lend(&mut Context::from_waker(Waker::noop()), socket.map(AsFd::as_fd))
}

#[test]
fn a_lent_socket_is_the_clients_and_comes_back_with_a_count() {
    with_scene(async |scene| {
        let (mut client, socket) = UnixStream::pair().unwrap();
        scene.responds().await;
        scene.offers(10).await.unwrap();
        let mut offer = scene.offer(10);
        assert!(poll(&mut offer, Some(&socket)).is_pending());
        assert_eq!(scene.received().await, [(FrameKind::Lend, true)]);
        let mut lent = UnixStream::from(scene.fds.pop_front().unwrap().unwrap());
        lent.write_all(b"taken").unwrap();
        drop(lent);
        scene.says(FrameKind::Taken, 0, &5u64.to_le_bytes()).await.unwrap();
        assert_eq!(poll(&mut offer, Some(&socket)), Poll::Ready(Ok(5)));
        drop((offer, socket));
        assert!(scene.received().await.is_empty());
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "taken");
        scene.says(FrameKind::Body, 0, b"rest").await.unwrap();
        scene.says(FrameKind::End, 0, &Times::default().to_bytes()).await.unwrap();
        assert_eq!(scene.call.state(), CallState::Finished);
    });
}

#[test]
fn an_offer_is_declined_once_by_word_or_by_dropping_it() {
    for by_word in [true, false] {
        with_scene(async |scene| {
            scene.responds().await;
            scene.offers(10).await.unwrap();
            let mut offer = scene.offer(10);
            if by_word {
                assert_eq!(poll(&mut offer, None), Poll::Ready(Ok(0)));
            }
            drop(offer);
            assert_eq!(scene.received().await, [(FrameKind::Lend, false)]);
            scene.says(FrameKind::Body, 0, b"rest").await.unwrap();
        });
    }
}

#[test]
fn an_offer_that_comes_late_or_without_a_reader_is_declined_at_once() {
    with_scene(async |scene| {
        scene.responds().await;
        scene.says(FrameKind::Body, 0, b"earlier").await.unwrap();
        scene.offers(10).await.unwrap();
        assert_eq!(scene.received().await, [(FrameKind::Lend, false)]);
        scene.call.reply.unwanted();
        scene.offers(10).await.unwrap();
        assert_eq!(scene.received().await, [(FrameKind::Lend, false)]);
    });
}

#[test]
fn a_worker_that_breaks_off_takes_its_offer_back() {
    for lent in [true, false] {
        with_scene(async |scene| {
            let (_client, socket) = UnixStream::pair().unwrap();
            scene.responds().await;
            scene.offers(10).await.unwrap();
            let mut offer = scene.offer(10);
            assert!(!lent || poll(&mut offer, Some(&socket)).is_pending());
            scene.says(FrameKind::End, flag::FAILED, &Times::default().to_bytes()).await.unwrap();
            assert!(matches!(poll(&mut offer, Some(&socket)), Poll::Ready(Err(_))));
            assert_eq!(scene.received().await.len(), usize::from(lent));
        });
    }
}

#[test]
fn a_request_can_be_given_up_while_its_socket_is_lent() {
    with_scene(async |scene| {
        let (_client, socket) = UnixStream::pair().unwrap();
        scene.responds().await;
        scene.offers(10).await.unwrap();
        let mut offer = scene.offer(10);
        assert!(poll(&mut offer, Some(&socket)).is_pending());
        drop(offer);
        scene.local.abandon(&scene.call);
        assert_eq!(scene.received().await, [(FrameKind::Lend, true), (FrameKind::Abort, false)]);
        scene.says(FrameKind::Taken, 0, &10u64.to_le_bytes()).await.unwrap();
        scene.says(FrameKind::End, flag::FAILED, &Times::default().to_bytes()).await.unwrap();
        assert_eq!(scene.call.state(), CallState::Finished);
    });
}

/// Checks that the link ends for this reason.
fn is_breach(why: &str, act: impl AsyncFnOnce(&mut Scene) -> io::Result<()>) {
    with_scene(async |scene| {
        let refusal = act(scene).await.unwrap_err().to_string();
        assert!(refusal.contains(why), "{refusal}");
    });
}

#[test]
fn breaches_of_the_protocol_end_the_link() {
    is_breach("before RESPONSE", async |scene| scene.offers(10).await);
    is_breach("OFFER of nothing", async |scene| {
        scene.responds().await;
        scene.offers(0).await
    });
    is_breach("without a loan", async |scene| {
        scene.responds().await;
        scene.says(FrameKind::Taken, 0, &0u64.to_le_bytes()).await
    });
    for (kind, payload) in [(FrameKind::Body, &b"x"[..]), (FrameKind::End, &[0; 12])] {
        is_breach("while an offer is open", async |scene| {
            scene.responds().await;
            scene.offers(10).await?;
            scene.says(kind, 0, payload).await
        });
    }
    is_breach("more than was offered", async |scene| {
        let (_client, socket) = UnixStream::pair()?;
        scene.responds().await;
        scene.offers(10).await?;
        assert!(poll(&mut scene.offer(10), Some(&socket)).is_pending());
        scene.says(FrameKind::Taken, 0, &11u64.to_le_bytes()).await
    });
}
