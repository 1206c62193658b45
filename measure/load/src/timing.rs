//! Parses Firebrick's `Server-Timing`: the server's account of a response's time.

/// Times in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Timing {
    /// Waiting for a worker.
    pub queue: u64,
    pub app: u64,
    /// Part of `app`: on a CPU.
    pub cpu: Option<u64>,
    /// Part of `app`: waiting for the GVL.
    pub gvl: Option<u64>,
}

/// Parses one `Server-Timing` field; `None` if it is not Firebrick's, which has at least `queue` and `app`.
pub(crate) fn parse(value: &[u8]) -> Option<Timing> {
    let text = std::str::from_utf8(value).ok()?;
    let (mut queue, mut app) = (None, None);
    let mut timing = Timing::default();
    for metric in text.split(',') {
        let mut parts = metric.split(';').map(str::trim);
        let name = parts.next()?;
        let duration = parts.find_map(|part| part.strip_prefix("dur=")).and_then(microseconds);
        match name {
            "queue" => queue = duration,
            "app" => app = duration,
            "cpu" => timing.cpu = duration,
            "gvl" => timing.gvl = duration,
            _ => {}
        }
    }
    Some(Timing { queue: queue?, app: app?, ..timing })
}

fn microseconds(milliseconds: &str) -> Option<u64> {
    let milliseconds: f64 = milliseconds.trim_matches('"').parse().ok()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    (0.0..1e12).contains(&milliseconds).then(|| (milliseconds * 1000.0).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firebrick_fields() {
        let timing = parse(b"queue;dur=0.301, app;dur=64.120, cpu;dur=12.003, gvl;dur=5.120");
        assert_eq!(timing, Some(Timing { queue: 301, app: 64_120, cpu: Some(12_003), gvl: Some(5120) }));
        assert_eq!(
            parse(b"queue;dur=0,app;dur=1"),
            Some(Timing { queue: 0, app: 1000, cpu: None, gvl: None })
        );
    }

    #[test]
    fn other_fields() {
        for value in [
            "db;dur=53",
            "app;dur=5",
            "queue;dur=x, app;dur=1",
            "queue;dur=-1, app;dur=1",
            "",
            "queue, app",
            "queue;dur=inf,app;dur=nan",
        ] {
            assert_eq!(parse(value.as_bytes()), None, "{value}");
        }
    }
}
