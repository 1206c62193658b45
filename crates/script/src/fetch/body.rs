//! Response bodies that Ruby reads piece by piece, or hands on unread.

use bytes::Bytes;
use handler::{Body, BodyStream, Chunk, FileRegion, Lender};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::os::unix::fs::FileExt;

/// Most bytes of a file that are read at a time.
const PIECE: u64 = 64 << 10;

/// A body to be read.
pub(crate) enum Source {
    /// Nothing of it has been read: it may be handed on as it is.
    Whole(Body),
    /// Some has been read.
    Begun(Pieces),
}

/// What is left of a body.
pub(crate) struct Pieces {
    ready: VecDeque<Part>,
    stream: Option<Box<dyn BodyStream>>,
}

enum Part {
    Bytes(Bytes),
    File(FileRegion),
}

/// Why a body ends early, for messages.
pub(crate) type Broke = String;

impl Source {
    /// `None` of a body without bytes.
    pub(crate) fn of(body: Body) -> Option<Source> {
        match body {
            Body::Empty => None,
            Body::Bytes(bytes) if bytes.is_empty() => None,
            body => Some(Source::Whole(body)),
        }
    }

    /// The whole body, unless some of it is gone.
    pub(crate) fn untouched(self) -> Option<Body> {
        match self {
            Source::Whole(body) => Some(body),
            Source::Begun(_) => None,
        }
    }

    /// The body's pieces.
    ///
    /// # Errors
    /// A tunnel has none.
    pub(crate) fn pieces(self) -> Result<Pieces, Broke> {
        let (ready, stream) = match self {
            Source::Begun(pieces) => return Ok(pieces),
            Source::Whole(Body::Empty) => (None, None),
            Source::Whole(Body::Bytes(bytes)) => (Some(Part::Bytes(bytes)), None),
            Source::Whole(Body::Kept(kept)) => (Some(Part::Bytes(kept.body().clone())), None),
            Source::Whole(Body::File(region)) => (Some(Part::File(region)), None),
            Source::Whole(Body::Stream(stream)) => (None, Some(stream)),
            Source::Whole(Body::Tunnel { .. }) => {
                return Err("the connection was upgraded: return the response as it is".to_owned());
            }
        };
        Ok(Pieces { ready: ready.into_iter().collect(), stream })
    }
}

impl Pieces {
    /// The next bytes, not empty; `None` at the end.
    ///
    /// # Errors
    /// The body broke off.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Broke> {
        loop {
            match self.ready.pop_front() {
                Some(Part::Bytes(bytes)) if bytes.is_empty() => {}
                Some(Part::Bytes(bytes)) => return Ok(Some(bytes)),
                Some(Part::File(region)) if region.len == 0 => {}
                Some(Part::File(region)) => {
                    let (bytes, rest) = read(region).await?;
                    self.ready.push_front(Part::File(rest));
                    return Ok(Some(bytes));
                }
                None => match self.more().await? {
                    Some(part) => self.ready.push_back(part),
                    None => return Ok(None),
                },
            }
        }
    }

    async fn more(&mut self) -> Result<Option<Part>, Broke> {
        let broke = || "the body broke off".to_owned();
        let Some(stream) = &mut self.stream else { return Ok(None) };
        match poll_fn(|cx| stream.poll_chunk(cx)).await {
            None => {
                self.stream = None;
                Ok(None)
            }
            Some(Err(_)) => {
                self.stream = None;
                Err(broke())
            }
            Some(Ok(Chunk::Bytes(bytes))) => Ok(Some(Part::Bytes(bytes))),
            Some(Ok(Chunk::File(region))) => Ok(Some(Part::File(region))),
            Some(Ok(Chunk::Offer(lender))) => {
                decline(lender).await.map_err(|_| broke())?;
                Ok(Some(Part::Bytes(Bytes::new())))
            }
        }
    }

    /// All that is left.
    ///
    /// # Errors
    /// The body broke off, or has more than `limit` bytes.
    pub(crate) async fn join(mut self, limit: usize) -> Result<Bytes, Broke> {
        let first = self.next().await?.unwrap_or_default();
        let Some(second) = self.next().await? else { return Ok(first) };
        let mut all = Vec::with_capacity((first.len() + second.len()).next_power_of_two());
        all.extend_from_slice(&first);
        all.extend_from_slice(&second);
        while all.len() <= limit {
            match self.next().await? {
                Some(more) => all.extend_from_slice(&more),
                None => return Ok(all.into()),
            }
        }
        Err(format!("the body is larger than mruby.request_heap ({limit} bytes); read it by each"))
    }
}

