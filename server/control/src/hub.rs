//! `firebrick hub`: shows the clients and streams of the hub of live pages.

use crate::client::{ControlClient, ask, show};
use crate::table::{grid, mib};
use stats::{HubReport, HubSnapshot};
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use text::people::grouped;

/// Runs `firebrick hub` for the server in `dir`.
pub fn hub_command(dir: &Path, client: &ControlClient, json: bool) -> ExitCode {
    show(ask(dir, client, "/hub", json, |report: Option<HubReport>| match report {
        Some(report) => described(&report),
        None => OFF.to_owned(),
    }))
}

const OFF: &str = "the hub is off: set hub.path, for example path = \"/cable\" below [hub]\n";

/// Returns the report for people.
fn described(report: &HubReport) -> String {
    let mut text = headline(&report.hub);
    if !report.streams.is_empty() {
        let titles =
            ["stream", "listeners", "members", "messages", "kept", "KiB"].map(str::to_owned).to_vec();
        let rows = report.streams.iter().map(|one| {
            vec![
                one.name.clone(),
                grouped(one.listeners),
                grouped(one.members),
                grouped(one.published),
                grouped(one.kept),
                format!("{:.1}", one.kept_bytes as f64 / 1024.0),
            ]
        });
        let mut all: Vec<Vec<String>> = std::iter::once(titles).chain(rows).collect();
        let width = all.iter().map(|row| row[0].chars().count()).max().unwrap_or(0);
        all.iter_mut().for_each(|row| row[0] = format!("{:<width$}", row[0]));
        text.push('\n');
        text.push_str(&grid(&all));
    }
    text
}

fn headline(hub: &HubSnapshot) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "clients      {} of {} since the start; {} subscriptions, {} rejected",
        grouped(hub.clients),
        grouped(hub.accepted),
        grouped(hub.subscriptions),
        grouped(hub.rejected)
    );
    let _ = writeln!(
        text,
        "listeners    {} by Server-Sent Events, {} polls that wait, {} by Mercure",
        grouped(hub.event_listeners),
        grouped(hub.polls),
        grouped(hub.mercure)
    );
    let _ = writeln!(
        text,
        "messages     {} published, {} whispers, {} sent to clients, {} under way",
        grouped(hub.published),
        grouped(hub.whispers),
        grouped(hub.sent),
        grouped(hub.backlog)
    );
    let _ = writeln!(
        text,
        "history      {} streams, {} MiB; {} members present",
        grouped(hub.streams),
        mib(hub.history_bytes),
        grouped(hub.members)
    );
    let _ = writeln!(
        text,
        "resumed      {} with all missed messages, {} with a gap; {} clients closed because they read too slowly",
        grouped(hub.resumed),
        grouped(hub.gaps),
        grouped(hub.slow)
    );
    let _ = writeln!(
        text,
        "app          {} calls, {} failed; {} violations of the protocol by clients",
        grouped(hub.calls),
        grouped(hub.failed_calls),
        grouped(hub.violations)
    );
    if hub.handed_back > 0 {
        text.push_str("sockets      served by the app itself until the next reload; the log says which channel needs that\n");
    }
    if hub.redis_losses > 0 {
        let away = if hub.redis_away > 0 { "away: nothing can be published" } else { "there again" };
        let _ = writeln!(
            text,
            "redis        {away}; {} losses of its connection, {} messages not published",
            grouped(hub.redis_losses),
            grouped(hub.unpublished)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use stats::HubStream;

    #[test]
    fn the_report_names_streams_and_figures() {
        let hub = HubSnapshot {
            clients: 12,
            event_listeners: 1_400,
            polls: 8,
            mercure: 9,
            accepted: 1_300,
            subscriptions: 24,
            streams: 2,
            members: 31,
            history_bytes: 3 << 20,
            published: 40,
            sent: 480,
            whispers: 21,
            backlog: 0,
            slow: 1,
            violations: 2,
            rejected: 3,
            resumed: 4,
            gaps: 5,
            calls: 6,
            failed_calls: 7,
            redis_away: 1,
            handed_back: 1,
            redis_losses: 3,
            unpublished: 17,
        };
        let stream = HubStream {
            name: "room".to_owned(),
            listeners: 12,
            members: 3,
            published: 40,
            kept: 20,
            kept_bytes: 2048,
        };
        let text = described(&HubReport { hub, streams: vec![stream] });
        for part in [
            "12 of 1,300",
            "1,400 by Server-Sent Events, 8 polls that wait, 9 by Mercure",
            "24 subscriptions, 3 rejected",
            "40 published, 21 whispers, 480 sent",
            "3.0 MiB; 31 members",
            "5 with a gap",
            "away: nothing can be published; 3 losses of its connection, 17 messages not published",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let row = text.lines().last().unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(row, ["room", "12", "3", "40", "20", "2.0"]);
    }
}
