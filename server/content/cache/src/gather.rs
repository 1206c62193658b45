//! Reads the body of a response that will be kept, at the origin's pace, while the first client reads it at
//! its own pace.
//!
//! Why: other clients wait for this body. A first client that reads slowly, or disconnects, must not delay
//! them.
//!
//! Contract:
//! 1. At most `most` bytes are held, plus the chunk that did not fit. A longer body is not kept; the client
//!    reads the rest directly from the origin, at its own pace.
//! 2. The body is read to its end even if the client has gone.
//! 3. [`Gathered::done`] returns the whole body; `None` if it was too long or broke off.

use bytes::{Bytes, BytesMut};
use handler::{BodyStream, Chunk, Failure, FileRegion};
use net::memory::{MemoryClass, Reserved};
use std::cell::RefCell;
use std::future::poll_fn;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Why a body is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unkept {
    TooLong,
    Incomplete,
}

struct Shared {
    origin: Option<Box<dyn BodyStream>>,
    /// The bytes that the origin has sent.
    bytes: BytesMut,
    /// Counts them.
    reserved: Reserved,
    most: usize,
    end: Option<Result<(), Failure>>,
    /// The body is longer than `most`: the client reads on.
    handed_over: bool,
    /// The chunk that did not fit: the client gets it first.
    rest: Option<Chunk>,
    /// The client waits for more.
    reader: Option<Waker>,
    reader_gone: bool,
}

/// The side that keeps the body.
pub(crate) struct Gathered {
    shared: Rc<RefCell<Shared>>,
}

/// The side of the client.
pub(crate) struct Following {
    shared: Rc<RefCell<Shared>>,
    /// The number of bytes that the client has.
    sent: usize,
}

/// Divides a body stream.
pub(crate) fn divide(origin: Box<dyn BodyStream>, most: usize) -> (Gathered, Following) {
    let shared = Rc::new(RefCell::new(Shared {
        origin: Some(origin),
        bytes: BytesMut::new(),
        reserved: Reserved::new(MemoryClass::Cache, 0),
        most,
        end: None,
        handed_over: false,
        rest: None,
        reader: None,
        reader_gone: false,
    }));
    (Gathered { shared: shared.clone() }, Following { shared, sent: 0 })
}

impl Gathered {
    /// Reads to the end.
    pub(crate) async fn done(self) -> Result<Bytes, Unkept> {
        poll_fn(|cx| self.poll_done(cx)).await
    }

    fn poll_done(&self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Unkept>> {
        let mut shared = self.shared.borrow_mut();
        let shared = &mut *shared;
        loop {
            let Some(origin) = &mut shared.origin else { return Poll::Ready(Err(Unkept::Incomplete)) };
            let polled = match origin.poll_chunk(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(polled) => polled,
            };
            let outcome = match polled {
                Some(Ok(chunk @ (Chunk::Bytes(_) | Chunk::File(_)))) => {
                    if shared.has_room_for(&chunk) {
                        match shared.take(chunk) {
                            Ok(()) => {
                                shared.wake();
                                continue;
                            }
                            Err(failure) => {
                                shared.end = Some(Err(failure));
                                Err(Unkept::Incomplete)
                            }
                        }
                    } else {
                        (shared.handed_over, shared.rest) = (true, Some(chunk));
                        Err(Unkept::TooLong)
                    }
                }
                // Dropping an offer declines it: the bytes follow in the next chunks.
                Some(Ok(Chunk::Offer(_))) => continue,
                Some(Err(failure)) => {
                    shared.end = Some(Err(failure));
                    Err(Unkept::Incomplete)
                }
                None => {
                    shared.end = Some(Ok(()));
                    Ok(shared.bytes.clone().freeze())
                }
            };
            if !shared.handed_over || shared.reader_gone {
                shared.origin = None;
            }
            shared.wake();
            return Poll::Ready(outcome);
        }
    }
}

/// Reads a part of an unnamed file that holds one response and is not longer than `most`. Its bytes are in
/// memory, or were written a moment ago.
pub(crate) fn read(region: &FileRegion) -> Result<Vec<u8>, Failure> {
    let mut bytes = vec![0; usize::try_from(region.len).unwrap_or(usize::MAX)];
    let read = region.file.shared().read_exact_at(&mut bytes, region.offset);
    read.map_err(|error| Failure::server(500, format!("a body cannot be read: {error}")))?;
    Ok(bytes)
}

impl Shared {
    fn has_room_for(&self, chunk: &Chunk) -> bool {
        let length = match chunk {
            Chunk::Bytes(bytes) => bytes.len() as u64,
            Chunk::File(region) => region.len,
            Chunk::Offer(_) => 0,
        };
        self.bytes.len() as u64 + length <= self.most as u64
    }

    /// Adds a chunk. A chunk in a file, where the worker's link has put the body, is read: at most `most`
    /// bytes.
    fn take(&mut self, chunk: Chunk) -> Result<(), Failure> {
        match chunk {
            Chunk::Bytes(bytes) => self.bytes.extend_from_slice(&bytes),
            Chunk::File(region) => self.bytes.extend_from_slice(&read(&region)?),
            Chunk::Offer(_) => {}
        }
        Ok(())
    }

