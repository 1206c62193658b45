//! Entrances for fuzz targets: readers of bytes from outside.

use crate::directives::{RequestDirectives, ResponseDirectives};
use crate::disk;
use crate::summary::FieldSummary;
use crate::targeted;
use crate::vary::{Selection, Vary};
use bytes::Bytes;
use handler::Fields;

/// Reads Cache-Control, CDN-Cache-Control and Vary of a response, and selects by the fields of a request.
/// Returns whether `no-store` was found.
pub fn fields(response: &Fields, request: &Fields) -> bool {
    let read = ResponseDirectives::of(response);
    let _ = (targeted::read(response), RequestDirectives::of(request));
    if let Vary::By(names) = Vary::of(response) {
        assert!(
            Selection::of(&names, request).matches(request, FieldSummary::of(request), None),
            "a request selects what it has selected"
        );
    }
    read.no_store
}

/// Reads a file of kept responses, writes what it has read, and compares.
pub fn file(bytes: &Bytes) {
    disk::read_and_write(bytes);
}
