use super::*;

fn exit(cause: Cause, status: Option<ExitStatus>) -> WorkerExit {
    let (killed, now) = (false, Instant::now());
    let (serial, index, generation, pid, peak_kib, wait) = (9, 2, 1, 42, 2048, None);
    WorkerExit { serial, index, generation, pid, forked: now, killed, status, peak_kib, cause, wait }
}

fn facts(exit: &WorkerExit) -> DeathFacts<'_> {
    DeathFacts {
        exit,
        recycled: None,
        requests: 7,
        memory: Memory::default(),
        oom: OomCount { before: Some(1), after: Some(1) },
        stuck: &[],
        served: Vec::new(),
        traces: &[],
        worker_timeout: Some(Duration::from_secs(2)),
        noticed: exit.forked + Duration::from_secs(90),
        flight: (Flight::default(), 0),
    }
}

fn record(facts: DeathFacts<'_>) -> Death {
    facts.record(SystemTime::UNIX_EPOCH)
}

fn served(id: u32, seconds: u64) -> Served {
    let (method, path) = ("GET".to_owned(), format!("/{id}"));
    let (age, target) = (Duration::from_secs(seconds), format!("{path}?q"));
    Served { link: 1, id, method, target, path, age, answered: false, failed: true, kept: None }
}

const KILL: Option<ExitStatus> = Some(ExitStatus::Signal(9));

#[test]
fn the_kernels_kill_is_told_from_another() {
    let by_signal = exit(Cause::Crashed, KILL);
    let death = record(facts(&by_signal));
    assert_eq!((death.cause, death.signal, death.exit_code), (DeathCause::Signal, Some(9), None));
    assert!(death.text.contains("not because memory ran out"), "{}", death.text);

    let oom = OomCount { before: Some(1), after: Some(2) };
    let death = record(DeathFacts { oom, ..facts(&by_signal) });
    assert_eq!(
        (death.cause, death.oom_kills_before, death.oom_kills_after),
        (DeathCause::OutOfMemory, Some(1), Some(2))
    );
    assert!(death.text.contains("killed by the kernel because memory ran out"), "{}", death.text);

    let death = record(DeathFacts { oom: OomCount::default(), ..facts(&by_signal) });
    assert_eq!(death.cause, DeathCause::Signal);
    assert!(death.text.contains("by hand, or the kernel"), "nobody knows: {}", death.text);

    let ours = WorkerExit { killed: true, ..exit(Cause::Ordered, KILL) };
    assert!(!may_be_the_kernels(&ours));
    assert_eq!(record(DeathFacts { oom, ..facts(&ours) }).cause, DeathCause::Drain);
    assert!(!may_be_the_kernels(&exit(Cause::Crashed, Some(ExitStatus::Exit(1)))));
    assert!(may_be_the_kernels(&exit(Cause::Crashed, None)), "an orphan's end is not reported");
}

#[test]
fn each_end_has_its_cause() {
    let cases = [
        (Cause::Crashed, Some(ExitStatus::Exit(3)), DeathCause::Exit, "died: exit code 3"),
        (Cause::Crashed, Some(ExitStatus::Signal(11)), DeathCause::Signal, "SEGV"),
        (Cause::Crashed, None, DeathCause::Unknown, "unknown"),
        (Cause::Stuck, KILL, DeathCause::Timeout, "timeouts.worker (2 s)"),
        (Cause::Frozen, KILL, DeathCause::Frozen, "took up no requests"),
        (Cause::SlowBoot, KILL, DeathCause::BootTimeout, "timeouts.worker_boot"),
        (Cause::SlowDrain, KILL, DeathCause::DrainTimeout, "timeouts.shutdown"),
        (Cause::Ordered, Some(ExitStatus::Exit(0)), DeathCause::Drain, "exited as ordered"),
        (Cause::Ordered, None, DeathCause::Drain, "exited as ordered"),
        (Cause::Ordered, Some(ExitStatus::Signal(11)), DeathCause::Signal, "SEGV"),
        (Cause::Ordered, Some(ExitStatus::Exit(1)), DeathCause::Drain, "exit code 1"),
    ];
    for (cause, status, wanted, words) in cases {
        let exit = exit(cause, status);
        let death = record(facts(&exit));
        assert_eq!(death.cause, wanted, "{cause:?}");
        assert!(death.text.contains(words), "{}", death.text);
        assert!(death.text.contains("1 min 30 s old and had finished 7 requests"), "{}", death.text);
    }
}

