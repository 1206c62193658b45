//! Tests the supervisor's decisions, with templates that do nothing.

use super::*;
use crate::process::{ExitStatus, ReleaseId};
use crate::progress::Progress;
use crate::reconciler::{End as Ended, Milestone};
use crate::spawner::{BootConfig, Handoff, TemplateMessage, WarmUp};
use queue::{Admission, PoolIndex, QueueKey};
use settings::Settings;
use stats::{DeathCause, ReloadOutcome, ReloadStage, ReloadWish};
use std::os::unix::fs::FileExt;
use tokio::sync::watch;
use wire::scoreboard::{Serving, link_at, thread_at};

#[test]
fn events_do_not_put_the_tick_off() {
    let now = Instant::now();
    let timeout = Some(Duration::from_secs(60));
    let mut planned = next_tick(now, now, false, timeout);
    assert_eq!(planned, now + BUSY_TICK);
    for ms in (0..200).step_by(50) {
        planned = next_tick(planned, now + Duration::from_millis(ms), false, timeout);
    }
    assert_eq!(planned, now + BUSY_TICK, "however many events come before it");
}

#[test]
fn an_event_brings_the_tick_forward() {
    let now = Instant::now();
    let planned = next_tick(now, now, true, None);
    assert_eq!(planned, now + IDLE_TICK);
    let busy = now + Duration::from_millis(100);
    assert_eq!(next_tick(planned, busy, false, None), busy + BUSY_TICK);
    let late = now + Duration::from_millis(900);
    assert_eq!(next_tick(planned, late, false, None), planned);
}

#[test]
fn a_short_worker_timeout_is_looked_at_in_time() {
    let now = Instant::now();
    assert_eq!(next_tick(now, now, true, Some(Duration::from_millis(800))), now + Duration::from_millis(400));
    assert_eq!(next_tick(now, now, true, Some(Duration::from_millis(1))), now + BUSY_TICK);
}

/// A supervisor whose worker 1 is up.
struct Scene {
    supervisor: Supervisor,
    settings: watch::Sender<Arc<Settings>>,
}

const TIMEOUT: Duration = Duration::from_secs(2);

/// Releases that are all started in the same way.
struct Same(BootConfig);

impl ReleaseReader for Same {
    fn read(&self, _: ReleaseId, _: ReleaseId) -> Result<(), String> {
        Ok(())
    }

    fn evaluated(&self, _: ReleaseId, _: &[settings::puma::Call]) -> Result<(), String> {
        Ok(())
    }

    fn boot_config(&self, release: ReleaseId) -> Result<BootConfig, String> {
        Ok(BootConfig { release, ..self.0.clone() })
    }
}

fn with_scene(play: impl AsyncFnOnce(&mut Scene)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut settings = Settings::defaults(std::path::Path::new("/"));
        settings.rack.ruby = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/template").into();
        settings.dir = "/".into();
        (settings.workers, settings.front_threads) = (settings::Workers::exactly(1), 1);
        settings.workers_auto = None;
        (settings.threads.min, settings.threads.max) = (2, 2);
        settings.timeouts.worker = Some(TIMEOUT);
        settings.limits.max_queue = 100;
        let settings = Arc::new(settings);
        let boot = BootConfig {
            release: FIRST_RELEASE,
            app: "config.ru".into(),
            lib: "/".into(),
            settings: settings.clone(),
            environment: Vec::new(),
            unlink: Vec::new(),
            replay: None,
            warm_up: WarmUp::default(),
            prepared: Handoff::default(),
        };
        let (sender, settings) = watch::channel(settings);
        let releases = std::rc::Rc::new(Same(boot.clone()));
        let mut supervisor = Supervisor::new(Options { boot, settings, releases, attached: None }).unwrap();
        supervisor.start_template(FIRST, FIRST_RELEASE).unwrap();
        let mut scene = Scene { supervisor, settings: sender };
        scene.supervisor.see(Change::Template { generation: FIRST, usable: Ok(()) });
        scene.supervisor.see(Change::Forked { generation: FIRST, index: 0, pid: Some(u32::MAX >> 1) });
        scene.reported(SupervisorMessage::Ready { serial: 1, seats: 2 });
        scene.messages();
        play(&mut scene).await;
    });
}

