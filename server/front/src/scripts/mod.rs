//! mruby handlers. [`plan`] reads them from their files, and [`local`] is a front thread's VM with them.

pub(crate) mod local;

use script::{HandlerPlan, HandlerRoute, HandlerSource, RouteLimits};
use settings::Settings;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// The handlers as read at one time.
pub(crate) struct Edition {
    pub(crate) plan: Arc<HandlerPlan>,
    used: AtomicBool,
    refused: AtomicBool,
}

impl Edition {
    pub(crate) fn new(plan: Arc<HandlerPlan>) -> Arc<Edition> {
        Arc::new(Edition { plan, used: AtomicBool::new(false), refused: AtomicBool::new(false) })
    }

    /// Records that a thread uses these handlers. Returns whether it is the first: only that one logs it.
    fn is_used(&self) -> bool {
        !self.used.swap(true, Ordering::Relaxed)
    }

    /// Records that a thread cannot use these handlers. Returns whether it is the first.
    fn is_refused(&self) -> bool {
        !self.refused.swap(true, Ordering::Relaxed)
    }
}

/// Reads and checks the handlers that the settings name; `None` without any.
///
/// # Errors
/// A file cannot be read, a handler has a syntax error, or this program has no mruby.
pub(crate) fn plan(settings: &Settings) -> Result<Option<Arc<HandlerPlan>>, String> {
    let mruby = &settings.mruby;
    if mruby.routes.is_empty() {
        return Ok(None);
    }
    let mut files: Vec<&PathBuf> = Vec::new();
    let mut routes = Vec::new();
    for route in &mruby.routes {
        let number = |file| {
            files.iter().position(|known| *known == file).unwrap_or_else(|| {
                files.push(file);
                files.len() - 1
            })
        };
        let handlers = route.handlers.iter().map(number).collect();
        let limits = &route.limits;
        let limits = RouteLimits {
            request_heap: limits.request_heap,
            step_time: limits.step_time,
            deadline: limits.deadline,
            max_tasks: limits.max_tasks,
            max_body: limits.max_body,
            reproxy: limits.reproxy,
        };
        routes.push(HandlerRoute { path: route.path.clone(), handlers, limits: Arc::new(limits) });
    }
    let sources = files.into_iter().map(|file| HandlerSource::read(file)).collect::<Result<Vec<_>, _>>()?;
    script::check(&sources)?;
    Ok(Some(Arc::new(HandlerPlan {
        sources,
        routes,
        heap: mruby.heap,
        temp_dir: settings.process.temp_dir.clone(),
    })))
}

/// Waits until `threads` front threads have evaluated their handlers.
///
/// # Errors
/// The error of the first handler that cannot be used, or that the handlers take too long.
pub(crate) async fn ready(
    evaluated: &mut mpsc::UnboundedReceiver<Result<(), String>>,
    threads: usize,
    timeout: Duration,
) -> Result<(), String> {
    let all = async {
        for _ in 0..threads {
            evaluated.recv().await.unwrap_or_else(|| Err("a front thread ended".to_owned()))?;
        }
        Ok(())
    };
    in_time(timeout, all).await
}

async fn in_time(timeout: Duration, loaded: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    tokio::time::timeout(timeout, loaded).await.unwrap_or_else(|_| {
        Err(format!("the handlers did not load within timeouts.worker_boot ({} s)", timeout.as_secs_f64()))
    })
}

/// Evaluates the handlers once without serving them, for `firebrick check`. Returns their number.
///
/// # Errors
/// See [`plan`] and [`ready`].
pub(crate) async fn try_out(settings: &Settings) -> Result<Option<usize>, String> {
    let Some(plan) = plan(settings)? else { return Ok(None) };
    let count = plan.sources.len();
    let script =
        script::Script::open(plan, std::rc::Rc::new(|what| output::complain(format_args!("{what}"))))?;
    in_time(settings.timeouts.worker_boot, script.ready()).await?;
    Ok(Some(count))
}
