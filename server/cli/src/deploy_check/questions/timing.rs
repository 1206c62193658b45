//! Time-outs of the server against those of what is in front, and the end against the platform's.

use std::time::Duration;

use super::super::facts::DeployFacts;
use super::super::finding::DeployFinding;
use super::super::platform::ProxyInFront;
use super::set;

/// The margin of the lines to paste.
const MARGIN: Duration = Duration::from_secs(5);

/// Whether the server keeps idle connections longer than the proxy, and gives up on a request before it.
pub(super) fn timeouts(facts: &DeployFacts) -> Vec<DeployFinding> {
    const QUESTION: &str = "time-outs";
    let (settings, proxy) = (&facts.settings, facts.surroundings.proxy);
    let timeouts = &settings.timeouts;
    let keep_alive = timeouts.keep_alive;
    let (Some(idle), Some(first_byte)) = (proxy.idle(), proxy.first_byte()) else {
        return vec![
            DeployFinding::green(
                QUESTION,
                format!("keep-alive {}, with nothing in front", shown(keep_alive)),
            )
            .with("keep_alive_s", keep_alive.as_secs_f64()),
        ];
    };
    let name = proxy.name();
    let mut findings = Vec::new();
    // 0 turns keep-alive off: the server says so in each response.
    if !keep_alive.is_zero() && keep_alive <= idle {
        let text = format!(
            "keep-alive {}, but {name} uses idle connections for {}: requests that meet the end of one get 502 or 503",
            shown(keep_alive),
            shown(idle)
        );
        // Cloudflare sends most requests again.
        let finding = if proxy == ProxyInFront::Cloudflare {
            DeployFinding::yellow(QUESTION, text)
        } else {
            DeployFinding::red(QUESTION, text)
        };
        findings.push(
            finding
                .with("keep_alive_s", keep_alive.as_secs_f64())
                .with("proxy_idle_s", idle.as_secs_f64())
                .paste_line(set(facts, "timeouts.keep_alive", &written(idle + MARGIN))),
        );
    }
    let worker = timeouts.worker.filter(|_| settings.app.is_some());
    let endless = settings.app.is_some() && worker.is_none();
    if endless || worker.is_some_and(|worker| worker >= first_byte) {
        let limit = worker.map_or("off".to_owned(), shown);
        let finding = DeployFinding::yellow(
            QUESTION,
            format!(
                "the worker's time-out is {limit}, but {name} gives up after {}: the client gets its error, and the log no backtrace",
                shown(first_byte)
            ),
        );
        let worker = worker.map_or(serde_json::Value::Null, |worker| worker.as_secs_f64().into());
        let finding = finding
            .with("worker_s", worker)
            .with("proxy_first_byte_s", first_byte.as_secs_f64())
            .paste_line(set(facts, "timeouts.worker", &written(first_byte.saturating_sub(MARGIN))));
        findings.push(match (proxy, timeouts.worker) {
            (ProxyInFront::Nginx, Some(worker)) => {
                finding.paste("or in nginx", format!("proxy_read_timeout {}s;", (worker + MARGIN).as_secs()))
            }
            _ => finding,
        });
    }
    if findings.is_empty() {
        let worker = worker.map(|worker| format!(", worker {}", shown(worker))).unwrap_or_default();
        let text = format!(
            "keep-alive {}{worker}: they suit {name} ({} and {})",
            shown(keep_alive),
            shown(idle),
            shown(first_byte)
        );
        findings.push(
            DeployFinding::green(QUESTION, text)
                .with("keep_alive_s", keep_alive.as_secs_f64())
                .with("proxy_idle_s", idle.as_secs_f64()),
        );
    }
    findings
}

/// Whether requests have the time to finish that the settings promise.
pub(super) fn shutdown(facts: &DeployFacts) -> Vec<DeployFinding> {
    const QUESTION: &str = "shutdown";
    let (settings, around) = (&facts.settings, &facts.surroundings);
    let timeouts = &settings.timeouts;
    let lame_duck = timeouts.lame_duck.unwrap_or_default();
    let needed = lame_duck + timeouts.shutdown;
    let parts = if lame_duck.is_zero() {
        format!("{} (timeouts.shutdown)", shown(needed))
    } else {
        format!("{} (timeouts.lame_duck and timeouts.shutdown)", shown(needed))
    };
    let finding = match &around.grace {
        None => DeployFinding::green(QUESTION, format!("{parts} after TERM; --grace says when KILL comes")),
        Some((grace, by)) if needed < *grace => DeployFinding::green(
            QUESTION,
            format!("{parts} after TERM; KILL comes after {} ({by})", shown(*grace)),
        ),
        Some((grace, by)) => {
            let text = format!(
                "{parts} after TERM, but KILL comes after {} ({by}): requests are cut off",
                shown(*grace)
            );
            let left = grace.saturating_sub(lame_duck).saturating_sub(MARGIN);
            let finding = DeployFinding::yellow(QUESTION, text).paste_line(set(
                facts,
                "timeouts.shutdown",
                &written(left),
            ));
            if around.kubernetes {
                let seconds = (needed + MARGIN).as_secs();
                finding.paste("or in the pod", format!("terminationGracePeriodSeconds: {seconds}"))
            } else {
                finding
            }
        }
    };
    let grace =
        around.grace.as_ref().map_or(serde_json::Value::Null, |(grace, _)| grace.as_secs_f64().into());
    vec![finding.with("shutdown_s", needed.as_secs_f64()).with("grace_s", grace)]
}

/// `95 s`, `0.5 s`, `2 min`.
fn shown(time: Duration) -> String {
    if time.subsec_nanos() == 0 {
        text::people::span(time)
    } else {
        format!("{} s", text::people::figure(time.as_secs_f64()))
    }
}

/// As a setting is written: whole seconds.
fn written(time: Duration) -> String {
    format!("\"{}s\"", time.as_secs())
}