impl Scene {
    fn reported(&mut self, report: SupervisorMessage) {
        self.supervisor.reported(report);
    }

    /// Reports that worker 1 has exited.
    fn exits(&mut self, status: ExitStatus) {
        let end = Ended::Reported { status, peak_kib: 1024 };
        self.supervisor.see(Change::Ended { serial: 1, served: true, end });
    }

    fn commanded(&mut self, command: Command) {
        self.supervisor.commanded(command);
    }

    /// Returns the log lines since the last call.
    fn logged(&mut self) -> Vec<String> {
        let lines = self.supervisor.outbox.notices.drain(..).filter_map(|notice| match notice {
            Notice::Log(line) => Some(line),
            _ => None,
        });
        lines.collect()
    }

    fn tick(&mut self) -> Vec<ThreadMessage> {
        self.supervisor.tick();
        self.messages()
    }

    /// Returns the messages to the front thread.
    fn messages(&mut self) -> Vec<ThreadMessage> {
        self.supervisor.shared.mailbox(0).take()
    }

    /// Acts as worker 1: thread `thread` has been serving a request for `age`.
    fn serves(&self, thread: usize, id: u32, age: Duration) {
        let since = os::monotonic_us() - age.as_micros() as u64;
        let put = |at: usize, word: u64| {
            self.supervisor
                .shared
                .scoreboard()
                .memory()
                .write_all_at(&word.to_le_bytes(), at as u64)
                .unwrap();
        };
        put(thread_at(1, thread) + 8, since);
        put(thread_at(1, thread), Serving { link: 0, id }.pack());
        put(link_at(0), u64::from(id) + 1);
    }

    fn state(&self) -> Option<WorkerState> {
        self.supervisor.reconciler.rows().find(|row| row.serial == 1).map(|row| row.state)
    }
}

#[test]
fn what_runs_has_a_beginning_and_what_has_ended_is_counted() {
    let reloaded = |outcome, text: &str| {
        let took = Duration::from_secs(4);
        Milestone::Reloaded { outcome, release: FIRST_RELEASE, changed: false, text: text.to_owned(), took }
    };
    with_scene(async |scene| {
        scene.commanded(Command::Reload(ReloadWish::Reload, None));
        let running = scene.supervisor.processes().reloads.running.unwrap();
        assert_eq!(running.stage, ReloadStage::Booting);
        let ends = [
            reloaded(ReloadOutcome::Done, "the new code serves (4.0 s); for 30 s there is a way back"),
            Milestone::Superseded,
        ];
        ends.into_iter().for_each(|end| scene.supervisor.reached(end));
        let shown = scene.supervisor.processes().reloads;
        let last = shown.last.unwrap();
        assert_eq!((last.took_s, last.text.as_str()), (4.0, "the new code serves (4.0 s)"));
        let counts = [ReloadOutcome::Done, ReloadOutcome::Superseded, ReloadOutcome::Failed];
        assert_eq!(counts.map(|outcome| shown.counts.of(outcome)), [1, 1, 0]);
        scene.supervisor.reached(reloaded(ReloadOutcome::Failed, "a; b"));
        assert_eq!(scene.supervisor.processes().reloads.last.unwrap().text, "a; b");
    });
}

fn overdue(messages: &[ThreadMessage]) -> Vec<u32> {
    let id = |message: &ThreadMessage| match message {
        ThreadMessage::Overdue { serial: 1, id } => Some(*id),
        _ => None,
    };
    messages.iter().filter_map(id).collect()
}

