//! Tests server and client together, over a real socket.
#![allow(clippy::unwrap_used)] // tests: a panic is how they fail

use control::cache::{PurgeOrder, Purged};
use control::changes::{ChangeReport, ChangesReport, CheckedSet, UndoOrder};
use control::client::{self, ControlClient};
use control::orders::{self, OrderError};
use control::{ControlAddress, ControlCaller, Provider, PumaCommand, Server};
use stats::{
    Death, DeathCause, DeathCounts, DeathRequest, InFlight, KeptRequest, Load, MaintenanceSnapshot,
    PauseSnapshot, PauseState, QueueSnapshot, ReleaseDifference, ReloadStep, ReloadWish, RouteSnapshot,
    RoutesSnapshot, RubyVersion, ServerSnapshot, ServerState, ShadowReport, Snapshot, Status, WorkerSnapshot,
    WorkerState,
};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;
use tokio::sync::{mpsc, oneshot};

const TOKEN: &str = "a+b/c=0123456789";

struct Running {
    path: PathBuf,
    port: ControlAddress,
    _dir: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start() -> Running {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/control.sock");
        let mut server = Server::new(Some(TOKEN.to_owned()));
        server.listen(&ControlAddress::Unix(path.clone())).unwrap();
        server.listen(&"tcp://127.0.0.1:0".parse().unwrap()).unwrap();
        let port = server.ports().next().unwrap();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio::task::LocalSet::new().block_on(&runtime, async {
                tokio::select! {
                    _ = server.run(Figures) => unreachable!("the server gave up"),
                    _ = stopped => {}
                }
            });
        });
        Running { path, port, _dir: dir, stop: Some(stop), thread: Some(thread) }
    }

    fn raw(&self, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.path).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
        self.thread.take().unwrap().join().unwrap();
        assert!(!self.path.exists(), "the socket file outlives its server");
    }
}

struct Figures;

/// The orders that the server has received. Only one test gives orders.
static ORDERS: std::sync::Mutex<Vec<PumaCommand>> = std::sync::Mutex::new(Vec::new());
/// How often the figures by route were to be forgotten.
static RESETS: AtomicUsize = AtomicUsize::new(0);

impl Provider for Figures {
    async fn routes(&self) -> RoutesSnapshot {
        let one = |route: &str, requests, app_sum_ms| RouteSnapshot {
            route: route.to_owned(),
            requests,
            app_sum_ms,
            ..RouteSnapshot::default()
        };
        let routes = vec![one("often", 9, 1.0), one("slow", 2, 50.0)];
        RoutesSnapshot {
            since: SystemTime::UNIX_EPOCH,
            taken_at: SystemTime::now(),
            limit: 200,
            routes,
            advice: None,
        }
    }

    fn record(
        &self,
        order: control::record::RecordOrder,
    ) -> Result<tokio::sync::mpsc::Receiver<control::record::RecordedLine>, OrderError> {
        Err(OrderError::Conflict(format!("one in {} is being recorded", order.one_in)))
    }

    fn heap(&self, wish: control::heap::HeapWish) -> oneshot::Receiver<String> {
        let (line, receiver) = oneshot::channel();
        let heap = control::heap::HeapSnapshot { worker: wish.worker.unwrap_or(9), ..Default::default() };
        let _ = line.send(serde_json::to_string(&control::heap::HeapLine::Heap(Box::new(heap))).unwrap());
        receiver
    }

    fn reset_routes(&self) {
        RESETS.fetch_add(1, Ordering::Relaxed);
    }

    fn cache(&self, limit: usize) -> Option<stats::CacheReport> {
        assert!(limit > 0, "the server refuses 0");
        None
    }

    fn hub(&self, limit: usize) -> Option<stats::HubReport> {
        assert!(limit > 0, "the server refuses 0");
        None
    }

    fn cached(&self, _: &str) -> Option<stats::CacheLookup> {
        None
    }

    async fn purge(&self, order: PurgeOrder) -> Result<Purged, OrderError> {
        match order.paths.iter().any(|path| path == "/off") {
            true => Err(OrderError::Conflict("the cache is off".to_owned())),
            false => Ok(Purged { removed: order.paths.len() as u64, shared: false, error: None }),
        }
    }

    fn order(&self, order: PumaCommand) {
        ORDERS.lock().unwrap().push(order);
    }

