//! Writes the bytes of a response that its client does not take to a file, on another thread ([`crate::disk`]).

use super::Local;
use crate::call::{Call, CallState};
use crate::link::Owner;
use crate::spool::{BATCH, Written};
use net::task::spawn_local;
use std::io;
use std::rc::Rc;
use tokio::task::spawn_blocking;
use wire::FrameKind;

impl Local {
    /// Writes the unwritten bytes of a response's backlog until none is left. One writer at a time, see [`Backlog`](crate::spool::Backlog).
    pub(crate) fn write_backlog(self: &Rc<Local>, call: Rc<Call>) {
        let local = self.clone();
        spawn_local(async move {
            let disk = local.disk().clone();
            loop {
                let _turn = disk.turn(BATCH as u64).await;
                let Some((batch, late)) = call.reply.begin_write() else { return };
                let temp_dir = local.settings().process.temp_dir.clone();
                let result = spawn_blocking(move || batch.write(&temp_dir)).await;
                let result = result.unwrap_or_else(|error| Err(io::Error::other(error)));
                drop(late);
                local.wrote(&call, result);
            }
        });
    }

    fn wrote(&self, call: &Call, result: io::Result<Written>) {
        let (grant, unspooled) =
            call.reply.on_written(result, &call.room(Local::room(self)), &|| call.holding());
        if let (1.., CallState::Sent { serial, id, .. }) = (grant, call.state()) {
            self.send_frame(serial, FrameKind::Window, id, &grant.to_le_bytes());
        }
        if let Some(error) = unspooled {
            let settings = self.settings();
            let dir = settings.process.temp_dir.display();
            self.log(&format!(
                "a response cannot be spooled to {dir}: {error}; the app waits for the client"
            ));
        }
    }
}
