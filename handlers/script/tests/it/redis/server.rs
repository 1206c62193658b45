//! Starts a Redis server for a test, and runs Ruby against it.

use script::{HandlerPlan, HandlerRoute, HandlerSource, RouteLimits, Script};
use std::cell::RefCell;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A `redis-server` on a Unix socket and on a port, without files.
pub struct Server {
    folder: Arc<tempfile::TempDir>,
    port: u16,
    tls: bool,
    child: Option<Child>,
}

impl Server {
    /// Starts a server; `None` without Redis or mruby on this machine, which skips the test.
    pub fn start() -> Option<Server> {
        Server::new(false)
    }

    /// Starts a server with TLS on its port, which requires client certificates.
    pub fn start_with_tls() -> Option<Server> {
        Server::new(true)
    }

    fn new(tls: bool) -> Option<Server> {
        let there = |program| {
            Command::new(program)
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok()
        };
        if script::version().is_none() || !there("redis-server") || (tls && !there("openssl")) {
            return None;
        }
        let free =
            TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port is free");
        let folder = Arc::new(tempfile::tempdir().expect("a folder can be made"));
        if tls {
            certify(folder.path());
        }
        let mut server = Server { folder, port: free.port(), tls, child: None };
        server.begin();
        server.wait();
        Some(server)
    }

    /// Returns another handle of the same server, which neither starts nor stops it.
    pub fn at(other: &Server) -> Server {
        Server { folder: other.folder.clone(), child: None, ..*other }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// Starts the server; it may take a moment to accept connections.
    pub fn begin(&mut self) {
        let port = self.port.to_string();
        let mut command = Command::new("redis-server");
        command.args([
            "--save",
            "",
            "--appendonly",
            "no",
            "--enable-debug-command",
            "yes",
            "--bind",
            "127.0.0.1",
        ]);
        command.arg("--unixsocket").arg(self.socket());
        if self.tls {
            command.args(["--port", "0", "--tls-port", &port, "--tls-ca-cert-file", "ca.pem"]);
            command.args(["--tls-cert-file", "server.pem", "--tls-key-file", "server.key"]);
        } else {
            command.args(["--port", &port]);
        }
        let child =
            command.current_dir(self.folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.child = Some(child.expect("redis-server is installed"));
    }

    pub fn wait(&self) {
        for _ in 0..1000 {
            if self.cli(&["PING"]).as_deref() == Some("PONG") {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("redis-server does not answer");
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it is our own");
            child.wait().expect("it is our own");
        }
    }

    /// Returns the output of `redis-cli`; `None` if it cannot connect.
    pub fn cli(&self, words: &[&str]) -> Option<String> {
        let said =
            Command::new("redis-cli").arg("-s").arg(self.socket()).args(words).stderr(Stdio::null()).output();
        let said = said.expect("redis-cli is installed");
        said.status.success().then(|| String::from_utf8_lossy(&said.stdout).trim().to_owned())
    }

    /// Runs `tests/it/redis/FILE` as a handler, with `SOCKET`, `PORT` and `FOLDER` defined. Returns its log,
    /// or the reason why it failed.
    pub fn run(&self, file: &str) -> Result<Vec<String>, String> {
        let said: Rc<RefCell<Vec<String>>> = Rc::default();
        let hear = said.clone();
        let complain = Rc::new(move |line: &str| {
            hear.borrow_mut().push(line.trim_start_matches("mruby: ").to_owned());
        });
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
        runtime.expect("a runtime").block_on(async {
            let script = Script::open(Arc::new(self.plan(file)), complain).expect("a VM");
            script.ready().await
        })?;
        Ok(said.take())
    }

    fn plan(&self, file: &str) -> HandlerPlan {
        let limits = RouteLimits {
            request_heap: 256 << 20,
            step_time: None,
            deadline: None,
            max_tasks: 10_000,
            max_body: 0,
            reproxy: false,
        };
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/redis");
        let mut source = HandlerSource::read(&folder.join(file)).expect("the test is there");
        let check = HandlerSource::read(&folder.join("check.rb")).expect("the checks are there").code;
        let check: Vec<&str> = check.lines().filter(|line| !line.starts_with('#')).collect();
        // On the first line, so that line numbers match the file.
        let given = format!(
            "SOCKET = {:?}; PORT = {}; FOLDER = {:?}; ",
            self.socket(),
            self.port,
            self.folder.path()
        );
        source.code = format!(
            "{given}{}; {}\nraise WRONG.join(\"\\n\") unless WRONG.empty?\nlambda {{ |env| [200, {{}}, []] }}",
            check.join(";"),
            source.code
        );
        HandlerPlan {
            sources: vec![source],
            routes: vec![HandlerRoute { path: String::new(), handlers: vec![0], limits: Arc::new(limits) }],
            heap: 512 << 20,
            temp_dir: std::env::temp_dir(),
        }
    }
}

/// Creates an authority, and certificates for the server and its clients.
fn certify(folder: &Path) {
    let openssl = |words: &str| {
        let made = Command::new("openssl")
            .args(words.split(' '))
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(made.is_ok_and(|status| status.success()), "openssl {words}");
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"));
    for (name, of) in
        [("server", "subjectAltName=DNS:localhost,IP:127.0.0.1"), ("client", "keyUsage=digitalSignature")]
    {
        std::fs::write(folder.join("extensions"), of).expect("the folder takes files");
        openssl(&format!("req -new {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        let signed = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile extensions";
        openssl(&format!("x509 -req -in {name}.csr -out {name}.pem {signed}"));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
