//! Sends a response's body over HTTP/3, at the client's pace.
//!
//! Contract: the declared length is compared with the sent one. A truncated body resets its stream, so it
//! never looks complete. A stream that waits for its client holds at most [`GATHER`] bytes of a body that arrives in pieces, plus one whole chunk,
//! and nothing of a file; when memory is scarce, at most one chunk.

use super::client::StreamClient;
use super::file::{FileReader, SLICE, Unsendable};
use crate::context::ThreadShared;
use crate::delivery::{DeliveryState, Watch, interval};
use crate::message::{COUNTED, DeclaredLength, Sent};
use bytes::Bytes;
use handler::held::{Amount, Hold};
use handler::{BodyStream, Chunk, Client, Failure, FileRegion, Lender};
use http3::data_header;
use net::Lane;
use net::memory::{self, Level};
use quic::quinn::SendStream;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Bytes of a stream gathered for one frame.
const GATHER: usize = 64 << 10;
/// Smaller chunks are joined.
pub(super) const SMALL: usize = 8 << 10;

pub(super) struct Sender<'a> {
    pub(super) stream: &'a mut SendStream,
    pub(super) client: &'a Rc<StreamClient>,
    pub(super) shared: &'a Rc<ThreadShared>,
}

/// How a client takes what is written.
#[derive(Default)]
struct Progress {
    /// Set once it has let a write wait.
    watch: Option<Watch>,
    /// Bytes that QUIC has taken.
    done: u64,
    /// Bytes in memory that belong to this response alone, and their count once they wait for the client.
    own: usize,
    hold: Option<Hold>,
}

impl Progress {
    fn of(own: usize) -> Progress {
        Progress { own, ..Progress::default() }
    }
}

/// The next part of a body.
enum Next {
    Bytes(Vec<Bytes>),
    File(FileRegion),
    End,
    Broken,
}

