//! Sends frames: appends them, and writes what was appended.

use super::{Flight, Link};
use crate::call::{Call, CallBody};
use crate::messages::Descriptors;
use crate::os;
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::Interest;
use wire::heap::HeapOrder;
use wire::{FrameKind, flag, frame};

/// Smaller bodies are copied behind their frame, which is cheaper than a separate write.
const COPIED: usize = 8 << 10;
/// The bytes of an upload in one frame.
const PIECE: u64 = 256 << 10;

/// Bytes for one write, a large body that follows them, and a descriptor that goes with the first byte.
#[derive(Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    behind: Bytes,
    sent: usize,
    fd: Option<OwnedFd>,
    upload: Option<Upload>,
}

impl Batch {
    /// Replaces the sent bytes by the next piece of the upload. Returns false if there are no more.
    fn go_on(&mut self) -> io::Result<bool> {
        let Some(upload) = self.upload.as_mut().filter(|upload| upload.at < upload.len) else {
            return Ok(false);
        };
        let mut piece = vec![0; PIECE.min(upload.len - upload.at) as usize];
        upload.file.read_exact_at(&mut piece, upload.at)?;
        upload.at += piece.len() as u64;
        (self.sent, self.behind) = (0, Bytes::new());
        self.bytes.clear();
        frame::append(&mut self.bytes, FrameKind::Input, 0, upload.id, &piece);
        Ok(true)
    }
}

/// A request body that is sent in frames.
struct Upload {
    file: File,
    id: u32,
    at: u64,
    len: u64,
}

impl Link {
    /// Sends a request and returns its id on this link.
    pub(crate) fn send(&self, call: Rc<Call>) -> io::Result<u32> {
        let mut flights = self.flights.borrow_mut();
        let entry = flights.vacant_entry();
        let number = self.sent.get();
        // The low half is the key of the flight. The high half distinguishes it from earlier flights with the
        // same key.
        let id = (number as u32) << 16 | (entry.key() as u32 & 0xffff);
        {
            let mut request = call.frame.borrow_mut();
            wire::request::stamp(&mut request, id);
            match &*call.body.borrow() {
                CallBody::Nothing => self.append(&request, Bytes::new(), None),
                CallBody::Bytes(body, _) => self.append(&request, body.clone(), None),
                CallBody::File { file, .. } => {
                    let file = file.as_fd().try_clone_to_owned()?;
                    let in_frames = matches!(self.descriptors, Descriptors::Connections(_));
                    wire::request::put_in_frames(&mut request, in_frames);
                    if in_frames {
                        self.append_upload(&request, file.into(), id)?;
                    } else {
                        self.append(&request, Bytes::new(), Some(file));
                    }
                }
            }
        }
        self.sent.set(number + 1);
        if let Some(scores) = &self.scores {
            scores.taken(id, number + 1);
        }
        entry.insert(Flight { id, number, call });
        Ok(id)
    }

    /// Sends a frame without body or descriptor.
    pub(crate) fn send_frame(&self, kind: FrameKind, id: u32, payload: &[u8]) {
        let mut bytes = Vec::with_capacity(frame::HEADER + payload.len());
        frame::append(&mut bytes, kind, 0, id, payload);
        self.append(&bytes, Bytes::new(), None);
    }

    /// Answers an offer with the client's socket, or with `None` to decline it.
    pub(crate) fn lend(&self, id: u32, socket: Option<OwnedFd>) {
        let flags = if socket.is_some() { flag::FD } else { 0 };
        let mut bytes = Vec::with_capacity(frame::HEADER);
        frame::append(&mut bytes, FrameKind::Lend, flags, id, &[]);
        self.append(&bytes, Bytes::new(), socket);
    }

    /// Orders the worker to leave a template behind, which communicates over this socket.
    pub(crate) fn promote(&self, socket: OwnedFd) {
        let mut bytes = Vec::with_capacity(frame::HEADER);
        frame::append(&mut bytes, FrameKind::Promote, flag::FD, 0, &[]);
        self.append(&bytes, Bytes::new(), Some(socket));
    }

    /// Orders the worker to describe its heap to the reader of this pipe. Returns false for workers that cannot fork.
    pub(crate) fn heap(&self, order: HeapOrder, pipe: OwnedFd) -> bool {
        if !matches!(self.descriptors, Descriptors::WithFrames) {
            return false;
        }
        let mut bytes = Vec::with_capacity(frame::HEADER + wire::heap::LEN);
        frame::append(&mut bytes, FrameKind::Heap, flag::FD, 0, &order.to_bytes());
        self.append(&bytes, Bytes::new(), Some(pipe));
        true
    }

    fn append(&self, bytes: &[u8], behind: Bytes, fd: Option<OwnedFd>) {
        let mut out = self.out.borrow_mut();
        let at = match out.back() {
            Some(batch) if fd.is_none() && batch.behind.is_empty() && batch.upload.is_none() => out.len() - 1,
            _ => {
                out.push_back(Batch { fd, ..Batch::default() });
                out.len() - 1
            }
        };
        let batch = &mut out[at];
        batch.bytes.extend_from_slice(bytes);
        if behind.len() < COPIED {
            batch.bytes.extend_from_slice(&behind);
        } else {
            batch.behind = behind;
        }
        drop(out);
        self.schedule();
    }

    /// Appends the request, followed by its body in frames.
    fn append_upload(&self, request: &[u8], file: File, id: u32) -> io::Result<()> {
        let (at, len) = (0, file.metadata()?.len());
        let upload = Some(Upload { file, id, at, len });
        self.out.borrow_mut().push_back(Batch { bytes: request.to_vec(), upload, ..Batch::default() });
        self.schedule();
        Ok(())
    }

    fn schedule(&self) {
        if !self.scheduled.replace(true)
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// Writes as many of the appended bytes as the socket accepts.
    pub(super) fn write(&self, cx: &mut Context<'_>) -> io::Result<()> {
        let mut out = self.out.borrow_mut();
        while let Some(batch) = out.front_mut() {
            if let (Descriptors::Beside(beside), Some(fd)) = (&self.descriptors, &batch.fd) {
                // The worker has at most as many pending descriptors as it can serve requests, far fewer than
                // a socket holds.
                os::send(beside, [&[0], &[]], &[fd.as_fd()])?;
                batch.fd = None;
            }
            let fds: Vec<_> = batch.fd.iter().map(AsFd::as_fd).collect();
            let first = &batch.bytes[batch.sent.min(batch.bytes.len())..];
            let second = &batch.behind[batch.sent.saturating_sub(batch.bytes.len())..];
            match self.socket.try_io(Interest::WRITABLE, || os::send(&self.socket, [first, second], &fds)) {
                Ok(n) => {
                    batch.sent += n;
                    batch.fd = None;
                    if batch.sent == batch.bytes.len() + batch.behind.len() && !batch.go_on()? {
                        out.pop_front();
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match self.socket.poll_write_ready(cx) {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(ready) => ready?,
                },
                // The worker is dead. Its last frames are still being read, and the reading side reports the
                // end of the link.
                Err(e) if matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                    out.clear();
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}