/// There is no socket here: the bytes come as others do.
async fn decline(mut lender: Box<dyn Lender>) -> Result<u64, handler::Broken> {
    poll_fn(|cx| lender.poll_lend(cx, None)).await
}

/// The first bytes of a part of a file, read where nobody waits for the disk, and the part that is left.
async fn read(region: FileRegion) -> Result<(Bytes, FileRegion), Broke> {
    let lost = |error: std::io::Error| format!("a file could not be read: {error}");
    let FileRegion { file, offset, len } = region;
    let length = len.min(PIECE);
    let own = file.try_clone().map_err(lost)?;
    let reading = tokio::task::spawn_blocking(move || {
        let mut bytes = vec![0; length as usize];
        own.read_exact_at(&mut bytes, offset).map(|()| bytes)
    });
    let bytes = reading.await.map_err(|error| lost(error.into()))?.map_err(lost)?;
    Ok((bytes.into(), FileRegion { file, offset: offset + length, len: len - length }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler::Broken;
    use std::io::Write;
    use std::rc::Rc;
    use std::task::{Context, Poll};

    struct Chunks(VecDeque<Result<Chunk, Broken>>);

    impl BodyStream for Chunks {
        fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Chunk, Broken>>> {
            Poll::Ready(self.0.pop_front())
        }
    }

    #[derive(Debug)]
    struct Declined(Rc<std::cell::Cell<bool>>);

    impl Lender for Declined {
        fn offered(&self) -> u64 {
            4
        }

        fn poll_lend(
            &mut self,
            _: &mut Context<'_>,
            socket: Option<std::os::fd::BorrowedFd<'_>>,
        ) -> Poll<Result<u64, Broken>> {
            self.0.set(socket.is_none());
            Poll::Ready(Ok(0))
        }
    }

    fn join(body: Body, limit: usize) -> Result<Bytes, Broke> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(Source::of(body).unwrap().pieces()?.join(limit))
    }

    fn stream(chunks: impl IntoIterator<Item = Result<Chunk, Broken>>) -> Body {
        Body::Stream(Box::new(Chunks(chunks.into_iter().collect())))
    }

    fn bytes(text: &'static str) -> Result<Chunk, Broken> {
        Ok(Chunk::Bytes(Bytes::from_static(text.as_bytes())))
    }

    #[test]
    fn every_kind_of_body_is_read() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![b'x'; 200_000]).unwrap();
        let region = FileRegion { file: Rc::new(file), offset: 10, len: 150_000 };
        assert_eq!(join(Body::File(region.clone()), 1 << 20).unwrap().len(), 150_000);
        assert_eq!(&join(Body::Bytes("abc".into()), 9).unwrap()[..], b"abc");
        let declined = Rc::new(std::cell::Cell::new(false));
        let chunks =
            [bytes("a"), Ok(Chunk::Offer(Box::new(Declined(declined.clone())))), bytes("offe"), bytes("b")];
        assert_eq!(&join(stream(chunks), 9).unwrap()[..], b"aoffeb");
        assert!(declined.get());
        assert_eq!(join(stream([Ok(Chunk::File(region))]), 1 << 20).unwrap().len(), 150_000);
        assert!(Source::of(Body::Empty).is_none());
    }

    #[test]
    fn what_breaks_off_or_is_too_large_is_told() {
        assert!(join(stream([bytes("a"), Err(Broken)]), 9).unwrap_err().contains("broke off"));
        let error = join(stream([bytes("abc"), bytes("def"), bytes("ghi")]), 5).unwrap_err();
        assert!(error.contains("request_heap (5 bytes)"), "{error}");
        let short = FileRegion { file: Rc::new(tempfile::tempfile().unwrap()), offset: 0, len: 1 };
        assert!(join(Body::File(short), 9).unwrap_err().contains("could not be read"));
    }
}