#[test]
fn only_requests_over_worker_timeout_are_overdue() {
    with_scene(async |scene| {
        scene.serves(0, 0, TIMEOUT / 2);
        assert_eq!(overdue(&scene.tick()), Vec::<u32>::new());
        scene.serves(1, 1, TIMEOUT * 2);
        assert_eq!(overdue(&scene.tick()), [1]);
    });
}

#[test]
fn a_request_that_has_asked_for_time_is_not_overdue() {
    with_scene(async |scene| {
        scene.serves(0, 0, TIMEOUT * 2);
        scene.serves(1, 1, TIMEOUT * 2);
        let now = os::monotonic_us();
        scene.reported(SupervisorMessage::Extended { serial: 1, link: 0, id: 0, until_us: now + 60_000_000 });
        assert_eq!(overdue(&scene.tick()), [1]);
        scene.reported(SupervisorMessage::Stuck { serial: 1, request: "GET /stuck".to_owned() });
        scene.messages();
        scene.tick();
        assert_eq!(scene.state(), Some(WorkerState::Draining), "it is waited for");
        scene.reported(SupervisorMessage::Extended { serial: 1, link: 0, id: 0, until_us: now });
        assert_eq!(overdue(&scene.tick()), [0, 1], "its time is over");
    });
}

#[test]
fn limits_are_carried_out() {
    with_scene(async |scene| {
        let limits = |scene: &mut Scene, limit: Option<u64>| {
            let mut settings = Settings::clone(&scene.supervisor.options.boot.settings);
            settings.limits.max_requests = limit;
            let (_sender, settings) = watch::channel(Arc::new(settings));
            scene.supervisor.options.settings = settings;
        };
        let finished = 20_u64.to_le_bytes();
        scene.supervisor.shared.scoreboard().memory().write_all_at(&finished, 0).unwrap();
        scene.tick();
        assert_eq!(scene.supervisor.reconciler.rows().count(), 1);
        limits(scene, Some(10));
        scene.tick();
        scene.supervisor.see(Change::Forked { generation: FIRST, index: 1, pid: Some(u32::MAX >> 2) });
        assert_eq!(scene.state(), Some(WorkerState::Ready), "its successor is not ready");
        scene.reported(SupervisorMessage::Ready { serial: 2, seats: 2 });
        assert_eq!(scene.state(), Some(WorkerState::Draining));
        scene.exits(ExitStatus::Exit(0));
        scene.reported(SupervisorMessage::Cleared { serial: 1, served: Vec::new() });
        let death = &scene.supervisor.shared.deaths().list()[0];
        assert_eq!((death.cause, death.requests), (DeathCause::MaxRequests, 20));
        assert!(
            death.text.contains("finished, replaced because of limits.max_requests (10)"),
            "{}",
            death.text
        );
    });
}

/// Puts the settings of a reload in force. `auto`: the memory of a worker, where the machine decides the number.
fn reloaded_to(scene: &mut Scene, workers: &str, auto: Option<u64>) -> Vec<String> {
    let mut settings = Settings::clone(&scene.supervisor.options.boot.settings);
    (settings.workers, settings.workers_auto) = (workers.parse().unwrap(), auto);
    scene.supervisor.options.boot.settings = Arc::new(settings);
    scene.supervisor.reloaded_size();
    scene.logged()
}

fn reloaded(scene: &mut Scene, workers: &str) -> Vec<String> {
    reloaded_to(scene, workers, None)
}

/// The settings may have been read when the machine had more or fewer CPUs.
#[test]
fn a_reload_with_auto_takes_the_number_from_the_machine_as_it_is_now() {
    with_scene(async |scene| {
        let now = settings::auto_workers(&settings::Machine::recent(), 1 << 20, 0).number;
        let now = now.min(scene.supervisor.reconciler.capacity()) as usize;
        for stale in ["1", "7"] {
            reloaded_to(scene, stale, Some(1 << 20));
            assert_eq!(scene.supervisor.sizing().wanted, now, "{stale}");
        }
    });
}

