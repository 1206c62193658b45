//! Simulated apps under generated loads: what the shape reaches, and what it never does.

use super::*;
use crate::reconciler::growth::Memory;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::Instant;

/// An app: what a request waits for, and what it computes, in seconds.
#[derive(Debug, Clone, Copy)]
struct App {
    waits: f64,
    computes: f64,
    /// The requests of all workers that its database serves at a time.
    database: f64,
}

const IO: App = App { waits: 0.02, computes: 0.000_2, database: f64::INFINITY };
const CPU: App = App { waits: 0.0, computes: 0.005, database: f64::INFINITY };
const MIXED: App = App { waits: 0.01, computes: 0.004, database: f64::INFINITY };

impl App {
    /// Returns the requests per second that a shape can serve.
    fn capacity(self, shape: ServingShape, cpus: f64) -> f64 {
        let (workers, seats) = (f64::from(shape.workers), f64::from(shape.seats));
        let alone = self.waits + self.computes;
        let by_seats = workers * seats / alone;
        let by_gvl = workers.min(cpus) / self.computes;
        let by_database = self.database / self.waits.max(1e-9);
        by_seats.min(by_gvl).min(by_database)
    }

    /// Returns the most that any shape within the bounds can serve.
    fn best(self, bounds: &ShapeBounds, cpus: f64) -> f64 {
        self.capacity(ServingShape { workers: bounds.workers.1, seats: bounds.seats.1 }, cpus)
    }
}

struct Server {
    app: App,
    cpus: f64,
    memory: Memory,
    connections: Option<u32>,
    built: Option<u32>,
    shaper: Shaper,
    now: Instant,
    /// The waiting requests by the time of their arrival, in seconds.
    queue: VecDeque<(f64, f64)>,
    at: f64,
    steps: Vec<ShapeStep>,
    /// Requests served in time, and those late or refused.
    good: f64,
    bad: f64,
}

fn bounds() -> ShapeBounds {
    ShapeBounds {
        objective: Duration::from_millis(200),
        percentile: 95,
        workers: (1, 4),
        seats: (1, 64),
        start: ServingShape { workers: 1, seats: 1 },
    }
}

impl Server {
    fn new(app: App, bounds: ShapeBounds) -> Server {
        Server {
            app,
            cpus: 4.0,
            memory: Memory {
                taken: 1 << 28,
                worker: Some(1 << 26),
                limit: Some(1 << 32),
                available: Some(1 << 32),
            },
            connections: None,
            built: None,
            shaper: Shaper::new(bounds),
            now: Instant::now(),
            queue: VecDeque::new(),
            at: 0.0,
            steps: Vec::new(),
            good: 0.0,
            bad: 0.0,
        }
    }

    fn capacity(&self) -> f64 {
        self.app.capacity(self.shaper.shape(), self.cpus)
    }

    fn waiting(&self) -> f64 {
        self.queue.iter().map(|(_, count)| count).sum()
    }

