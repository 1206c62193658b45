//! Requests of the server's own, for the probes and the shadow of a reload.

use wire::request::{Encoder, Head, Put};

/// Returns the REQUEST frame of a GET for `target` that appears to come from this machine. `measure`: the worker measures it.
pub(crate) fn frame(target: &str, measure: bool, asked_us: u64) -> Vec<u8> {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => ((0, path.len() as u32), (path.len() as u32 + 1, query.len() as u32)),
        None => ((0, target.len() as u32), (0, 0)),
    };
    let head = Head {
        version: 11,
        https: false,
        remote_port: 0,
        measure,
        switch: false,
        asked_us,
        method: b"GET",
        target: target.as_bytes(),
        path,
        query,
        remote_addr: b"127.0.0.1",
        server_name: b"localhost",
        server_port: b"80",
    };
    let mut frame = Vec::new();
    let mut encoder = Encoder::new(&mut frame, &head);
    encoder.field(b"host", b"localhost");
    encoder.field(b"user-agent", b"Firebrick reload");
    encoder.finish(Put::None);
    frame
}