#[test]
fn a_reload_changes_the_number_of_workers_as_far_as_there_are_slots() {
    with_scene(async |scene| {
        let sizing = |scene: &Scene| {
            let Sizing { wanted, min, max, pinned, .. } = scene.supervisor.sizing();
            (wanted, min, max, pinned)
        };
        assert_eq!(sizing(scene), (1, 1, 1, false));
        assert_eq!(reloaded(scene, "1"), Vec::<String>::new(), "nothing has changed");
        assert_eq!(reloaded(scene, "3:5"), ["workers: 1 → 3: the setting is 3:5 now"]);
        assert_eq!(sizing(scene), (3, 3, 5, false));
        scene.commanded(Command::More);
        assert_eq!(scene.logged(), ["workers: 3 → 4 by signal; the number stays until the next reload"]);
        assert_eq!(sizing(scene), (4, 3, 5, true));
        assert_eq!(reloaded(scene, "3:5"), Vec::<String>::new());
        assert_eq!(sizing(scene), (4, 3, 5, false), "the load decides again");
        let too_many = "workers is 20:40, but there can be at most 12 in this server; restart it for more";
        assert_eq!(reloaded(scene, "20:40"), [too_many, "workers: 4 → 12: the setting is 12 now"]);
        assert_eq!(sizing(scene), (12, 12, 12, false));
    });
}

#[test]
fn waits_are_predicted_while_all_workers_are_there() {
    with_scene(async |scene| {
        let waiting = |scene: &mut Scene| {
            scene.supervisor.observe_size();
            scene.supervisor.shared.dispatch(PoolIndex::DEFAULT).is_predicting()
        };
        assert!(waiting(scene));
        assert_eq!(scene.supervisor.shared.wanted(), 1);
        scene.commanded(Command::More);
        assert!(!waiting(scene), "one is to come");
        scene.commanded(Command::Fewer);
        assert!(waiting(scene));
        let mut settings = Settings::clone(&scene.supervisor.options.boot.settings);
        settings.limits.predict_wait = false;
        scene.supervisor.options.settings = watch::channel(Arc::new(settings)).1;
        assert!(!waiting(scene), "it is turned off");
    });
}

#[test]
fn a_stuck_worker_is_left_to_its_other_requests() {
    with_scene(async |scene| {
        scene.serves(0, 0, TIMEOUT * 2);
        scene.serves(1, 1, TIMEOUT / 2);
        scene.tick();
        scene.reported(SupervisorMessage::Stuck { serial: 1, request: "GET /stuck".to_owned() });
        assert_eq!(scene.state(), Some(WorkerState::Draining));
        let messages = scene.messages();
        assert!(messages.iter().any(|message| matches!(message, ThreadMessage::Drain(1))), "{messages:?}");
        assert!(messages.iter().any(|message| matches!(message, ThreadMessage::Withdraw(1))), "{messages:?}");
        let admission = scene
            .supervisor
            .shared
            .dispatch(PoolIndex::DEFAULT)
            .ask(0, 0, QueueKey::default(), Instant::now())
            .1;
        assert_eq!(admission, Admission::Wait, "it gets no requests");
        scene.exits(ExitStatus::Signal(9));
        let served = crate::in_flight::Served {
            link: 0,
            id: 1,
            method: "GET".to_owned(),
            target: "/other".to_owned(),
            path: "/other".to_owned(),
            age: TIMEOUT,
            answered: false,
            failed: true,
            kept: None,
        };
        scene.reported(SupervisorMessage::Cleared { serial: 1, served: vec![served] });
        let Some(Notice::Log(line)) = scene.supervisor.outbox.notices.pop() else {
            panic!("a line for the log")
        };
        for part in ["timeouts.worker (2 s) by GET /stuck", "signal 9", "1.0 MiB", "serving GET /other"] {
            assert!(line.contains(part), "{line}");
        }
    });
}

