//! What an app is, from cells that were measured: where its time goes, what its memory does, where it breaks.

use serde::{Deserialize, Serialize};

use crate::cell::{Cell, Shape};
use crate::model::Model;
use crate::usl::Usl;

/// What an app does most of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It waits for something outside: threads help.
    Waiting,
    /// It runs Ruby: processes help, up to the cores.
    Computing,
    /// Both: processes and threads.
    Mixed,
    /// It holds the lock while it does not use the CPU (C code that waits without releasing it): processes help, threads do not.
    LockHog,
    /// Too little was measured to say.
    Unknown,
}

/// Memory as base + processes x per_process + processes x threads x per_thread, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// Whatever the shape.
    pub base_bytes: f64,
    /// Of each process.
    pub per_process_bytes: f64,
    /// Of each thread.
    pub per_thread_bytes: f64,
    /// Typical error of the fit, relative.
    pub error: f64,
}

/// Memory that grows with requests and does not stop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Leak {
    /// Bytes that each request leaves behind.
    pub bytes_per_request: f64,
    /// Requests until memory has doubled.
    pub doubles_after: u64,
}

/// Shapes that did not run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Crash {
    /// Which.
    pub shapes: Vec<Shape>,
    /// From so many processes on it fails, whatever the threads; `None` when there is no such line.
    pub from_processes: Option<u32>,
    /// From so many threads on it fails, whatever the processes.
    pub from_threads: Option<u32>,
    /// What the first of them said.
    pub text: String,
}

/// What an app is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Nature {
    /// In one word.
    pub kind: Kind,
    /// Share of an undisturbed request's time that it waits for something outside; with `running` and `holding` 1.
    pub waiting: f64,
    /// Share that it runs on a CPU.
    pub running: f64,
    /// Share that it holds the lock without running.
    pub holding: f64,
    /// Share of the time in the app that was spent waiting for the lock, in the measured cell where that was most; `None` when the server did not tell.
    pub lock_wait: Option<f64>,
    /// The model behind it.
    pub model: Option<Model>,
    /// Memory; `None` when no cell told it.
    pub memory: Option<Memory>,
    /// Whether memory goes on growing.
    pub leak: Option<Leak>,
    /// What did not run.
    pub crash: Option<Crash>,
    /// Law of threads (one process), when there are cells for it.
    pub threads_law: Option<Usl>,
    /// Law of processes (one number of threads), when there are cells for it.
    pub processes_law: Option<Usl>,
    /// All this in plain words, most important first.
    pub words: Vec<String>,
}

/// What the app behind these cells is.
pub fn nature(cells: &[Cell]) -> Nature {
    let _ = cells;
    unimplemented!("signatures first")
}
