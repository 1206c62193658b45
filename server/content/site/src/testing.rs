//! Runs the futures of responses in tests, and reads what they say.

use handler::{Body, Response};
use std::os::unix::fs::FileExt;

/// Runs a future to completion.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(future)
}

/// Returns the bytes of a body as text.
pub(crate) fn text(response: &Response) -> String {
    let bytes = match &response.body {
        Body::Bytes(bytes) => bytes.to_vec(),
        Body::Kept(kept) => kept.body().to_vec(),
        Body::File(region) => {
            let mut bytes = vec![0; region.len as usize];
            region.file.shared().read_exact_at(&mut bytes, region.offset).unwrap();
            bytes
        }
        _ => Vec::new(),
    };
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns a field's value, empty if absent.
pub(crate) fn field(response: &Response, name: &str) -> String {
    String::from_utf8_lossy(response.fields.get(name).unwrap_or_default()).into_owned()
}