    /// Serves one sample with this many requests per second.
    fn sample(&mut self, rate: f64) {
        const PARTS: u32 = 10;
        let time = SAMPLE.as_secs_f64();
        let (shape, capacity) = (self.shaper.shape(), self.capacity());
        let mut sample =
            ShapeSample { time: SAMPLE, workers: shape.workers, cpus: self.cpus, ..Default::default() };
        let (mut served, objective) = (0.0, 0.2);
        let alone = self.app.waits + self.app.computes;
        // With more at a time than can be served, each takes longer.
        let full = f64::from(shape.workers * shape.seats) / capacity;
        for _ in 0..PARTS {
            let part = time / f64::from(PARTS);
            self.at += part;
            let mut comes = rate * part;
            if let Some(limit) = self.shaper.wait_limit() {
                let room = (limit.as_secs_f64() * capacity - self.waiting()).max(0.0);
                let refused = (comes - room).max(0.0);
                // Whole requests are refused.
                sample.refused += refused.round() as u64;
                self.bad += refused;
                comes -= refused;
                while self
                    .queue
                    .front()
                    .is_some_and(|(since, _)| self.at - since > limit.as_secs_f64() + part)
                {
                    let (_, count) = self.queue.pop_front().unwrap();
                    sample.refused += count.round() as u64;
                    self.bad += count;
                }
            }
            self.queue.push_back((self.at, comes));
            let mut room = capacity * part;
            while let Some((since, count)) = self.queue.front_mut() {
                let some = count.min(room);
                let wait = (self.at - *since).max(0.0);
                let app = if wait > 0.0 { full.max(alone) } else { alone };
                for _ in 0..some.round() as u64 {
                    sample.waits.record(Duration::from_secs_f64(wait));
                    sample.times.record(Duration::from_secs_f64(wait + app));
                    sample.late += u64::from(wait + app > objective);
                }
                *if wait + app > objective { &mut self.bad } else { &mut self.good } += some;
                served += some;
                sample.app_us += (some * app * 1e6) as u64;
                *count -= some;
                room -= some;
                if *count > 1e-9 {
                    break;
                }
                self.queue.pop_front();
            }
        }
        sample.ended = served.round() as u64;
        sample.oldest = self
            .queue
            .front()
            .map_or(Duration::ZERO, |(since, _)| Duration::from_secs_f64((self.at - since).max(0.0)));
        sample.waiting = self.waiting().round() as u32;
        let used = served / time * self.app.computes;
        let all = f64::from(shape.workers * shape.seats);
        sample.busy = if sample.waiting > 0 { all } else { (served / time * alone).ceil().min(all) } as u32;
        sample.worker_cpus = Some(used);
        sample.worker_share = Some(used / self.cpus);
        sample.idle_cpu = Some((1.0 - used / self.cpus).max(0.0));
        (sample.connections, sample.built) = (self.connections, self.built);
        let per_worker = self.memory.worker.unwrap_or(0);
        sample.memory =
            Memory { taken: self.memory.taken + per_worker * u64::from(shape.workers), ..self.memory };
        self.now += SAMPLE;
        let steps = self.shaper.observe(sample, self.now);
        self.check(&steps);
        self.steps.extend(steps);
    }

    /// Checks what holds after each step.
    fn check(&self, steps: &[ShapeStep]) {
        let (bounds, shape) = (self.shaper.bounds(), self.shaper.shape());
        assert!((bounds.workers.0..=bounds.workers.1).contains(&shape.workers), "{shape}");
        assert!((bounds.seats.0..=bounds.seats.1).contains(&shape.seats), "{shape}");
        if let Some(connections) = self.connections {
            assert!(shape.seats <= connections.max(bounds.start.seats), "{shape}, {connections} connections");
        }
        for step in steps {
            assert!(
                step.to.seats <= step.from.seats * 4 && step.to.workers <= step.from.workers * 2,
                "{step:?}"
            );
            let one = step.to.seats == step.from.seats || step.to.workers == step.from.workers;
            assert!(one && !step.why.is_empty(), "{step:?}");
        }
        let trying = steps.iter().filter(|step| step.verdict == ShapeVerdict::Trying).count();
        assert!(trying <= 1);
    }

    fn run(&mut self, rate: f64, seconds: u32) {
        for _ in 0..seconds * 2 {
            self.sample(rate);
        }
    }

    fn count(&self, verdict: ShapeVerdict) -> usize {
        self.steps.iter().filter(|step| step.verdict == verdict).count()
    }
}

#[test]
fn apps_reach_nearly_the_best_shape_from_one_seat() {
    for app in [IO, CPU, MIXED] {
        let mut server = Server::new(app, bounds());
        let best = app.best(&bounds(), server.cpus);
        // As much as the best shape can just serve, and what came before is refused or served.
        server.run(best * 1.2, 120);
        assert!(
            server.capacity() >= best * 0.95,
            "{app:?}: {} of {best}, {:#?}",
            server.capacity(),
            server.steps
        );
    }
}

#[test]
fn threads_of_an_app_that_computes_do_not_grow() {
    let mut server = Server::new(CPU, bounds());
    server.run(500.0, 120);
    assert_eq!(server.shaper.shape().seats, 1, "{:#?}", server.steps);
    assert!(server.shaper.shape().workers > 2);
}

#[test]
fn an_app_that_waits_gets_threads_first() {
    let mut server = Server::new(IO, bounds());
    server.run(400.0, 60);
    let shape = server.shaper.shape();
    assert!(shape.workers == 1 && shape.seats >= 8, "{shape}: {:#?}", server.steps);
}