impl Sender<'_> {
    /// Writes all of `bytes`. The client has `timeouts.send` to make room for some of them.
    pub(super) async fn write(&mut self, bytes: Bytes) -> Result<(), Unsendable> {
        self.write_all(&mut Progress::default(), bytes).await
    }

    /// As [`Sender::write`], for a part of what `progress` counts.
    async fn write_all(&mut self, progress: &mut Progress, bytes: Bytes) -> Result<(), Unsendable> {
        let mut left = [bytes];
        while !left[0].is_empty() {
            let some = |cx: &mut Context<'_>, stream: &mut SendStream| {
                let before = left[0].len();
                let written = ready!(pin!(stream.write_chunks(&mut left)).poll(cx));
                Poll::Ready(written.map(|_| before - left[0].len()).map_err(|_| Unsendable))
            };
            self.write_some(progress, some).await?;
        }
        self.wrote(progress);
        Ok(())
    }

    /// Waits until `write` has written some bytes, and returns their number.
    async fn write_some(
        &mut self,
        progress: &mut Progress,
        mut write: impl FnMut(&mut Context<'_>, &mut SendStream) -> Poll<Result<usize, Unsendable>>,
    ) -> Result<usize, Unsendable> {
        let (stream, client, shared) = (&mut *self.stream, self.client, self.shared);
        let timer = &client.timer;
        let mut waits = None;
        let Progress { watch, done, own, hold } = progress;
        let written = poll_fn(|cx| {
            timer.wakes(cx.waker());
            if client.is_displaced() {
                return Poll::Ready(Err(Unsendable));
            }
            client.reprioritize(stream);
            if let Poll::Ready(written) = write(cx, stream) {
                return Poll::Ready(written);
            }
            waits.get_or_insert_with(|| client.wait());
            if *own >= COUNTED && hold.is_none() {
                *hold = client.hold(Amount::of_memory(*own as u64));
            }
            let settings = shared.settings();
            let watched = watch.get_or_insert_with(|| {
                timer.arm_in(Lane::Write, interval(settings.timeouts.send));
                Watch::of_stream(*done, client.taken(), client.unread(), shared.timers.now())
            });
            if timer.expired(Lane::Write) {
                if watched.judge(*done, client.taken(), shared.timers.now(), &settings)
                    == DeliveryState::Stalled
                {
                    return Poll::Ready(Err(Unsendable));
                }
                timer.arm_in(Lane::Write, interval(settings.timeouts.send));
            }
            client.wait_for_update(cx);
            Poll::Pending
        });
        let taken = written.await?;
        *done += taken as u64;
        client.took(taken);
        Ok(taken)
    }

    /// The client has taken all bytes.
    fn wrote(&self, progress: &mut Progress) {
        if progress.watch.take().is_some() {
            self.client.timer.disarm(Lane::Write);
        }
    }

    /// Sends `head` and a body in memory. `kept`: other responses share the body.
    pub(super) async fn bytes(
        &mut self,
        mut head: Vec<u8>,
        body: Bytes,
        kept: bool,
        sent: &mut Sent,
    ) -> Result<(), Unsendable> {
        data_header(&mut head, body.len() as u64);
        let len = body.len() as u64;
        if body.len() < SMALL {
            head.extend_from_slice(&body);
            self.write_all(&mut Progress::of(head.len()), head.into()).await?;
        } else {
            let mut progress = Progress::of(if kept { 0 } else { body.len() });
            self.write_all(&mut progress, head.into()).await?;
            self.write_all(&mut progress, body).await?;
        }
        sent.body_bytes += len;
        Ok(())
    }

    /// Sends `head` and a part of a file, in one frame.
    pub(super) async fn file(
        &mut self,
        mut head: Vec<u8>,
        region: FileRegion,
        sent: &mut Sent,
    ) -> Result<(), Unsendable> {
        data_header(&mut head, region.len);
        if head.len() > SMALL {
            self.write(std::mem::take(&mut head).into()).await?;
        }
        let counted = region.len > SLICE as u64 && region.file.hold().is_none();
        let _hold = counted.then(|| self.client.hold(Amount::FILE));
        let (mut reader, mut progress) = (FileReader::new(head, region), Progress::default());
        while reader.left() > SMALL as u64 {
            let (before, shared) = (reader.left(), self.shared);
            let some = |cx: &mut Context<'_>, stream: &mut SendStream| {
                reader.poll_write(cx, stream, &mut shared.scratch.borrow_mut())
            };
            if self.write_some(&mut progress, some).await? == 0 {
                reader.fetch().await?;
            }
            sent.body_bytes += before - reader.left();
        }
        self.wrote(&mut progress);
        // The file is not needed for its end, however long the client takes.
        let left = reader.left();
        let rest = reader.rest().await?;
        self.write_all(&mut Progress::of(rest.len()), rest.into()).await?;
        sent.body_bytes += left;
        Ok(())
    }

    /// Sends `head` and a body that arrives in pieces.
    pub(super) async fn stream(
        &mut self,
        mut head: Vec<u8>,
        stream: Box<dyn BodyStream>,
        declared: Option<u64>,
        sent: &mut Sent,
    ) -> Result<(), Unsendable> {
        let (mut promised, mut source) = (DeclaredLength::new(declared), Pieces::new(stream));
        loop {
            let next = source.next(self.client, !head.is_empty(), sent).await;
            let len = match &next {
                Next::Bytes(pieces) => pieces.iter().map(Bytes::len).sum::<usize>() as u64,
                Next::File(region) => region.len,
                Next::End | Next::Broken => 0,
            };
            let fits = len.min(promised.left());
            if fits < len {
                sent.fail(promised.exceeded(sent.status, len));
            }
            promised.count(fits);
            match next {
                // The body has no data yet, so the head goes out alone.
                Next::Bytes(pieces) if pieces.is_empty() => {
                    self.write(std::mem::take(&mut head).into()).await?
                }
                Next::Bytes(pieces) => {
                    data_header(&mut head, fits);
                    self.pieces(&mut head, pieces, fits).await?;
                    sent.body_bytes += fits;
                }
                Next::File(mut region) => {
                    region.len = fits;
                    self.file(std::mem::take(&mut head), region, sent).await?;
                }
                Next::End => {
                    if !head.is_empty() {
                        self.write(head.into()).await?;
                    }
                    return match promised.missed(sent.status) {
                        Some(failure) => {
                            sent.fail(failure);
                            Err(Unsendable)
                        }
                        None => Ok(()),
                    };
                }
                Next::Broken => return Err(Unsendable),
            }
            if fits < len {
                return Err(Unsendable);
            }
        }
    }

    /// Writes `head` and the first `most` bytes of some pieces. Small pieces are joined.
    async fn pieces(&mut self, head: &mut Vec<u8>, pieces: Vec<Bytes>, most: u64) -> Result<(), Unsendable> {
        let (mut left, mut progress) = (most as usize, Progress::of(most as usize));
        for mut piece in pieces {
            piece.truncate(left);
            left -= piece.len();
            if piece.len() < SMALL {
                head.extend_from_slice(&piece);
            } else {
                self.write_all(&mut progress, std::mem::take(head).into()).await?;
                self.write_all(&mut progress, piece).await?;
            }
        }
        self.write_all(&mut progress, std::mem::take(head).into()).await
    }
}