    async fn stats(&self) -> ServerSnapshot {
        snapshot()
    }

    async fn deaths(&self) -> Vec<Death> {
        vec![death()]
    }

    async fn differences(&self) -> Option<ShadowReport> {
        Some(differences())
    }

    async fn kept_requests(&self, death: u64) -> Vec<KeptRequest> {
        assert_eq!(death, 3);
        Vec::new()
    }

    async fn scraped(&self) -> ServerSnapshot {
        snapshot()
    }

    async fn load(&self) -> Load {
        Load { busy: 3, seats: 4, ..Load::default() }
    }

    async fn status(&self) -> Status {
        Status {
            version: "0.1.0".into(),
            pid: std::process::id(),
            dir: "/srv/app".into(),
            started_at: SystemTime::UNIX_EPOCH,
            taken_at: SystemTime::UNIX_EPOCH,
            state: ServerState::Leaving,
            live: true,
            ready: false,
            reason: Some("the server is shutting down".into()),
            workers: Some(1),
            workers_ready: Some(1),
            requests: 0,
            addresses: Vec::new(),
            pause: PauseSnapshot::default(),
            maintenance: MaintenanceSnapshot::default(),
        }
    }

    async fn profile(
        &self,
        _order: control::profile::ProfileOrder,
    ) -> Result<tokio::sync::oneshot::Receiver<String>, control::orders::OrderError> {
        let (document, receiver) = tokio::sync::oneshot::channel();
        let _ = document.send("{}".to_owned());
        Ok(receiver)
    }

    fn paused(&self) -> PauseSnapshot {
        PauseSnapshot { waiting: 12, state: PauseState::On, ..PauseSnapshot::default() }
    }

    async fn pause(&self, order: orders::CheckedPause) -> Result<PauseSnapshot, OrderError> {
        Ok(PauseSnapshot { max: order.max as u64, paths: order.paths, ..self.paused() })
    }

    fn resume(&self) -> Result<PauseSnapshot, OrderError> {
        Err(OrderError::Conflict("the app is not paused".to_owned()))
    }

    fn changes(&self) -> ChangesReport {
        ChangesReport::default()
    }

    fn set(&self, order: CheckedSet, caller: ControlCaller) -> Result<ChangeReport, OrderError> {
        Err(OrderError::Invalid(format!("{} settings of {caller}", order.values.len())))
    }

    fn undo(&self, order: UndoOrder, _: ControlCaller) -> Result<ChangeReport, OrderError> {
        Err(OrderError::Conflict(format!("{:?} is not in force", order.change)))
    }

    fn maintenance(&self) -> MaintenanceSnapshot {
        MaintenanceSnapshot::default()
    }

    fn begin_maintenance(&self, order: orders::Maintenance) -> Result<MaintenanceSnapshot, OrderError> {
        let retry_after_s = order.retry_after.unwrap_or_default().as_secs();
        Ok(MaintenanceSnapshot {
            on: true,
            own_page: order.page.is_none(),
            retry_after_s,
            ..Default::default()
        })
    }

    fn end_maintenance(&self) -> Result<MaintenanceSnapshot, OrderError> {
        Err(OrderError::Invalid("maintenance.page: page.html: No such file".to_owned()))
    }

    fn has_figures(&self) -> bool {
        true
    }

    /// Returns as many requests as requested.
    async fn requests(&self, limit: usize, backtraces: bool) -> Vec<InFlight> {
        let backtrace = backtraces.then(|| vec!["app.rb:3:in `sleep'".to_owned()]);
        vec![InFlight { method: "GET".into(), path: "/slow".into(), backtrace, ..InFlight::default() }; limit]
    }

    /// Sends one step, and the end after a moment.
    fn reload(&self, wish: ReloadWish) -> mpsc::UnboundedReceiver<ReloadStep> {
        let (lines, receiver) = mpsc::unbounded_channel();
        tokio::task::spawn_local(async move {
            let _ = lines
                .send(ReloadStep::Step { stage: stats::ReloadStage::Booting, text: format!("{wish:?}") });
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            let _ = lines.send(ReloadStep::Done { done: "it serves".into() });
        });
        receiver
    }