#[test]
fn the_end_of_an_orphan_is_no_excuse_for_lost_requests_or_the_kernel() {
    let orphan = exit(Cause::Ordered, None);
    assert!(finished(&orphan) && !finished(&exit(Cause::Crashed, None)));
    assert!(!finished(&WorkerExit { killed: true, ..exit(Cause::Ordered, None) }));
    let death = record(DeathFacts { served: vec![served(1, 1)], ..facts(&orphan) });
    assert!(death.text.contains("with unanswered requests: exit status unknown"), "{}", death.text);
    let oom = OomCount { before: Some(1), after: Some(2) };
    assert_eq!(record(DeathFacts { oom, ..facts(&orphan) }).cause, DeathCause::OutOfMemory);
}

#[test]
fn a_recycled_worker_says_why() {
    let recycled = Some((DeathCause::MaxAge, "after limits.max_age (1 h)"));
    let ended = exit(Cause::Ordered, Some(ExitStatus::Exit(0)));
    let death = record(DeathFacts { recycled, ..facts(&ended) });
    assert_eq!(death.cause, DeathCause::MaxAge);
    assert!(
        death.text.starts_with("worker 2 (pid 42) finished, after limits.max_age (1 h);"),
        "{}",
        death.text
    );
    let slow = exit(Cause::SlowDrain, KILL);
    let death = record(DeathFacts { recycled, ..facts(&slow) });
    assert_eq!(death.cause, DeathCause::DrainTimeout);
    assert!(death.text.contains("after limits.max_age (1 h)"), "{}", death.text);
}

#[test]
fn requests_come_oldest_first_with_where_they_were() {
    let crashed = exit(Cause::Crashed, KILL);
    let lines = vec!["app.rb:3:in `deep'".to_owned(), "app.rb:9".to_owned()];
    let traces =
        [Trace { link: 1, id: 5, lines: lines.clone() }, Trace { link: 0, id: 4, lines: Vec::new() }];
    let answered = Served { failed: false, answered: true, ..served(6, 1) };
    let given = vec![served(4, 2), served(5, 30), answered];
    let death = record(DeathFacts { served: given, traces: &traces, ..facts(&crashed) });
    let paths: Vec<&str> = death.in_flight.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(paths, ["/5", "/4", "/6"]);
    assert_eq!(death.in_flight[0].backtrace, Some(lines));
    assert_eq!((&death.in_flight[1].backtrace, death.in_flight[2].answered), (&None, true));
    let wanted = "serving GET /5?q (for 30 s, last seen at app.rb:3:in `deep'), GET /4?q (for 2.0 s)";
    assert!(death.text.ends_with(wanted), "{}", death.text);
}

#[test]
fn the_ring_is_bounded_and_the_counts_are_not() {
    let (deaths, crashed) = (Deaths::default(), exit(Cause::Crashed, KILL));
    for requests in 0..KEPT as u64 + 3 {
        deaths.add(record(DeathFacts { requests, ..facts(&crashed) }), Vec::new(), 8);
    }
    let kept = deaths.list();
    assert_eq!((kept.len(), kept[0].requests, kept[KEPT - 1].requests), (KEPT, KEPT as u64 + 2, 3));
    assert_eq!(deaths.counts().of(DeathCause::Signal), KEPT as u64 + 3);
}

#[test]
fn spans_are_short() {
    let text = |seconds: f64| span(Duration::from_secs_f64(seconds));
    assert_eq!(
        [text(0.25), text(9.0), text(119.0), text(3599.0), text(12_000.0)],
        ["0.2 s", "9.0 s", "1 min 59 s", "59 min 59 s", "3 h 20 min"]
    );
}