#[test]
fn a_step_of_the_load_breaks_the_objective_for_a_short_time_only() {
    let mut server = Server::new(IO, bounds());
    server.run(20.0, 30);
    let mut broken = 0;
    for rate in [200.0, 800.0, 1_500.0] {
        for _ in 0..120 {
            let before = server.bad;
            server.sample(rate);
            broken += u32::from(server.bad - before > rate * SAMPLE.as_secs_f64() * 0.05);
        }
    }
    assert!(SAMPLE * broken <= Duration::from_secs(10), "{broken} samples: {:#?}", server.steps);
}

#[test]
fn overload_keeps_the_goodput() {
    for app in [IO, CPU, MIXED] {
        let mut server = Server::new(app, bounds());
        let best = app.best(&bounds(), server.cpus);
        server.run(best * 3.0, 120);
        assert!(server.count(ShapeVerdict::Overload) > 0, "{app:?}");
        server.good = 0.0;
        server.run(best * 3.0, 60);
        let goodput = server.good / 60.0;
        assert!(
            goodput >= best * 0.9,
            "{app:?}: {goodput} of {best}, {:?} {:#?}",
            server.shaper.wait_limit(),
            server.steps
        );
        server.run(best * 0.2, 60);
        assert_eq!(server.shaper.wait_limit(), None, "{app:?}");
    }
}

#[test]
fn a_slow_database_gets_no_more_than_it_can_serve() {
    let app = App { database: 8.0, ..IO };
    let mut server =
        Server::new(app, ShapeBounds { start: ServingShape { workers: 1, seats: 2 }, ..bounds() });
    server.run(1_200.0, 300);
    let all = server.shaper.shape().workers * server.shaper.shape().seats;
    assert!((8..=16).contains(&all), "{all}: {:#?}", server.steps);
}

#[test]
fn the_shape_returns_without_flapping() {
    let mut server = Server::new(IO, bounds());
    server.run(1_500.0, 60);
    let large = server.shaper.shape();
    assert!(large.seats >= 32, "{large}");
    server.run(2.0, 300);
    assert_eq!(server.shaper.shape(), bounds().start, "{:#?}", server.steps);
    let steps = server.steps.len();
    server.run(2.0, 600);
    assert_eq!(server.steps.len(), steps, "{:#?}", &server.steps[steps..]);
}

#[test]
fn a_learnt_shape_is_only_another_beginning() {
    let learnt = |seats, least_app| LearntShape { shape: ServingShape { workers: 2, seats }, least_app };
    let mut server = Server::new(IO, bounds());
    server.shaper = Shaper::resumed(bounds(), learnt(32, None));
    assert_eq!(server.shaper.shape(), ServingShape { workers: 2, seats: 32 });
    server.run(1_500.0, 30);
    assert!(server.steps.is_empty(), "it fits: {:#?}", server.steps);
    assert_eq!(server.shaper.learnt().shape, server.shaper.shape());
    server.run(2.0, 300);
    assert_eq!(server.shaper.shape(), bounds().start, "{:#?}", server.steps);

    // A database that serves few at a time now: the shortest time that was learnt shows that these are too many.
    let mut server = Server::new(App { database: 8.0, ..IO }, bounds());
    server.shaper = Shaper::resumed(bounds(), learnt(64, Some(Duration::from_millis(20))));
    server.run(1_200.0, 300);
    let learnt_then = server.shaper.learnt().shape;
    assert!(learnt_then.workers * learnt_then.seats <= 32, "{learnt_then}: {:#?}", server.steps);

    let few = ShapeBounds { workers: (1, 1), seats: (1, 4), ..bounds() };
    assert_eq!(Shaper::resumed(few, learnt(64, None)).shape(), ServingShape { workers: 1, seats: 4 });
}

#[test]
fn what_a_trial_tries_is_not_learnt() {
    let mut server = Server::new(IO, bounds());
    while server.count(ShapeVerdict::Trying) == 0 {
        server.sample(500.0);
    }
    assert_ne!(server.shaper.shape(), bounds().start);
    assert_eq!(server.shaper.learnt().shape, bounds().start);
}

#[test]
fn no_more_seats_are_used_than_the_workers_were_started_with() {
    let one = ShapeBounds { workers: (1, 1), ..bounds() };
    let mut server = Server::new(IO, one);
    server.built = Some(3);
    server.run(2_000.0, 60);
    assert_eq!(server.shaper.shape().seats, 3);
    let refused: Vec<&ShapeStep> =
        server.steps.iter().filter(|step| step.verdict == ShapeVerdict::Refused).collect();
    assert_eq!(refused.len(), 1, "once");
    assert!(
        refused[0].why.ends_with(
            "the workers were started with 3 threads each: `firebrick reload` starts them with up to 64"
        ),
        "{}",
        refused[0].why
    );
    // Others, as after an undo.
    server.built = Some(2);
    server.sample(10.0);
    assert_eq!(server.shaper.shape().seats, 2);
    server.built = Some(64);
    server.run(2_000.0, 60);
    assert!(server.shaper.shape().seats > 16, "{:#?}", server.steps);
}