    fn upgrade(&self) -> mpsc::UnboundedReceiver<ReloadStep> {
        let (lines, receiver) = mpsc::unbounded_channel();
        let _ = lines.send(ReloadStep::Failed { failed: "not today".into() });
        receiver
    }
}

/// Sends requests as `pumactl` does, and checks the responses as it reads them.
#[test]
fn pumas_tools_give_orders() {
    let running = Running::start();
    for path in ["/phased-restart?token=x", "/restart", "/stop", "/reload-worker-directory", "/halt"] {
        let answer = running.raw(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes());
        assert!(answer.starts_with("HTTP/1.0 200 "), "{path}: {answer}");
        assert_eq!(answer.split("\r\n").last(), Some("{ \"status\": \"ok\" }\n"), "{path}");
    }
    let unknown = running.raw(b"GET /gc HTTP/1.0\r\n\r\n");
    let said = unknown.split("\r\n").last().unwrap();
    assert!(unknown.starts_with("HTTP/1.0 404 ") && said.starts_with("Unsupported action: "), "{unknown}");
    running.raw(b"HEAD /stop HTTP/1.0\r\n\r\n");
    let ControlAddress::Tcp { port, .. } = running.port else { panic!("a port") };
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /stop?token=wrong HTTP/1.0\r\n\r\n").unwrap();
    let mut refused = String::new();
    stream.read_to_string(&mut refused).unwrap();
    assert!(refused.starts_with("HTTP/1.0 403 ") && refused.ends_with("Invalid auth token"), "{refused}");
    let orders = [PumaCommand::PhasedRestart, PumaCommand::Restart, PumaCommand::Stop, PumaCommand::Halt];
    assert_eq!(*ORDERS.lock().unwrap(), orders);
}

