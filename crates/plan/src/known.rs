//! Facts, each with where it is from: what was typed goes before what was measured, and that before what is usual.

use serde::Serialize;

/// A value and its origin, in words.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Known<T> {
    pub value: T,
    pub from: String,
}

impl<T> Known<T> {
    pub(crate) fn new(value: T, from: impl Into<String>) -> Known<T> {
        Known { value, from: from.into() }
    }
}

/// What a source tells; times in milliseconds, rates per second.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Found {
    /// What it was, for messages: `the access log access.log`.
    pub source: String,
    /// In the busiest minute.
    pub rate: Option<Known<f64>>,
    pub average_rate: Option<Known<f64>>,
    /// Mean time in the app.
    pub response_ms: Option<Known<f64>>,
    pub cv: Option<Known<f64>>,
    pub cpu_ms: Option<Known<f64>>,
    pub workers: Option<Known<u32>>,
    pub threads: Option<Known<u32>>,
    pub cores: Option<Known<f64>>,
    /// What has to be known about all this.
    pub notes: Vec<String>,
}
