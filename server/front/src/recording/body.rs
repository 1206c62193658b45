//! Bodies on their way past a recording: that of the request is copied up to a limit, that of the response digested.

use bytes::Bytes;
use handler::{BodyError, BodyStream, Chunk, Failure, FileRegion, IncomingBody};
use sha2::{Digest, Sha256};
use std::cell::{Cell, RefCell};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// The bytes of a file that are read at a time.
const PIECE: u64 = 64 << 10;

/// The facts about both bodies of an exchange.
pub(super) struct Bodies {
    /// The most bytes of the request body that are kept.
    limit: usize,
    /// The beginning of the request body, and how much of it has come.
    pub(super) kept: RefCell<Vec<u8>>,
    pub(super) received: Cell<u64>,
    /// Whether its end has come.
    pub(super) is_whole: Cell<bool>,
    /// Of the response; `None` if its bytes do not pass the server.
    pub(super) digest: RefCell<Option<Sha256>>,
    pub(super) sent: Cell<u64>,
}

impl Bodies {
    pub(super) fn new(limit: usize) -> Bodies {
        Bodies {
            limit,
            kept: RefCell::default(),
            received: Cell::new(0),
            is_whole: Cell::new(false),
            digest: RefCell::new(Some(Sha256::new())),
            sent: Cell::new(0),
        }
    }

    pub(super) fn receive(&self, bytes: &[u8]) {
        self.received.set(self.received.get() + bytes.len() as u64);
        let mut kept = self.kept.borrow_mut();
        let room = self.limit.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    pub(super) fn send(&self, bytes: &[u8]) {
        self.sent.set(self.sent.get() + bytes.len() as u64);
        if let Some(digest) = self.digest.borrow_mut().as_mut() {
            digest.update(bytes);
        }
    }

    pub(super) fn cannot_digest(&self) {
        self.digest.replace(None);
    }
}

/// A request body that is copied while it is read.
pub(super) struct Copied {
    pub(super) body: Box<dyn IncomingBody>,
    pub(super) bodies: Rc<Bodies>,
}

impl IncomingBody for Copied {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let data = self.body.poll_data(cx);
        match &data {
            Poll::Ready(Some(Ok(bytes))) => self.bodies.receive(bytes),
            Poll::Ready(None) => self.bodies.is_whole.set(true),
            _ => {}
        }
        data
    }

    fn length(&self) -> Option<u64> {
        self.body.length()
    }
}

/// A response body that is digested while it is sent.
///
/// Bytes in files are read here, a piece at each call, and a worker's offer to write to the client's socket is declined (by the drop of the lender), so that all
/// bytes pass.
pub(super) struct Digested {
    body: Box<dyn BodyStream>,
    /// The rest of a file, which comes before the rest of the body.
    file: Option<FileRegion>,
    bodies: Rc<Bodies>,
}

impl Digested {
    pub(super) fn stream(body: Box<dyn BodyStream>, bodies: &Rc<Bodies>) -> Box<Digested> {
        Box::new(Digested { body, file: None, bodies: bodies.clone() })
    }

    pub(super) fn file(region: FileRegion, bodies: &Rc<Bodies>) -> Box<Digested> {
        Box::new(Digested { body: Box::new(Nothing), file: Some(region), bodies: bodies.clone() })
    }

    /// Returns the next piece of a file.
    fn read(&mut self, mut region: FileRegion) -> Result<Chunk, Failure> {
        let len = region.len.min(PIECE);
        let mut piece = vec![0; len as usize];
        let read = region.file.shared().read_exact_at(&mut piece, region.offset);
        read.map_err(|error| Failure::server(500, format!("a file cannot be read: {error}")))?;
        self.bodies.send(&piece);
        region.offset += len;
        region.len -= len;
        self.file = Some(region).filter(|region| region.len > 0);
        Ok(Chunk::Bytes(piece.into()))
    }
}

