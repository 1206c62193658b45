//! Response bodies that Ruby reads part by part, or passes on unread.

use bytes::Bytes;
use handler::{Body, BodyStream, Chunk, Failure, FileRegion, Lender};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::os::unix::fs::FileExt;

/// The most bytes of a file per read.
const READ: u64 = 64 << 10;

pub(crate) enum Source {
    /// An unread body, which can be passed on as it is.
    Whole(Body),
    /// A partly read body.
    Started(BodyParts),
}

/// The rest of a body.
pub(crate) struct BodyParts {
    ready: VecDeque<BodyPart>,
    stream: Option<Box<dyn BodyStream>>,
}

enum BodyPart {
    Bytes(Bytes),
    File(FileRegion),
}

/// The reason why a body ended early.
pub(crate) type Incomplete = String;

impl Source {
    /// Returns `None` for a body without bytes.
    pub(crate) fn of(body: Body) -> Option<Source> {
        match body {
            Body::Empty => None,
            Body::Bytes(bytes) if bytes.is_empty() => None,
            body => Some(Source::Whole(body)),
        }
    }

    /// Returns the body if it is completely unread.
    pub(crate) fn unread(self) -> Option<Body> {
        match self {
            Source::Whole(body) => Some(body),
            Source::Started(_) => None,
        }
    }

    /// Returns the body's parts.
    ///
    /// # Errors
    /// A tunnel has no parts.
    pub(crate) fn parts(self) -> Result<BodyParts, Incomplete> {
        let (ready, stream) = match self {
            Source::Started(parts) => return Ok(parts),
            Source::Whole(Body::Empty) => (None, None),
            Source::Whole(Body::Bytes(bytes)) => (Some(BodyPart::Bytes(bytes)), None),
            Source::Whole(Body::Kept(kept)) => (Some(BodyPart::Bytes(kept.body().clone())), None),
            Source::Whole(Body::File(region)) => (Some(BodyPart::File(region)), None),
            Source::Whole(Body::Stream(stream)) => (None, Some(stream)),
            Source::Whole(Body::Tunnel { .. }) => {
                return Err("the connection was upgraded: return the response as it is".to_owned());
            }
        };
        Ok(BodyParts { ready: ready.into_iter().collect(), stream })
    }
}

impl BodyParts {
    /// Returns the next bytes, never empty; `None` at the end.
    ///
    /// # Errors
    /// The body is incomplete.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Incomplete> {
        loop {
            match self.ready.pop_front() {
                Some(BodyPart::Bytes(bytes)) if bytes.is_empty() => {}
                Some(BodyPart::Bytes(bytes)) => return Ok(Some(bytes)),
                Some(BodyPart::File(region)) if region.len == 0 => {}
                Some(BodyPart::File(region)) => {
                    let (bytes, rest) = read(region).await?;
                    self.ready.push_front(BodyPart::File(rest));
                    return Ok(Some(bytes));
                }
                None => match self.more().await? {
                    Some(part) => self.ready.push_back(part),
                    None => return Ok(None),
                },
            }
        }
    }

    async fn more(&mut self) -> Result<Option<BodyPart>, Incomplete> {
        let incomplete = |failure: Failure| format!("the body broke off: {}", failure.reason);
        let Some(stream) = &mut self.stream else { return Ok(None) };
        match poll_fn(|cx| stream.poll_chunk(cx)).await {
            None => {
                self.stream = None;
                Ok(None)
            }
            Some(Err(failure)) => {
                self.stream = None;
                Err(incomplete(failure))
            }
            Some(Ok(Chunk::Bytes(bytes))) => Ok(Some(BodyPart::Bytes(bytes))),
            Some(Ok(Chunk::File(region))) => Ok(Some(BodyPart::File(region))),
            Some(Ok(Chunk::Offer(lender))) => {
                decline(lender).await.map_err(incomplete)?;
                Ok(Some(BodyPart::Bytes(Bytes::new())))
            }
        }
    }

    /// Reads the rest of the body.
    ///
    /// # Errors
    /// The body is incomplete, or has more than `limit` bytes.
    pub(crate) async fn join(mut self, limit: usize) -> Result<Bytes, Incomplete> {
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
        Err(format!("the body is larger than mruby.request_heap ({limit} bytes); read it with each"))
    }
}

/// Declines a loan of the socket, because there is none: the bytes arrive as ordinary chunks.
async fn decline(mut lender: Box<dyn Lender>) -> Result<u64, Failure> {
    poll_fn(|cx| lender.poll_lend(cx, None)).await
}

/// Reads the first bytes of a file region on a blocking thread; returns them and the rest of the region.
async fn read(region: FileRegion) -> Result<(Bytes, FileRegion), Incomplete> {
    let failed = |error: std::io::Error| format!("a file could not be read: {error}");
    let FileRegion { file, offset, len } = region;
    let length = len.min(READ);
    let own = file.shared();
    let reading = tokio::task::spawn_blocking(move || {
        let mut bytes = vec![0; length as usize];
        own.read_exact_at(&mut bytes, offset).map(|()| bytes)
    });
    let bytes = reading.await.map_err(|error| failed(error.into()))?.map_err(failed)?;
    Ok((bytes.into(), FileRegion { file, offset: offset + length, len: len - length }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::rc::Rc;
    use std::task::{Context, Poll};

    struct Chunks(VecDeque<Result<Chunk, Failure>>);

    impl BodyStream for Chunks {
        fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
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
        ) -> Poll<Result<u64, Failure>> {
            self.0.set(socket.is_none());
            Poll::Ready(Ok(0))
        }
    }

    fn join(body: Body, limit: usize) -> Result<Bytes, Incomplete> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(Source::of(body).unwrap().parts()?.join(limit))
    }

    fn stream(chunks: impl IntoIterator<Item = Result<Chunk, Failure>>) -> Body {
        Body::Stream(Box::new(Chunks(chunks.into_iter().collect())))
    }

    fn bytes(text: &'static str) -> Result<Chunk, Failure> {
        Ok(Chunk::Bytes(Bytes::from_static(text.as_bytes())))
    }

    #[test]
    fn every_kind_of_body_is_read() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![b'x'; 200_000]).unwrap();
        let region = FileRegion { file: Rc::new(file.into()), offset: 10, len: 150_000 };
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
    fn incomplete_and_too_large_bodies_are_errors() {
        let incomplete = stream([bytes("a"), Err(Failure::app(502, "it ended"))]);
        assert!(join(incomplete, 9).unwrap_err().contains("broke off"));
        let error = join(stream([bytes("abc"), bytes("def"), bytes("ghi")]), 5).unwrap_err();
        assert!(error.contains("request_heap (5 bytes)"), "{error}");
        let short = FileRegion { file: Rc::new(tempfile::tempfile().unwrap().into()), offset: 0, len: 1 };
        assert!(join(Body::File(short), 9).unwrap_err().contains("could not be read"));
    }
}