    fn wake(&mut self) {
        self.reserved.set(self.bytes.len() as u64);
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl BodyStream for Following {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        let mut shared = self.shared.borrow_mut();
        let shared = &mut *shared;
        if self.sent < shared.bytes.len() {
            let chunk = Bytes::copy_from_slice(&shared.bytes[self.sent..]);
            self.sent = shared.bytes.len();
            return Poll::Ready(Some(Ok(Chunk::Bytes(chunk))));
        }
        if let Some(rest) = shared.rest.take() {
            return Poll::Ready(Some(Ok(rest)));
        }
        if shared.handed_over {
            return match &mut shared.origin {
                Some(origin) => origin.poll_chunk(cx),
                None => Poll::Ready(None),
            };
        }
        match shared.end.take() {
            Some(Err(failure)) => Poll::Ready(Some(Err(failure))),
            Some(Ok(())) => Poll::Ready(None),
            None => {
                shared.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn half_closed(&mut self) {
        let mut shared = self.shared.borrow_mut();
        if shared.handed_over
            && let Some(origin) = &mut shared.origin
        {
            origin.half_closed();
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut shared = self.shared.borrow_mut();
        shared.reader_gone = true;
        if shared.handed_over {
            shared.origin = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::One;
    use std::collections::VecDeque;

    /// A stream of pieces; `None` is a pause, an empty piece a failure.
    struct Pieces(VecDeque<Option<&'static str>>);

    impl BodyStream for Pieces {
        fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
            match self.0.pop_front() {
                None => Poll::Ready(None),
                Some(None) => Poll::Pending,
                Some(Some("")) => Poll::Ready(Some(Err(Failure::server(502, "broken")))),
                Some(Some(piece)) => Poll::Ready(Some(Ok(Chunk::Bytes(piece.into())))),
            }
        }
    }

    fn divided(pieces: &[Option<&'static str>], most: usize) -> (Gathered, Following) {
        divide(Box::new(Pieces(pieces.iter().copied().collect())), most)
    }

    fn poll<T>(mut step: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        step(&mut Context::from_waker(Waker::noop()))
    }

    fn text(following: &mut Following) -> String {
        let mut out = String::new();
        while let Poll::Ready(Some(Ok(Chunk::Bytes(bytes)))) = poll(|cx| following.poll_chunk(cx)) {
            out.push_str(std::str::from_utf8(&bytes).unwrap());
        }
        out
    }

    #[test]
    fn the_body_is_kept_whatever_the_client_does() {
        let (gathered, mut following) = divided(&[Some("one "), None, Some("two")], 100);
        assert!(poll(|cx| gathered.poll_done(cx)).is_pending());
        assert_eq!(text(&mut following), "one ");
        drop(following);
        let Poll::Ready(Ok(body)) = poll(|cx| gathered.poll_done(cx)) else { panic!("it is not done") };
        assert_eq!(body, "one two");
    }

    #[test]
    fn a_long_body_is_handed_over_to_the_client() {
        let (gathered, mut following) =
            divided(&[Some("1234"), Some("5678"), Some("9"), None, Some("10")], 6);
        assert_eq!(poll(|cx| gathered.poll_done(cx)), Poll::Ready(Err(Unkept::TooLong)));
        drop(gathered);
        assert_eq!(text(&mut following), "123456789");
        assert_eq!(text(&mut following), "10");
        assert!(matches!(poll(|cx| following.poll_chunk(cx)), Poll::Ready(None)));
    }

    #[test]
    fn a_part_of_a_file_is_read_if_it_fits_and_handed_over_otherwise() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, b"0123456789").unwrap();
        let file = Rc::new(handler::held::OpenFile::from(file));
        for (most, kept) in [(8, Ok("12345678".into())), (7, Err(Unkept::TooLong))] {
            let region = handler::FileRegion { file: file.clone(), offset: 1, len: 8 };
            let (gathered, mut following) = divide(Box::new(One(Some(Chunk::File(region)))), most);
            assert_eq!(poll(|cx| gathered.poll_done(cx)), Poll::Ready(kept.clone()));
            match poll(|cx| following.poll_chunk(cx)) {
                Poll::Ready(Some(Ok(Chunk::Bytes(bytes)))) => assert_eq!(Ok(bytes), kept),
                Poll::Ready(Some(Ok(Chunk::File(region)))) => {
                    assert_eq!((region.len, kept.is_err()), (8, true))
                }
                _ => panic!("the client gets the part"),
            }
            assert!(matches!(poll(|cx| following.poll_chunk(cx)), Poll::Ready(None)));
        }
    }

    #[test]
    fn a_broken_body_is_not_kept_and_the_client_sees_it() {
        let (gathered, mut following) = divided(&[Some("1"), Some("")], 6);
        assert_eq!(poll(|cx| gathered.poll_done(cx)), Poll::Ready(Err(Unkept::Incomplete)));
        assert!(matches!(poll(|cx| following.poll_chunk(cx)), Poll::Ready(Some(Ok(_)))));
        assert!(matches!(poll(|cx| following.poll_chunk(cx)), Poll::Ready(Some(Err(_)))));
    }
}
