//! Tasks of a thread.
//!
//! Why: tokio compiles its whole life of a task for each type of future, some 5,000 lines of LLVM's code.
//! With fifty types that was a quarter of all code of the front. Boxed, all futures with the same output are
//! of one type, at the price of an allocation for each task.

use std::pin::Pin;
use tokio::task::JoinHandle;

/// As `tokio::task::spawn_local`.
pub fn spawn_local<T: 'static>(future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    spawn(Box::pin(future))
}

// A function of its own, because the one above is compiled for each future.
fn spawn<T: 'static>(future: Pin<Box<dyn Future<Output = T>>>) -> JoinHandle<T> {
    tokio::task::spawn_local(future)
}