/// A body that arrives in pieces, and the parts taken from it ahead of time.
struct Pieces {
    stream: Box<dyn BodyStream>,
    /// A part of a file behind the pieces before it.
    file: Option<FileRegion>,
    /// An offer that is being declined.
    offer: Option<Box<dyn Lender>>,
    /// The end of the body, complete or broken off.
    end: Option<Result<(), Failure>>,
}

impl Pieces {
    fn new(stream: Box<dyn BodyStream>) -> Pieces {
        Pieces { stream, file: None, offer: None, end: None }
    }

    /// Takes pieces that are ready. Waits only if there is nothing to send: no pieces, and no head (`has_head`).
    async fn next(&mut self, client: &StreamClient, has_head: bool, sent: &mut Sent) -> Next {
        let (mut pieces, mut len) = (Vec::new(), 0);
        // When memory is scarce, as little as possible waits here for the client.
        let most = if memory::level() >= Level::Files { 1 } else { GATHER };
        poll_fn(|cx| {
            while len < most && self.end.is_none() && self.file.is_none() {
                if let Some(lender) = &mut self.offer {
                    // QUIC encrypts all bytes, so the owner cannot write to the socket; it sends them in the
                    // next chunks.
                    match lender.poll_lend(cx, None) {
                        Poll::Ready(Ok(_)) => self.offer = None,
                        Poll::Ready(Err(failure)) => self.end = Some(Err(failure)),
                        Poll::Pending => break,
                    }
                    continue;
                }
                match self.stream.poll_chunk(cx) {
                    Poll::Ready(None) => self.end = Some(Ok(())),
                    Poll::Ready(Some(Err(failure))) => self.end = Some(Err(failure)),
                    Poll::Ready(Some(Ok(chunk))) if chunk.is_empty() => {}
                    Poll::Ready(Some(Ok(Chunk::File(region)))) => self.file = Some(region),
                    Poll::Ready(Some(Ok(Chunk::Offer(lender)))) => self.offer = Some(lender),
                    Poll::Ready(Some(Ok(Chunk::Bytes(bytes)))) => {
                        len += bytes.len();
                        pieces.push(bytes);
                    }
                    Poll::Pending => break,
                }
            }
            if !pieces.is_empty() {
                return Poll::Ready(Next::Bytes(std::mem::take(&mut pieces)));
            }
            if let Some(region) = self.file.take() {
                return Poll::Ready(Next::File(region));
            }
            match self.end.take() {
                Some(Ok(())) => return Poll::Ready(Next::End),
                // The head goes out first: a partial response may help the client.
                Some(failed) if has_head => {
                    self.end = Some(failed);
                    return Poll::Ready(Next::Bytes(Vec::new()));
                }
                Some(Err(failure)) => {
                    sent.fail(failure);
                    return Poll::Ready(Next::Broken);
                }
                None => {}
            }
            if has_head {
                return Poll::Ready(Next::Bytes(Vec::new()));
            }
            client.poll_departure(cx).map(|_| Next::Broken)
        })
        .await
    }
}