#[test]
fn an_hour_of_changing_load_does_not_oscillate() {
    for app in [IO, CPU, MIXED] {
        let mut server = Server::new(app, bounds());
        let best = app.best(&bounds(), server.cpus);
        for minute in 0..60 {
            let wave = f64::from(minute % 10) / 10.0;
            server.run(best * (0.1 + 0.7 * wave), 60);
        }
        let moves = server.count(ShapeVerdict::Shrunk) + server.count(ShapeVerdict::Reverted);
        assert!(moves <= 24, "{app:?}: {moves} steps back, {:#?}", server.steps);
        let missed = server.bad / (server.good + server.bad);
        assert!(missed < 0.02, "{app:?}: {missed}");
    }
}

#[test]
fn guards_stop_growth_and_say_why() {
    let refused = |server: &Server| -> Vec<String> {
        let refused = server.steps.iter().filter(|step| step.verdict == ShapeVerdict::Refused);
        refused.map(|step| step.why.clone()).collect()
    };
    let one = ShapeBounds { workers: (1, 1), ..bounds() };
    let mut server = Server::new(IO, one);
    server.connections = Some(5);
    server.run(2_000.0, 60);
    assert_eq!(server.shaper.shape().seats, 5);
    assert!(
        refused(&server).iter().any(|why| why.contains("5 connections to the database")),
        "{:#?}",
        server.steps
    );

    let mut server = Server::new(CPU, bounds());
    server.memory.available = Some(1 << 20);
    server.run(2_000.0, 60);
    assert_eq!(server.shaper.shape().workers, 1);
    assert!(
        refused(&server).iter().any(|why| why.contains("no memory for another worker")),
        "{:#?}",
        server.steps
    );

    let mut server = Server::new(CPU, bounds());
    server.cpus = 1.0;
    server.run(2_000.0, 60);
    assert_eq!(server.shaper.shape().workers, 1);
    assert!(refused(&server).iter().any(|why| why.contains("of the CPU is idle")), "{:#?}", server.steps);

    let mut server = Server::new(IO, ShapeBounds { seats: (1, 4), ..one });
    server.run(2_000.0, 60);
    assert!(
        refused(&server).iter().any(|why| why.contains("most that the settings allow")),
        "{:#?}",
        server.steps
    );
    assert_eq!(refused(&server).len(), 1, "once");
}

#[test]
fn replaced_workers_end_a_trial_without_a_verdict() {
    let mut server = Server::new(IO, bounds());
    while server.count(ShapeVerdict::Trying) == 0 {
        server.sample(500.0);
    }
    let step = server.shaper.disturbed("the workers are replaced").expect("a trial");
    assert_eq!((step.verdict, step.after), (ShapeVerdict::Undecided, None));
    assert!(server.shaper.disturbed("again").is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the app and the load: the bounds and guards hold (see `check`), and trials that do not help become rare.
    #[test]
    fn guards_hold_and_trials_become_rare(
        waits in 0.0f64..0.1,
        computes in 0.000_1f64..0.02,
        database in 1.0f64..100.0,
        connections in prop_oneof![Just(None), (1u32..20).prop_map(Some)],
        loads in proptest::collection::vec((0.0f64..3_000.0, 5u32..90), 1..20),
        start in (1u32..4, 1u32..20),
    ) {
        let app = App { waits, computes, database };
        let start = ServingShape { workers: start.0, seats: start.1 };
        let mut server = Server::new(app, ShapeBounds { start, ..bounds() });
        server.connections = connections;
        let mut seconds = 0;
        for (rate, time) in loads {
            server.run(rate, time);
            seconds += time;
        }
        // Each kind of trial from each number waits for 30 s, then longer.
        let most = 12 + seconds as usize / 8;
        prop_assert!(server.count(ShapeVerdict::Reverted) <= most, "{} in {seconds} s", server.count(ShapeVerdict::Reverted));
    }
}