impl BodyStream for Digested {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        loop {
            if let Some(region) = self.file.take() {
                return Poll::Ready(Some(self.read(region)));
            }
            match ready!(self.body.poll_chunk(cx)) {
                Some(Ok(Chunk::Offer(_))) => {}
                Some(Ok(Chunk::File(region))) => self.file = Some(region).filter(|region| region.len > 0),
                chunk => {
                    if let Some(Ok(Chunk::Bytes(bytes))) = &chunk {
                        self.bodies.send(bytes);
                    }
                    return Poll::Ready(chunk);
                }
            }
        }
    }

    fn half_closed(&mut self) {
        self.body.half_closed();
    }
}

/// A body without bytes; also what takes the place of another one for a moment.
pub(super) struct Nothing;

impl BodyStream for Nothing {
    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        Poll::Ready(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler::Lender;
    use std::collections::VecDeque;
    use std::io::Write;
    use std::os::fd::BorrowedFd;

    #[derive(Debug)]
    struct Dropped(Rc<Cell<bool>>);

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }

    impl Lender for Dropped {
        fn offered(&self) -> u64 {
            9
        }

        fn poll_lend(
            &mut self,
            _: &mut Context<'_>,
            _: Option<BorrowedFd<'_>>,
        ) -> Poll<Result<u64, Failure>> {
            panic!("a recording lends nothing")
        }
    }

    struct Pieces(VecDeque<Result<Chunk, Failure>>);

    impl BodyStream for Pieces {
        fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
            Poll::Ready(self.0.pop_front())
        }
    }

    fn region(content: &[u8], offset: u64, len: u64) -> FileRegion {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        FileRegion { file: Rc::new(file.into()), offset, len }
    }

    /// Returns the bytes of a body, and its end.
    fn all(body: &mut dyn BodyStream) -> (Vec<u8>, Option<Failure>) {
        let (mut bytes, mut cx) = (Vec::new(), Context::from_waker(std::task::Waker::noop()));
        loop {
            match body.poll_chunk(&mut cx) {
                Poll::Ready(Some(Ok(Chunk::Bytes(piece)))) => {
                    assert!(!piece.is_empty() && piece.len() as u64 <= PIECE);
                    bytes.extend_from_slice(&piece);
                }
                Poll::Ready(Some(Ok(_))) => panic!("not digested"),
                Poll::Ready(Some(Err(failure))) => return (bytes, Some(failure)),
                Poll::Ready(None) => return (bytes, None),
                Poll::Pending => panic!("it never waits"),
            }
        }
    }

    #[test]
    fn offers_are_declined_and_files_are_read() {
        let large = vec![b'l'; 3 * PIECE as usize + 5];
        let (bodies, declined) = (Rc::new(Bodies::new(0)), Rc::new(Cell::new(false)));
        let chunks = [
            Chunk::Bytes(Bytes::from_static(b"first ")),
            Chunk::Offer(Box::new(Dropped(declined.clone()))),
            Chunk::File(region(b"a file here", 2, 4)),
            Chunk::File(region(b"", 0, 0)),
            Chunk::File(region(&large, 1, large.len() as u64 - 1)),
            Chunk::Bytes(Bytes::from_static(b" last")),
        ];
        let pieces = Pieces(chunks.into_iter().map(Ok).collect());
        let (bytes, failure) = all(&mut *Digested::stream(Box::new(pieces), &bodies));
        let expected = [b"first file", &large[1..], b" last"].concat();
        assert!(bytes == expected && failure.is_none() && declined.get());
        let digest = bodies.digest.borrow_mut().take().unwrap().finalize();
        assert_eq!(digest, Sha256::digest(&expected));
        assert_eq!(bodies.sent.get(), expected.len() as u64);
    }

    #[test]
    fn a_file_that_has_become_shorter_breaks_the_body_off() {
        let bodies = Rc::new(Bodies::new(0));
        let (bytes, failure) = all(&mut *Digested::file(region(b"short", 0, 9), &bodies));
        assert!(bytes.is_empty() && failure.is_some());
    }
}