#[test]
fn changes_of_settings_name_the_user_or_the_address_of_their_client() {
    let running = Running::start();
    let body = "{\"values\":[\"a=1\"]}";
    let length = body.len();
    let user =
        running.raw(format!("POST /settings HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes());
    let me = control::ControlCaller::User(Some(rustix::process::geteuid().as_raw()));
    assert!(user.starts_with("HTTP/1.0 400 ") && user.contains(&format!("1 settings of {me}\"")), "{user}");
    let ControlAddress::Tcp { port, .. } = running.port else { panic!("a port") };
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let head = format!("POST /settings?token={TOKEN} HTTP/1.0\r\nAuthorization: Bearer {TOKEN}\r\n");
    write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    assert!(told.contains("1 settings of 127.0.0.1\""), "{told}");
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "POST /settings HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    let mut refused = String::new();
    stream.read_to_string(&mut refused).unwrap();
    assert!(refused.starts_with("HTTP/1.0 403 "), "{refused}");
    let undo = running.raw(b"POST /settings/undo HTTP/1.0\r\nContent-Length: 12\r\n\r\n{\"change\":3}");
    assert!(undo.starts_with("HTTP/1.0 409 ") && undo.contains("Some(3) is not in force"), "{undo}");
}

#[test]
fn orders_to_interrupt_are_checked_and_carried_out() {
    let running = Running::start();
    let order = |path: &str, body: &str| {
        let length = body.len();
        let request = format!("POST {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}");
        let answer = running.raw(request.as_bytes());
        let (head, json) = answer.split_once("\r\n\r\n").unwrap();
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str::<serde_json::Value>(json).unwrap())
    };
    let (status, paused) = order("/pause", r#"{"for":"30s","max":7,"paths":["/orders/"]}"#);
    assert_eq!((status, &paused["max"], &paused["paths"][0]), (200, &7.into(), &"/orders".into()));
    assert_eq!(order("/pause", "").1["max"], 1000);
    let (status, on) = order("/maintenance/on", r#"{"page":"<p>","retry_after":"10m"}"#);
    assert_eq!((status, &on["own_page"], &on["retry_after_s"]), (200, &false.into(), &600.into()));
    for (path, body, status, why) in [
        ("/pause", r#"{"for":"1h"}"#, 400, "for: 1h: expected a time"),
        ("/pause", r#"{"fore":"1h"}"#, 400, "the order cannot be read: unknown field"),
        ("/pause", "{", 400, "the order cannot be read"),
        ("/resume", "", 409, "the app is not paused"),
        ("/maintenance/off", "", 400, "maintenance.page"),
        ("/maintenance/on", r#"{"allow":["x"]}"#, 400, "allow: x: expected an address"),
    ] {
        let (found, json) = order(path, body);
        let told = json["error"].as_str().unwrap();
        assert!(found == status && told.starts_with(why), "{path} {body}: {found} {told}");
    }
    let large = format!(r#"{{"page":"{}"}}"#, "x".repeat(600 << 10));
    let (status, json) = order("/maintenance/on", &large);
    assert!(status == 400 && json["error"].as_str().unwrap().contains("may have 512 KiB"), "{json}");
    let state = running.raw(b"GET /pause HTTP/1.0\r\n\r\n");
    assert!(state.contains("\"waiting\": 12"), "{state}");
}

fn differences() -> ShadowReport {
    let difference = ReleaseDifference {
        route: "posts#show".to_owned(),
        part: "JSON $.author".to_owned(),
        old: Some("string".to_owned()),
        new: None,
        worse: false,
        seen: 3,
        examples: vec!["GET /posts/1".to_owned()],
    };
    ShadowReport {
        at: std::time::SystemTime::UNIX_EPOCH,
        text: "3 requests compared on 1 routes: 1 difference".to_owned(),
        requests: 3,
        probes: Vec::new(),
        routes: 1,
        differences: vec![difference],
        left_out: Vec::new(),
    }
}

#[test]
fn differences_are_told() {
    let server = Running::start();
    let told = json(&server.path, "/differences");
    assert_eq!(told["differences"][0]["part"], "JSON $.author");
    assert_eq!(serde_json::from_value::<ShadowReport>(told).unwrap(), differences());
}

fn death() -> Death {
    Death {
        number: 1,
        at: SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_769_860_800),
        worker: 1,
        pid: 101,
        generation: 1,
        age_s: 7_385.0,
        requests: 12_345,
        cause: DeathCause::OutOfMemory,
        exit_code: None,
        signal: Some(9),
        peak_rss_bytes: 400 << 20,
        rss_bytes: Some(390 << 20),
        pss_bytes: None,
        oom_kills_before: Some(0),
        oom_kills_after: Some(1),
        in_flight: vec![DeathRequest {
            method: "POST".into(),
            path: "/import".into(),
            age_ms: 2_500.0,
            answered: false,
            backtrace: Some(vec!["app.rb:3:in `read'".to_owned()]),
        }],
        kept: 0,
        seconds: Vec::new(),
        events: Vec::new(),
        text: "worker 1 (pid 101) was killed by the kernel".into(),
    }
}

fn snapshot() -> ServerSnapshot {
    let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_769_860_800);
    let recorder = stats::Recorder::new();
    recorder.finished(&stats::Finished { status: 200, total_us: 1_500, ..Default::default() });
    ServerSnapshot {
        version: "0.1.0".into(),
        ruby: RubyVersion::from("ruby 3.1.2p20"),
        rack: "2.2.4".into(),
        libraries: Vec::new(),
        database_connections: None,
        environment: "production".into(),
        dir: "/srv/app".into(),
        pid: 99,
        started_at: now,
        taken_at: now,
        phase: 0,
        state: ServerState::Serving,
        clustered: true,
        pss_bytes: 5 << 20,
        rss_bytes: 9 << 20,
        cpu_ms: 120,
        cores: 2.0,
        memory_limit_bytes: 1 << 30,
        shape: None,
        sizing: Some(stats::SizingSnapshot { wanted: 1, min: 1, max: 4, pinned: false, last: None }),
        workers: vec![WorkerSnapshot {
            index: 0,
            pool: "default".into(),
            pid: 100,
            state: WorkerState::Ready,
            phase: 0,
            started_at: now,
            last_checkin: now,
            requests: 1_234,
            failures: 1,
            blocking_calls: 0,
            blocked_ms: 0,
            busy_threads: 2,
            threads_started: 4,
            threads_max: 5,
            fibers: 0,
            fiber_paths: None,
            in_flight: 3,
            waiting: 1,
            pss_bytes: 10 << 20,
            rss_bytes: 30 << 20,
            cpu_ms: 900,
            restarts: 6,
        }],
        pools: Vec::new(),
        routes: Vec::new(),
        held: stats::HeldSnapshot::default(),
        deaths: DeathCounts::default(),
        blocking_calls: 0,
        blocked_ms: 0,
        reloads: stats::ReloadsSnapshot::default(),
        reforks: stats::ReforksSnapshot::default(),
        upgrades: stats::UpgradesSnapshot::default(),
        services: Vec::new(),
        pause: PauseSnapshot::default(),
        maintenance: MaintenanceSnapshot::default(),
        changed_settings: Vec::new(),
        out_of_band_gc: stats::OutOfBandGc::default(),
        queue: QueueSnapshot {
            length: 7,
            oldest_wait_ms: 1.5,
            longest: 8,
            max: 10_000,
            refused_early: 3,
            ..QueueSnapshot::default()
        },
        handlers: None,
        rate_limits: None,
        kept_responses: None,
        hub: None,
        memory: Default::default(),
        queue_classes: Vec::new(),
        waiters: Vec::new(),
        tls: None,
        acme: Vec::new(),
        front: Snapshot::of([&recorder]),
    }
}

fn json(path: &Path, target: &str) -> serde_json::Value {
    serde_json::from_str(&client::get(path, target).unwrap()).unwrap()
}

#[test]
fn a_reload_is_told_line_by_line() {
    let server = Running::start();
    let answer = server.raw(b"POST /reload?undo HTTP/1.0\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.0 200 ") && answer.contains("application/x-ndjson"), "{answer}");
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let lines: Vec<&str> = body.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines, [r#"{"stage":"booting","text":"Undo"}"#, r#"{"done":"it serves"}"#]);
    assert!(server.raw(b"GET /reload HTTP/1.0\r\nHost: x\r\n\r\n").contains("allow: POST\r\n"));
    let answer = server.raw(b"POST /upgrade HTTP/1.0\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    assert!(answer.ends_with("{\"failed\":\"not today\"}\n"), "{answer}");
}

#[test]
fn a_reload_over_a_port_needs_the_token() {
    let server = Running::start();
    let ControlAddress::Tcp { host, port } = &server.port else { unreachable!() };
    let mut stream = std::net::TcpStream::connect((host.as_str(), *port)).unwrap();
    stream.write_all(b"POST /reload HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 403 ") && answer.ends_with("Invalid auth token"), "{answer}");
}

#[test]
fn both_shapes_and_the_list_are_answered() {
    let server = Running::start();
    let native = json(&server.path, "/stats");
    assert_eq!(native["workers"][0]["requests"], 1_234);
    assert_eq!(native["total_ms"]["count"], 1);
    assert!(native["total_ms"].get("buckets").is_none());
    assert!(json(&server.path, "/stats?buckets")["total_ms"]["buckets"].is_array());
    let puma = json(&server.path, "/puma/stats");
    assert_eq!(puma["worker_status"][0]["last_status"]["requests_count"], 1_234);
    assert_eq!(json(&server.path, "/stats?format=puma"), puma);
    let list = json(&server.path, "/");
    assert!(list["endpoints"].as_array().unwrap().iter().any(|endpoint| endpoint["path"] == "/stats"));
}

#[test]
fn requests_in_flight_are_told_as_asked() {
    let server = Running::start();
    assert_eq!(json(&server.path, "/requests").as_array().unwrap().len(), 20);
    let told = json(&server.path, "/requests?limit=1&backtraces");
    assert_eq!((&told[0]["path"], &told[0]["worker"]), (&"/slow".into(), &serde_json::Value::Null));
    assert_eq!(told[0]["backtrace"][0], "app.rb:3:in `sleep'");
    assert!(json(&server.path, "/requests?limit=1&backtraces=0")[0]["backtrace"].is_null());
    for wrong in ["/requests?limit=many", "/requests?limit=0", "/requests?limit=-1"] {
        assert!(matches!(client::get(&server.path, wrong), Err(client::Error::Refused(400, _))), "{wrong}");
    }
}

#[test]
fn routes_are_sorted_limited_and_forgotten() {
    let server = Running::start();
    let first = |target: &str| json(&server.path, target)["routes"][0]["route"].clone();
    assert_eq!((first("/routes"), first("/routes?sort=requests")), ("slow".into(), "often".into()));
    assert_eq!(json(&server.path, "/routes?limit=1")["routes"].as_array().unwrap().len(), 1);
    for wrong in ["/routes?sort=name", "/routes?limit=0"] {
        assert!(matches!(client::get(&server.path, wrong), Err(client::Error::Refused(400, _))), "{wrong}");
    }
    let told = server.raw(b"POST /routes/reset HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(told.starts_with("HTTP/1.1 200 ") && RESETS.load(Ordering::Relaxed) == 1, "{told}");
    assert!(
        server.raw(b"GET /routes/reset HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 405 ")
    );
}

#[test]
fn deaths_are_told_with_their_requests() {
    let server = Running::start();
    let told = json(&server.path, "/deaths");
    assert_eq!(
        (&told[0]["cause"], &told[0]["at"]),
        (&"out_of_memory".into(), &"2026-01-31T12:00:00.000Z".into())
    );
    assert_eq!(told[0]["in_flight"][0]["path"], "/import");
    assert_eq!(serde_json::from_value::<Vec<Death>>(told).unwrap(), [death()]);
}

#[test]
fn a_port_answers_whoever_shows_the_token() {
    let server = Running::start();
    let ask = |token: Option<&str>| ControlClient::new(server.port.clone(), token.map(str::to_owned));
    assert_eq!(ask(Some(TOKEN)).stats().unwrap().pid, 99);
    assert_eq!(ask(Some(TOKEN)).requests(3, false).unwrap().len(), 3);
    for wrong in [None, Some("a+b/c=012345678"), Some("")] {
        let error = ask(wrong).stats().unwrap_err();
        assert!(matches!(error, client::Error::Token(_)) && error.to_string().contains("--token"), "{error}");
    }
    assert_eq!(ControlClient::new(ControlAddress::Unix(server.path.clone()), None).stats().unwrap().pid, 99);
}

#[test]
fn fine_buckets_tell_what_came_between() {
    let server = Running::start();
    let stats = ControlClient::new(ControlAddress::Unix(server.path.clone()), None).stats().unwrap();
    assert_eq!(stats.front.total_ms.since(&stats::DurationSummary::default()).count, 1);
    let coarse = json(&server.path, "/stats?buckets=1");
    assert!(coarse["total_ms"]["buckets"].as_array().unwrap().len() > stats.front.total_ms.buckets.len());
}

#[test]
fn the_history_begins_with_the_server() {
    let server = Running::start();
    let history = json(&server.path, "/history");
    assert_eq!((&history["step_s"], &history["pid"]), (&10.into(), &99.into()));
    assert_eq!(history["points"], serde_json::json!([]));
}

#[test]
fn the_page_is_for_browsers() {
    let server = Running::start();
    let answer = server.raw(b"GET / HTTP/1.1\r\nHost: x\r\nAccept: text/html\r\n\r\n");
    assert!(
        answer.contains("content-type: text/html") && answer.contains("<title>Firebrick</title>"),
        "{answer}"
    );
    for field in
        ["x-frame-options: DENY", "content-security-policy: default-src 'none'", "cache-control: no-store"]
    {
        assert!(answer.contains(field), "{field} is missing");
    }
}

#[test]
fn mistakes_are_answered_in_json() {
    let server = Running::start();
    let Err(client::Error::Refused(404, text)) = client::get(&server.path, "/nothing") else {
        panic!("no 404")
    };
    assert!(serde_json::from_str::<serde_json::Value>(&text).unwrap()["error"].is_string());
    assert!(matches!(client::get(&server.path, "/stats?format=xml"), Err(client::Error::Refused(400, _))));
    let answer = server.raw(b"POST /stats HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.contains("allow: GET, HEAD\r\n"), "{answer}");
}

#[test]
fn curl_is_understood_and_head_has_no_body() {
    let server = Running::start();
    let answer =
        server.raw(b"GET /stats HTTP/1.1\r\nHost: x\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("}\n"), "{answer}");
    assert!(server.raw(b"HEAD /stats HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n"));
}

#[test]
fn silent_and_rude_clients_do_not_keep_others_waiting() {
    let server = Running::start();
    let silent: Vec<UnixStream> = (0..8).map(|_| UnixStream::connect(&server.path).unwrap()).collect();
    let mut rude = UnixStream::connect(&server.path).unwrap();
    rude.write_all(b"\x16\x03\x01 nonsense\r\n\r\n").unwrap();
    assert!(client::get(&server.path, "/stats").is_ok());
    drop(silent);
}
