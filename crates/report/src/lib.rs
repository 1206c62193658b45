//! Self-contained HTML pages with plots.
#![forbid(unsafe_code)]