#[test]
fn a_request_that_is_not_taken_up_is_withdrawn_and_its_worker_gets_no_more() {
    with_scene(async |scene| {
        assert_eq!(
            scene
                .supervisor
                .shared
                .dispatch(PoolIndex::DEFAULT)
                .ask(0, 0, QueueKey::default(), Instant::now())
                .1,
            Admission::Go(1)
        );
        assert!(scene.tick().is_empty());
        let worker = scene.supervisor.workers.get_mut(&1).unwrap();
        worker.progress = Progress::new(Instant::now() - crate::progress::SUSPEND_AFTER);
        assert!(matches!(scene.tick()[..], [ThreadMessage::Withdraw(1)]));
        assert_eq!(
            scene
                .supervisor
                .shared
                .dispatch(PoolIndex::DEFAULT)
                .ask(0, 0, QueueKey::default(), Instant::now())
                .1,
            Admission::Wait
        );
        scene.reported(SupervisorMessage::Withdrawn { serial: 1, count: 1 });
        assert!(scene.tick().is_empty());
        scene.serves(0, 0, Duration::ZERO);
        let messages = scene.tick();
        assert!(matches!(messages[..], [ThreadMessage::Assigned(_)]), "it resumes: {messages:?}");
    });
}

#[test]
fn reports_of_a_template_that_was_ended_do_not_count() {
    with_scene(async |scene| {
        let exited = TemplateMessage::Exited { pid: u32::MAX >> 1, status: ExitStatus::Exit(0), peak_kib: 0 };
        scene.supervisor.template_reported(FIRST + 1, Ok(Some(exited)));
        assert_eq!(scene.state(), Some(WorkerState::Ready));
    });
}

#[test]
fn an_objective_comes_changes_and_goes() {
    with_scene(async |scene| {
        let rule = |slo: &str, threads: (u16, u16), start| settings::ShapeRule {
            slo: slo.parse().unwrap(),
            workers: settings::Workers { min: 1, max: 1000 },
            threads: settings::Threads { min: threads.0, max: threads.1 },
            start,
            keep: false,
        };
        let set = |scene: &Scene, rule| {
            scene.settings.send_modify(|settings| Arc::make_mut(settings).shape = rule);
        };
        scene.tick();
        assert!(scene.supervisor.shape().is_none());
        set(scene, Some(rule("p95 < 200ms", (1, 8), 1)));
        scene.tick();
        let shape = scene.supervisor.shape().expect("an objective");
        let most = scene.supervisor.reconciler.capacity();
        assert_eq!((shape.workers, shape.seats), (1, 1));
        assert_eq!((shape.workers_bounds, shape.seats_bounds), ([1, most], [1, 8]));
        let said = scene.logged().join("\n");
        assert!(said.contains("shape: the objective is p95 < 200ms now, from 1x1 on"), "{said}");
        assert!(
            said.contains(&format!("can be at most {most} in this server; restart it for more")),
            "{said}"
        );
        assert!(
            said.contains("started with 2 threads each; more are in use after `firebrick reload`"),
            "{said}"
        );
        assert!(scene.supervisor.shared.has_objective());

        set(scene, Some(rule("p50 < 1s", (4, 600), 4)));
        scene.tick();
        let shape = scene.supervisor.shape().expect("another objective");
        assert_eq!((shape.objective.as_str(), shape.seats_bounds), ("p50 < 1s", [4, 64]));
        let said = scene.logged().join("\n");
        assert!(
            said.contains("shape.threads is 4:600, but a worker of this server can have at most 64"),
            "{said}"
        );

        set(scene, None);
        scene.tick();
        assert!(scene.supervisor.shape().is_none() && !scene.supervisor.shared.has_objective());
        let said = scene.logged().join("\n");
        assert!(said.contains("shape: the objective is off: workers 1, at most 2 threads each"), "{said}");
        scene.tick();
        assert!(scene.logged().is_empty(), "said once");
    });
}
